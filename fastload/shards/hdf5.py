"""HDF5 shards: contiguous, uncompressed datasets that any HDF5 tool opens.

Reading asks h5py once for the offset of each dataset and maps the file, so the HDF5 library, its lock and its
caches stay out of the hot path. Writing does not copy the payload: it is already at the offset that HDF5
assigns to it, and the file's structure is written around it.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from itertools import accumulate
from mmap import mmap
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import h5py
import numpy as np
from numpy.typing import NDArray

from fastload.shards.checksum import IDENTITY_BYTES
from fastload.shards.container import (
    IDENTITY_NAME,
    ByteArray,
    Payload,
    ShardContent,
    ShardEntry,
    ShardWriter,
    opening,
    require_identity,
)
from fastload.shards.schema import CRC32C, Column
from fastload.system import signals
from fastload.system.mapping import map_file

# With datasets of 512 bytes and more aligned to 4096, HDF5 (1.10 to 2.0, measured) puts the first dataset
# right after its superblock and root group, at 4096, where the payload has been written. With a smaller
# payload, or another release, the offset may differ: then the payload is moved in memory.
_ALIGNMENT = 4096
_ALIGNMENT_THRESHOLD = 512

Array = NDArray[np.generic]
Buffer = mmap | memoryview


def write(path: Path, columns: Sequence[Column], content: ShardContent) -> None:
    """Write a shard; see `ShardWriter`."""
    payload = content.payload
    structure, begin = _structure(columns, content)
    begin, end = (0, 0) if begin is None else (begin, begin + payload.size_bytes)
    with payload.path.open("r+b") as file:
        if payload.size_bytes and begin != _ALIGNMENT:
            file.seek(_ALIGNMENT)
            images = file.read(payload.size_bytes)
            file.seek(begin)
            file.write(images)
            file.seek(0)
        written = structure.memory.getbuffer()
        file.write(written[:begin])
        file.seek(end)
        file.write(written[begin:])
        file.truncate(structure.size_bytes)
    os.replace(payload.path, path)


WRITER = ShardWriter(".h5", _ALIGNMENT, write)


class _HollowFile(io.RawIOBase):
    """In-memory file that h5py writes; a hole in it, which h5py never touches, is left out of `memory`."""

    def __init__(self) -> None:
        self.memory = io.BytesIO()
        self.size_bytes = 0
        self._hole_begin = self._hole_bytes = 0
        self._position = 0

    def leave_out(self, begin: int, size_bytes: int) -> None:
        """Leave out a range after everything written so far."""
        self._hole_begin, self._hole_bytes = begin, size_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence, self.size_bytes)
        is_behind = self._position >= self._hole_begin + self._hole_bytes
        self.memory.seek(self._position - (self._hole_bytes if is_behind else 0))
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self.size_bytes = self._position if size is None else size
        return self.size_bytes

    def readinto(self, buffer: Any) -> int:
        self._position += len(buffer)
        found = self.memory.readinto(buffer)
        buffer[found:] = bytes(len(buffer) - found)  # h5py reads only where it has written or truncated
        return len(buffer)

    def write(self, buffer: Any) -> int:
        self._position += len(buffer)
        self.size_bytes = max(self.size_bytes, self._position)
        return self.memory.write(buffer)


def _structure(columns: Sequence[Column], content: ShardContent) -> tuple[_HollowFile, int | None]:
    """Return the file with a hole for the payload, and the offset of the hole, None for an empty payload.

    It is made in memory, because the HDF5 library crashes when a disk is full (1.14 and 2.0, on close).
    Signals are deferred, because h5py frees its objects in callbacks, in which Python discards exceptions:
    when small shards were packed, one Ctrl-C in ten had no effect.
    """
    structure = _HollowFile()
    with signals.deferred_signals(), _create(structure) as file:
        payload = content.payload
        begin = None if payload.column is None else _reserve(file, payload)
        if begin is not None:
            structure.leave_out(begin, payload.size_bytes)
        _add(file, IDENTITY_NAME, np.frombuffer(content.identity, np.uint8))
        if payload.column is not None:
            _add(file, f"{payload.column}/offsets", payload.offsets)
        for column in columns:
            if not column.ragged:
                _add(file, column.name, content.fixed[column.name])
            elif column.name != payload.column:
                _add(file, f"{column.name}/data", content.ragged[column.name].data)
                _add(file, f"{column.name}/offsets", content.ragged[column.name].offsets)
    return structure, begin


def _create(structure: _HollowFile) -> h5py.File:
    """Create an empty file without creation times, so that equal content gives equal bytes.

    h5py's high-level functions are avoided here and below because their groups record times.
    """
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, structure)
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_V110)
    access.set_alignment(_ALIGNMENT_THRESHOLD, _ALIGNMENT)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    name = repr(structure).encode()  # must differ between open files
    return h5py.File(h5py.h5f.create(name, h5py.h5f.ACC_TRUNC, creation, access))


def _add(file: h5py.File, name: str, array: Array) -> None:
    _make_groups(file, name)
    file[name] = array


def _make_groups(file: h5py.File, name: str) -> None:
    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    for parent in reversed(PurePosixPath(name).parents[:-1]):
        if str(parent) not in file:
            h5py.h5g.create(file.id, str(parent).encode(), None, creation)


def _reserve(file: h5py.File, payload: Payload) -> int | None:
    """Create the payload's dataset without writing it, and return its offset, None if it is empty."""
    name = f"{payload.column}/data"
    shape: tuple[int, ...] = (payload.size_bytes,)
    if payload.row_shape is not None:
        shape = (len(payload.offsets) - 1, *payload.row_shape)
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_obj_track_times(False)
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    _make_groups(file, name)
    space = h5py.h5s.create_simple(shape)
    dataset = h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_U8LE, space, creation)
    found: int | None = dataset.get_offset()
    return found


