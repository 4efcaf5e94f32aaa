"""LMDB shards: one file each, read without locks.

A fixed column is one value under its name, the array of all records; a ragged column has a value for every
record, under `NAME/00000042`; `records` holds the number of records in decimal, and `shard-identity` the
shard's identity.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import lmdb
import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError
from fastload.shards.container import (
    IDENTITY_NAME,
    ByteArray,
    ShardContent,
    ShardEntry,
    ShardWriter,
    opening,
    require_identity,
)
from fastload.shards.schema import CRC32C, Column

_COUNT_KEY = b"records"
_IDENTITY_KEY = IDENTITY_NAME.encode()
# Room for the tree itself: a leaf and branch entry for each value, a page of slack for each large one.
_PAGE_BYTES = 4096
_COMMIT_BYTES = 64 << 20

# A disk with less free space than this, on which a write has just failed, is considered full.
_FULL_BYTES = 1 << 20


def _row_key(column: str, index: int) -> bytes:
    return b"%s/%08d" % (column.encode(), index)


def write(path: Path, columns: Sequence[Column], content: ShardContent) -> None:
    """Write a shard; see `ShardWriter`."""
    draft = path.with_name(path.name + ".draft")
    draft.unlink(missing_ok=True)
    size = content.payload.size_bytes
    with content.payload.path.open("rb") as file:
        payload = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        try:
            # LMDB needs an upper bound of the file's size beforehand, and stores it in the file.
            stored = size + sum(array.nbytes for array in content.fixed.values())
            stored += sum(ragged.data.nbytes for ragged in content.ragged.values())
            most = int(2 * stored + (content.count + 16) * (len(columns) + 1) * _PAGE_BYTES)
            _write_sorted(draft, _items(columns, content, payload), most)
        except lmdb.Error as error:
            # LMDB does not always report that the disk is full.
            number = errno.ENOSPC if shutil.disk_usage(path.parent).free < _FULL_BYTES else errno.EIO
            raise OSError(number, f"{os.strerror(number)}: {error}", str(draft)) from error
    os.replace(draft, path)


WRITER = ShardWriter(".lmdb", 0, write)


def _items(
    columns: Sequence[Column], content: ShardContent, payload: mmap.mmap | bytes
) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Yield every key and value in the order of the keys: LMDB appends sorted keys without searching."""
    parts: dict[bytes, Iterable[tuple[bytes, bytes | memoryview]]] = {
        _COUNT_KEY: [(_COUNT_KEY, b"%d" % content.count)],
        _IDENTITY_KEY: [(_IDENTITY_KEY, content.identity)],
    }
    for column in columns:
        name = column.name.encode()
        if not column.ragged:
            parts[name] = [(name, content.fixed[column.name].tobytes())]
            continue
        if column.name == content.payload.column:
            data, begins = memoryview(payload), content.payload.offsets
        else:
            ragged = content.ragged[column.name]
            data = np.ascontiguousarray(ragged.data).reshape(-1).view(np.uint8).data
            begins = ragged.offsets * np.uint64(column.row_bytes)
        # "image/00000000" sorts between "image" and "image/grid".
        parts[name + b"/0"] = _ragged_items(column.name, data, begins.tolist())
    for key in sorted(parts):
        yield from parts[key]


def _ragged_items(name: str, data: memoryview, begins: list[int]) -> Iterator[tuple[bytes, memoryview]]:
    for index, (begin, end) in enumerate(pairwise(begins)):
        yield _row_key(name, index), data[begin:end]


def _write_sorted(path: Path, items: Iterator[tuple[bytes, bytes | memoryview]], map_size: int) -> None:
    """Append sorted items to a new file, in transactions of bounded size."""
    with lmdb.open(
        str(path), map_size=map_size, subdir=False, lock=False, sync=False, metasync=False
    ) as environment:
        transaction = environment.begin(write=True)
        pending = 0
        for key, value in items:
            transaction.put(key, value, append=True)
            pending += len(value)
            if pending >= _COMMIT_BYTES:
                transaction.commit()
                transaction = environment.begin(write=True)
                pending = 0
        transaction.commit()
        extent = _extent_bytes(environment)
    if path.stat().st_size < extent:  # the last pages may be unused, and were then never written
        os.truncate(path, extent)


def _extent_bytes(environment: lmdb.Environment) -> int:
    """Return the size that the file must have to hold all pages of the tree."""
    return int((environment.info()["last_pgno"] + 1) * environment.stat()["psize"])


class _Environment:
    """An open file and its read transaction, shared by all readers of the file.

    LMDB forbids opening a file twice in one process, and two datasets of one path are common. `identity` is a
    view of the shard's identity in the file, safe to read even if the tree is overwritten.
    """

    def __init__(self, path: str) -> None:
        self._lmdb = lmdb.open(path, subdir=False, readonly=True, lock=False, create=False, readahead=False)
        size = os.stat(path).st_size
        if (extent := _extent_bytes(self._lmdb)) > size:  # accessing a missing page would kill the process
            self._lmdb.close()
            raise ValueError(f"its pages must extend to {extent:,} bytes, it has {size:,}")
        self._transaction = self._lmdb.begin(buffers=True)
        # The values are valid while the environment is open.
        self.get: Callable[[bytes], memoryview | None] = self._transaction.get
        self.identity = self.get(_IDENTITY_KEY) or memoryview(b"")

    def close(self) -> None:
        self._transaction.abort()
        self._lmdb.close()


