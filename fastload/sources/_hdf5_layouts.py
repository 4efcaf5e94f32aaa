"""BigGAN's HDF5 files as sources: `imgs`, uint8 pixels (images, 3, height, width), and `labels`, integers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.images.formats import MOST_BYTES
from fastload.shards.schema import Field
from fastload.sources._columns import classes_of
from fastload.sources._containers import ContainerSource
from fastload.sources._malformed import malformed
from fastload.sources.files import list_files
from fastload.sources.protocol import SourceRecord

_SUFFIXES = (".h5", ".hdf5", ".he5")


def is_hdf5(path: str) -> bool:
    """Return True for an HDF5 file."""
    return path.lower().endswith(_SUFFIXES) and not os.path.isdir(path)


def open_hdf5(path: str) -> dict[str, Hdf5Source]:
    """List the images of a file; raise SourceError if it is not of BigGAN's layout."""
    import h5py

    with _reading(path) as file:
        found = {name: getattr(file.get(name), "shape", None) for name in ("imgs", "labels")}
        images, labels = found["imgs"], found["labels"]
        if not images or len(images) != 4 or images[1] != 3 or file["imgs"].dtype != np.uint8:
            got = (
                ", ".join(f"{name} {getattr(each, 'shape', '')}" for name, each in file.items()) or "nothing"
            )
            raise SourceError(
                f"{path}: must hold 'imgs', uint8 (images, 3, height, width), as in BigGAN's, got {got}: "
                "from Python, fastload.pack takes a map-style dataset that reads it: "
                "fastload.pack(dataset, 'DEST.fl')"
            )
        if labels != images[:1] or file["labels"].dtype.kind not in "iu":
            raise SourceError(f"{path}: must hold an integer of 'labels' for each of {images[0]} 'imgs'")
        if not 0 < math.prod(images[1:]) <= MOST_BYTES:
            raise malformed(path, f"hold images of at most {MOST_BYTES:,} bytes", images[1:])
        if np.max(file["labels"][:], initial=0) > np.iinfo(np.int64).max:
            raise malformed(path, "hold labels that int64 holds", "larger ones")
        for name in found:
            is_own = isinstance(file.get(name, getlink=True), h5py.HardLink)
            if not is_own or file[name].is_virtual or file[name].external:
                step = "copy them into it (h5repack)"
                raise malformed(path, f"hold its own {name!r}", "those of another file", step)
        chunks, numbers = file["imgs"].chunks, np.array(file["labels"][:], np.int64)
        dtype = file["labels"].dtype.name
    return {
        "": Hdf5Source(
            kind="hdf5-biggan",
            name=path,
            classes=classes_of(numbers),
            fields=(Field.label(),),
            files=list_files(os.path.dirname(os.path.abspath(path)), [os.path.basename(path)]),
            labels=numbers,
            details={"files": [os.path.basename(path)], "chunks": chunks, "labels": dtype},
        )
    }


@contextmanager
def _reading(path: str) -> Iterator[Any]:
    """Yield an open file; raise SourceError, naming it, for damage."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        raise SourceError(f"{path}: must be a whole HDF5 file, got: {error}: copy it again") from error


@dataclass(eq=False, kw_only=True)
class Hdf5Source(ContainerSource):
    """A `Source` of the images of one file, which is opened for each of them: a chunk is read anyway."""

    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> SourceRecord:
        """Read one image as pixels (height, width, 3)."""
        with _reading(self.unchanged(0)) as file:
            pixels = np.ascontiguousarray(file["imgs"][index].transpose(1, 2, 0))
        return SourceRecord(self.key(index), pixels, {"label": int(self.labels[index])})