class Hdf5Reader:
    """Reader of one HDF5 shard: all arrays are read-only views of the mapped file."""

    is_ranged: ClassVar[bool] = False

    def __init__(self, path: Path, columns: Sequence[Column], entry: ShardEntry) -> None:
        with opening(path, entry) as self.stamp, h5py.File(path, "r", locking=False) as file:
            mapping = map_file(path)
            self._view_identity(file, mapping)
            require_identity(path, self.identity(), entry)
            self._view_columns(file, mapping, columns, entry)

    def _view_identity(self, file: h5py.File, mapping: Buffer) -> None:
        identity = _view_of(file, mapping, IDENTITY_NAME, np.dtype(np.uint8))
        _require_shape(IDENTITY_NAME, identity, (IDENTITY_BYTES,))
        self._identity = identity.data

    def _view_columns(
        self, file: h5py.File, mapping: Buffer, columns: Sequence[Column], entry: ShardEntry
    ) -> None:
        self.count = entry.records
        self._fixed: dict[str, Array] = {}
        self._fixed_bytes: dict[str, ByteArray] = {}
        self._ragged: dict[str, tuple[ByteArray, memoryview, int]] = {}
        for column in columns:
            self._add(file, mapping, column)
        self._checksummed: list[tuple[ByteArray, memoryview | None, int]] = [
            self._ragged.get(column.name) or (self._fixed_bytes[column.name], None, 0)
            for column in columns
            if column != CRC32C
        ]

    def _add(self, file: h5py.File, mapping: Buffer, column: Column) -> None:
        if not column.ragged:
            array = _view_of(file, mapping, column.name, column.numpy_dtype)
            _require_shape(column.name, array, (self.count, *column.shape))
            self._fixed[column.name] = array
            self._fixed_bytes[column.name] = array.reshape(-1).view(np.uint8).reshape(self.count, -1)
            return
        data = _view_of(file, mapping, f"{column.name}/data", column.numpy_dtype)
        offsets = _view_of(file, mapping, f"{column.name}/offsets", np.dtype("<u8"))
        _require_shape(f"{column.name}/offsets", offsets, (self.count + 1,))
        is_pixels = column.dtype == "uint8" and data.ndim == 4 and len(data) == self.count
        if not is_pixels:
            _require_shape(f"{column.name}/data", data, (len(data), *column.shape))
        # A memoryview yields plain integers twice as fast as an array yields NumPy's.
        self._ragged[column.name] = (
            data.reshape(-1).view(np.uint8),
            offsets.data.cast("B").cast("Q"),
            column.row_bytes,
        )

    def identity(self) -> bytes:
        """Return the identity that the file states."""
        return bytes(self._identity)

    def row(self, column: str, index: int) -> ByteArray:
        """Return the bytes of a value, as a view."""
        ragged = self._ragged.get(column)
        if ragged is None:
            return self._fixed_bytes[column][index]  # type: ignore[no-any-return]
        data, offsets, row_bytes = ragged
        return data[offsets[index] * row_bytes : offsets[index + 1] * row_bytes]

    def rows(self, index: int) -> list[ByteArray]:
        """Return the bytes of all values of a record, as views."""
        # Inlined, because it runs for every record: a call of row() for each column takes twice as long.
        return [
            data[index] if offsets is None else data[offsets[index] * size : offsets[index + 1] * size]
            for data, offsets, size in self._checksummed
        ]

    def location(self, column: str, index: int) -> ByteArray:
        """Return a view of the bytes, without reading them."""
        return self.row(column, index)

    def fixed(self, column: str, rows: NDArray[np.int64] | None = None) -> Array:
        """Return the values of a column of fixed size."""
        values = self._fixed[column]
        return values if rows is None else values[rows]

    def stack(self, column: str, indices: NDArray[np.int64]) -> tuple[ByteArray, NDArray[np.int64]] | None:
        """Return a view of the mapped file; also None if an earlier record has another size."""
        data, offsets, row_bytes = self._ragged[column]
        bounds = np.frombuffer(offsets, np.uint64)
        size = int(bounds[1])
        last = int(indices.max(initial=0)) + 1
        if last * size * row_bytes > data.size:
            return None
        if (bounds[indices] != indices * size).any() or (bounds[indices + 1] != (indices + 1) * size).any():
            return None
        return data[: last * size * row_bytes].reshape(last, size * row_bytes), indices


