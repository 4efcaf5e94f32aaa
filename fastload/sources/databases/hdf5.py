"""BigGAN's HDF5 files as sources: `imgs`, uint8 pixels (images, 3, height, width), and `labels`, integers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.images.formats import MOST_BYTES
from fastload.shards.schema import Field
from fastload.sources.containers import SHARD, ContainerSource
from fastload.sources.files import list_files
from fastload.sources.malformed import FROM_PYTHON, explaining, malformed
from fastload.sources.protocol import SourceRecord
from fastload.sources.table.columns import classes_of

_SUFFIXES = (".h5", ".hdf5", ".he5")


def open_hdf5(path: str) -> dict[str, Hdf5Source] | None:
    """List the images of an HDF5 file; raise SourceError if it does not have BigGAN's layout."""
    if not path.lower().endswith(_SUFFIXES) or os.path.isdir(path):
        return None
    folder, name = os.path.split(os.path.abspath(path))
    with _reading(path) as file:
        _require_layout(path, file)
        labels = file["labels"][:]
        if np.max(labels, initial=0) > np.iinfo(np.int64).max:
            raise malformed(path, "hold labels that int64 holds", "larger ones")
        details = {"files": [name], "chunks": file["imgs"].chunks, "labels": labels.dtype.name}
    source = Hdf5Source(
        kind="hdf5-biggan",
        name=path,
        classes=classes_of(labels.astype(np.int64)),
        fields=(Field.label(), SHARD),
        files=list_files(folder, [name]),
        values={"label": labels.astype(np.int64)},
        shard_of=np.zeros(len(labels), np.int64),
        details=details,
    )
    return {"": source}


def _require_layout(path: str, file: Any) -> None:
    """Raise SourceError unless a file itself holds images and labels in BigGAN's layout."""
    import h5py

    shapes: dict[str, Any] = {name: getattr(file.get(name), "shape", ()) for name in file}
    images = shapes.get("imgs", ())
    if len(images) != 4 or images[1] != 3 or file["imgs"].dtype != np.uint8:
        must = "hold 'imgs', uint8 (images, 3, height, width), as in BigGAN's"
        raise malformed(path, must, shapes or "nothing", FROM_PYTHON)
    if shapes.get("labels") != images[:1] or file["labels"].dtype.kind not in "iu":
        raise malformed(path, f"hold an integer of 'labels' for each of {images[0]} 'imgs'", shapes)
    if not 0 < math.prod(images[1:]) <= MOST_BYTES:
        raise malformed(path, f"hold images of at most {MOST_BYTES:,} bytes", images[1:])
    for name in ("imgs", "labels"):
        is_own = isinstance(file.get(name, getlink=True), h5py.HardLink)
        if not is_own or file[name].is_virtual or file[name].external:
            raise malformed(
                path, f"hold its own {name!r}", "those of another file", "copy them into it (h5repack)"
            )
        _require_stored(path, name, file[name])
    size = os.stat(path).st_size
    if images[0] > size:  # equal labels shrink to a thousandth, but each has an image
        raise malformed(path, "hold at most an image a byte", f"{images[0]:,} in {size:,} bytes")


def _require_stored(path: str, name: str, dataset: Any) -> None:
    """Raise SourceError unless all of a dataset was written: HDF5 makes up what was not, of any size."""
    if dataset.chunks is None:
        stored, whole, unit = dataset.id.get_storage_size(), dataset.nbytes, "bytes"
    else:
        sides = zip(dataset.shape, dataset.chunks, strict=True)
        stored, whole = dataset.id.get_num_chunks(), math.prod(-(-side // chunk) for side, chunk in sides)
        unit = "chunks"
        if math.prod(dataset.chunks) * dataset.dtype.itemsize > MOST_BYTES:
            raise malformed(path, f"hold {name!r} in chunks of at most {MOST_BYTES:,} bytes", dataset.chunks)
    if stored < whole:
        step = "its writing was interrupted, or it was made to seem large: write it again"
        raise malformed(path, f"hold all {whole:,} {unit} of {name!r}", f"{stored:,}", step)


@contextmanager
def _reading(path: str) -> Iterator[Any]:
    """Yield an open file; raise SourceError, naming it, if it is damaged."""
    import h5py

    errors = (OSError, RuntimeError, KeyError)
    with explaining(errors, path, "be a complete HDF5 file", "copy it again"), h5py.File(path, "r") as file:
        yield file


@dataclass(eq=False, kw_only=True)
class Hdf5Source(ContainerSource):
    """Source of the images of one file, which is opened for each image: reading its chunk takes longer."""

    def read_from(self, path: str, index: int) -> SourceRecord:
        with _reading(path) as file:
            pixels = np.ascontiguousarray(file["imgs"][index].transpose(1, 2, 0))
        return SourceRecord(self.key(index), pixels, {})
