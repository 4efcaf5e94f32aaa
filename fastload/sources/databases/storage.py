"""Databases of other programs, opened only where nothing they state is larger than they are.

Their pickles are read if they hold plain values: bytes, numbers, text, tuples and lists, and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import pickle
import pickletools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fastload.errors import SourceError
from fastload.images.formats import MOST_BYTES
from fastload.sources.malformed import FROM_PYTHON, explaining, malformed

if TYPE_CHECKING:
    import h5py
    import lmdb


DATA = "data.mdb"

_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}

_OPERATIONS = _PUTS | {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
    *("GLOBAL", "REDUCE"),
}


@contextlib.contextmanager
def reading_lmdb(path: str) -> Iterator[lmdb.Transaction]:
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


def entry(transaction: lmdb.Transaction, path: str, key: str) -> memoryview:
    """Return the value of a key as a buffer; raise SourceError if there is none."""
    value: memoryview | None = transaction.get(os.fsencode(key))
    if value is None:
        raise malformed(f"{path}, key {key!r}", "exist", "no such key", "write the database again")
    return value


@contextlib.contextmanager
def reading_hdf5(path: str) -> Iterator[h5py.File]:
    """Yield an open file; raise SourceError, naming it, if it is damaged."""
    import h5py

    errors = (OSError, RuntimeError, KeyError)
    with explaining(errors, path, "be a complete HDF5 file", "copy it again"), h5py.File(path, "r") as file:
        yield file


def require_arrays(path: str, file: h5py.File, images: str, labels: str) -> None:
    """Raise SourceError unless a file itself holds uint8 images, channels first, and their integer labels."""
    import h5py

    shapes: dict[str, tuple[int, ...]] = {name: getattr(file.get(name), "shape", ()) for name in file}
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


def _require_stored(path: str, name: str, dataset: h5py.Dataset) -> None:
    """Raise SourceError unless all of a dataset was written: HDF5 fills in what was not, however large."""
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


def _bytes_of(text: str = "", encoding: str = "latin1") -> bytes:
    """Stand for what protocols 0 to 2 call to make bytes: _codecs.encode(text, "latin1"), or bytes()."""
    if encoding != "latin1":
        raise ValueError(f"bytes of {encoding!r}")
    return text.encode("latin1")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in (("_codecs", "encode"), ("__builtin__", "bytes")):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return _bytes_of


def read_plain(data: bytes, where: str) -> object:
    """Return the value in a pickle; raise SourceError, naming `where`, if it has more than plain values.

    An unpickler without classes runs no code of a file. It is asked only after the operations of a pickle
    were checked, because a large index of its memo would make it take any amount of memory.
    """
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name not in _OPERATIONS or (
                operation.name in _PUTS and int(argument or 0) > len(data)
            ):
                shown = "" if argument is None else f" {argument!r}"
                raise ValueError(f"the operation {operation.name}{shown[:80]}")
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (
        *(pickle.UnpicklingError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError),
        *(EOFError, MemoryError),
    ) as error:
        raise SourceError(
            f"{where}: must be a pickle of bytes, numbers, text, tuples and lists, got: {error}: others "
            "could run code, and records of old releases of pyarrow cannot be read: load it yourself, and "
            "pack from Python with fastload.pack(dataset, 'DEST.fl')"
        ) from error