def _view_of(file: h5py.File, mapping: Buffer, name: str, dtype: np.dtype[np.generic]) -> Array:
    """Return a dataset as a read-only view of the mapped file; raise ValueError if it is not as specified.

    h5py's own functions for low-level access take 0.4 ms for the columns of a shard, its classes 1.5 ms.
    """
    for part in accumulate(name.split("/"), "{}/{}".format):
        try:
            link = file.id.links.get_info(part.encode())
        except (KeyError, RuntimeError) as error:  # depends on the release
            raise ValueError(f"{name} must be in this file, there is no {part}") from error
        if link.type != h5py.h5l.TYPE_HARD:  # it could lead to another file, which would be opened
            raise ValueError(f"{name} must be in this file, {part} is a link")
    dataset = h5py.h5o.open(file.id, name.encode())
    if not isinstance(dataset, h5py.h5d.DatasetID):
        raise ValueError(f"{name} must be a dataset, it is a group or a type")
    layout = dataset.get_create_plist()
    is_contiguous = layout.get_layout() == h5py.h5d.CONTIGUOUS and not layout.get_external_count()
    if dataset.dtype != dtype or not is_contiguous:
        raise ValueError(f"dataset {name} must be contiguous {dtype} in this file, it is {dataset.dtype}")
    space = dataset.get_space()
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        raise ValueError(f"dataset {name} must have a shape, it is empty")
    shape = space.get_simple_extent_dims()
    if 0 in shape:
        return np.empty(shape, dtype)
    offset = dataset.get_offset()
    if offset is None:
        raise ValueError(f"dataset {name} has no storage in the file")
    array: Array = np.frombuffer(mapping, dtype, math.prod(shape), offset).reshape(shape)
    return array


def _require_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"dataset {name} must have the shape {shape}, it has {array.shape}")