# Keyed by device and inode, not by path: a dataset may be replaced while the old one is still being read.
_environments: weakref.WeakValueDictionary[tuple[int, int], _Environment] = weakref.WeakValueDictionary()
_readers: weakref.WeakSet[LmdbReader] = weakref.WeakSet()
_open_lock = threading.Lock()


class LmdbReader:
    """Reader of one LMDB shard.

    The file is reopened in each process: LMDB's environments must not cross a fork. Rows are copies: LMDB's
    own buffers end with their environment, and using them later would crash the process.
    """

    is_ranged: ClassVar[bool] = False

    def __init__(self, path: Path, columns: Sequence[Column], entry: ShardEntry) -> None:
        self.count = entry.records
        self._path = path
        self._columns = columns
        self._entry = entry
        self._environment: _Environment | None = None
        self._fixed: dict[str, NDArray[np.generic]] = {}
        self._checksummed: list[tuple[ByteArray | None, bytes]] = []
        self._opened()
        _readers.add(self)

    def _opened(self) -> _Environment:
        """Return the environment, which is opened on the first call in a process."""
        if self._environment is not None:
            return self._environment
        with opening(self._path, self._entry) as self.stamp:
            place = self.stamp.device, self.stamp.inode
            with _open_lock:
                environment = _environments.get(place) or _Environment(str(self._path))
                _environments[place] = environment
            # Checked before anything else: the tree of an overwritten file may point anywhere.
            require_identity(self._path, bytes(environment.identity), self._entry)
            if bytes(environment.get(_COUNT_KEY) or b"") != b"%d" % self.count:
                raise ValueError(f"key {_COUNT_KEY.decode()} must hold {self.count}")
            fixed_bytes: dict[str, ByteArray] = {}
            for column in self._columns:
                if not column.ragged:
                    value = environment.get(column.name.encode())
                    if value is None or len(value) != self.count * column.row_bytes:
                        raise ValueError(f"key {column.name} must hold {self.count} rows")
                    rows = np.frombuffer(value, np.uint8).reshape(self.count, -1)
                    fixed_bytes[column.name] = rows
                    shape = self.count, *column.shape
                    self._fixed[column.name] = rows.view(column.numpy_dtype).reshape(shape)
        self._checksummed = [
            (fixed_bytes.get(column.name), column.name.encode() + b"/")
            for column in self._columns
            if column != CRC32C
        ]
        self._environment = environment
        return environment

    def identity(self) -> bytes:
        """Return the identity that the file states."""
        return bytes((self._environment or self._opened()).identity)

    def row(self, column: str, index: int) -> bytes:
        """Return the bytes of a value."""
        environment = self._environment or self._opened()
        fixed = self._fixed.get(column)
        if fixed is not None:
            return fixed[index].tobytes()  # type: ignore[no-any-return]
        try:
            value = environment.get(_row_key(column, index))
        except lmdb.Error as error:
            raise DamageError(f"{self._path}, record {index} of the shard: {error}") from error
        if value is None:
            raise DamageError(f"{self._path}: key {column}/{index:08d} is missing")
        return bytes(value)

    def rows(self, index: int) -> list[bytes | ByteArray]:
        """Return the bytes of all values of a record."""
        # Inlined, because it runs for every record: a call of row() for each column takes 1.5 times as long.
        environment = self._environment or self._opened()
        number = b"%08d" % index
        try:
            return [
                fixed[index] if fixed is not None else bytes(environment.get(prefix + number))  # type: ignore[arg-type]
                for fixed, prefix in self._checksummed
            ]
        except (TypeError, lmdb.Error) as error:
            raise DamageError(
                f"{self._path}, record {index} of the shard: a value is missing ({error})"
            ) from error

    def location(self, column: str, index: int) -> ByteArray:
        """Return a view of the bytes, without reading them."""
        environment = self._environment or self._opened()
        return np.frombuffer(environment.get(_row_key(column, index)) or b"", np.uint8)

    def fixed(self, column: str, rows: NDArray[np.int64] | None = None) -> NDArray[np.generic]:
        """Return the values of a column of fixed size."""
        self._opened()
        values: NDArray[np.generic] = self._fixed[column]
        return values.copy() if rows is None else values[rows]

    def stack(self, column: str, indices: NDArray[np.int64]) -> tuple[ByteArray, NDArray[np.int64]] | None:
        """Return equally long values in one array, and their offsets; None if their lengths differ."""
        values = [self.row(column, index) for index in indices.tolist()]
        if len({len(value) for value in values}) != 1:
            return None
        stored = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)
        return stored, np.arange(len(values))

    def detach(self) -> None:
        """Release the file until the next read."""
        self._fixed, self._checksummed = {}, []
        self._environment = None


def _close_after_fork() -> None:
    """Close the parent's open files in a forked child, which reopens them when it reads."""
    global _open_lock
    _open_lock = threading.Lock()  # may have been held by a thread that does not exist in the child
    for reader in list(_readers):
        reader.detach()
    for environment in list(_environments.values()):
        environment.close()
    _environments.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_close_after_fork)
