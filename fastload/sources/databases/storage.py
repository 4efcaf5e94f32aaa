"""Databases of other programs, opened only where nothing they state is larger than they are."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastload.images.formats import MOST_BYTES
from fastload.sources.malformed import FROM_PYTHON, explaining, malformed

DATA = "data.mdb"


@contextlib.contextmanager
def reading_lmdb(path: str) -> Iterator[Any]:
    """Yield a transaction of a database that is open only in this block: LMDB forbids opening one twice."""
    import lmdb

    is_folder = os.path.isdir(path)
    options = {"subdir": is_folder, "readonly": True, "lock": False, "create": False, "readahead": False}
    must, step = "be an LMDB database", "copy or write it again"
    with explaining((lmdb.Error,), path, must, step), lmdb.open(path, **options) as opened:
        extent = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
        size = os.stat(os.path.join(path, DATA) if is_folder else path).st_size
        if extent > size:  # accessing a missing page would kill the process
            step = "it was cut off: copy it again"
            raise malformed(path, f"have its {extent:,} bytes", f"{size:,}", step)
        with opened.begin(buffers=True) as transaction:
            yield transaction


def entry(transaction: Any, path: str, key: str) -> Any:
    """Return the value of a key as a buffer; raise SourceError if there is none."""
    value = transaction.get(os.fsencode(key))
    if value is None:
        raise malformed(f"{path}, key {key!r}", "exist", "no such key", "write the database again")
    return value


@contextlib.contextmanager
def reading_hdf5(path: str) -> Iterator[Any]:
    """Yield an open file; raise SourceError, naming it, if it is damaged."""
    import h5py

    errors = (OSError, RuntimeError, KeyError)
    with explaining(errors, path, "be a complete HDF5 file", "copy it again"), h5py.File(path, "r") as file:
        yield file


def require_arrays(path: str, file: Any, images: str, labels: str) -> None:
    """Raise SourceError unless a file itself holds uint8 images, channels first, and their integer labels."""
    import h5py

    shapes: dict[str, Any] = {name: getattr(file.get(name), "shape", ()) for name in file}
    shape = shapes.get(images, ())
    if len(shape) != 4 or shape[1] != 3 or file[images].dtype != np.uint8:
        must = f"hold {images!r}, uint8 (images, 3, height, width), as in BigGAN's"
        raise malformed(path, must, shapes or "nothing", FROM_PYTHON)
    if shapes.get(labels) != shape[:1] or file[labels].dtype.kind not in "iu":
        raise malformed(path, f"hold an integer of {labels!r} for each of {shape[0]} {images!r}", shapes)
    if not 0 < math.prod(shape[1:]) <= MOST_BYTES:
        raise malformed(path, f"hold images of at most {MOST_BYTES:,} bytes", shape[1:])
    for name in (images, labels):
        is_own = isinstance(file.get(name, getlink=True), h5py.HardLink)
        if not is_own or file[name].is_virtual or file[name].external:
            step = "copy them into it (h5repack)"
            raise malformed(path, f"hold its own {name!r}", "those of another file", step)
        _require_stored(path, name, file[name])
    size = os.stat(path).st_size
    if shape[0] > size:  # equal labels shrink to a thousandth, but each has an image
        raise malformed(path, "hold at most an image a byte", f"{shape[0]:,} in {size:,} bytes")


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
