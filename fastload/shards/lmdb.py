"""Shards as LMDB files: one file each, read without locks.

The keys: a fixed column is one value under its name, its array of all records; a ragged column has a
value for every record, under `NAME/00000042`; `records` holds the number of records in decimal, and
`shard-identity` what tells the shard from every other.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lmdb
import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError
from fastload.shards.container import (
    IDENTITY_NAME,
    Bytes,
    Ragged,
    ShardContent,
    opening,
    require_identity,
    write_error,
)
from fastload.shards.entries import ShardEntry
from fastload.shards.files import Stamp
from fastload.shards.readahead import fetch_ahead, is_resident
from fastload.shards.schema import CRC32C, Column

_COUNT_KEY = b"records"
_IDENTITY_KEY = IDENTITY_NAME.encode()
# Room for the tree itself: a leaf and branch entry for each value, a page of slack for each large one.
_PAGE_BYTES = 4096
_COMMIT_BYTES = 64 << 20


def _row_key(column: str, index: int) -> bytes:
    return b"%s/%08d" % (column.encode(), index)


class LmdbWriter:
    """Writes LMDB shards."""

    suffix: ClassVar[str] = ".lmdb"
    payload_offset: ClassVar[int] = 0

    @staticmethod
    def write(path: Path, columns: Sequence[Column], content: ShardContent) -> None:
        """Writes one shard; see `ShardWriter.write`."""
        draft = path.with_name(path.name + ".draft")
        draft.unlink(missing_ok=True)
        size = content.payload.size_bytes
        with content.payload.path.open("rb") as file:
            payload = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
            try:
                _write_sorted(draft, _items(columns, content, payload), _map_size(columns, content))
            except lmdb.Error as error:
                raise write_error(draft, error) from error
        os.replace(draft, path)


def _map_size(columns: Sequence[Column], content: ShardContent) -> int:
    """An upper bound of the file's size: LMDB wants it beforehand, and keeps it in the file."""
    stored = content.payload.size_bytes
    stored += sum(array.nbytes for array in content.fixed.values())
    stored += sum(ragged.data.nbytes for ragged in content.ragged.values())
    return int(2 * stored + (content.count + 16) * (len(columns) + 1) * _PAGE_BYTES)


def _items(
    columns: Sequence[Column], content: ShardContent, payload: mmap.mmap | bytes
) -> Iterator[tuple[bytes, Any]]:
    """Every key and value, in the order of the keys: LMDB appends sorted keys without searching."""
    whole = memoryview(payload)
    names = {_COUNT_KEY: None, _IDENTITY_KEY: None} | {column.name.encode(): column for column in columns}
    # A ragged column's keys are its name and "/", which sorts before any letter or digit in a longer
    # name but behind the name itself; "image/00000000" comes before "image/grid" as digits do.
    entries: list[tuple[bytes, Column | None]] = []
    for name, column in names.items():
        entries.append((name + b"/0" if column is not None and column.ragged else name, column))
    own = {_COUNT_KEY: b"%d" % content.count, _IDENTITY_KEY: content.identity}
    for key, column in sorted(entries, key=lambda entry: entry[0]):
        if column is None:
            yield key, own[key]
        elif not column.ragged:
            yield column.name.encode(), content.fixed[column.name].tobytes()
        elif column.name == content.payload.column:
            begins = content.payload.offsets.tolist()
            for index in range(content.count):
                yield _row_key(column.name, index), whole[begins[index] : begins[index + 1]]
        else:
            yield from _ragged_items(column, content.ragged[column.name])


def _ragged_items(column: Column, ragged: Ragged) -> Iterator[tuple[bytes, Any]]:
    data = np.ascontiguousarray(ragged.data).reshape(-1).view(np.uint8).data
    begins = (ragged.offsets * np.uint64(column.row_bytes)).tolist()
    for index in range(len(begins) - 1):
        yield _row_key(column.name, index), data[begins[index] : begins[index + 1]]


def _write_sorted(path: Path, items: Iterator[tuple[bytes, Any]], map_size: int) -> None:
    """Appends sorted items to a new file, in transactions of bounded size."""
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
        reach = _reach_bytes(environment)
    if path.stat().st_size < reach:  # the last pages may be unused, and were then never written
        os.truncate(path, reach)


def _reach_bytes(environment: lmdb.Environment) -> int:
    """Return the size of all pages that a tree may have."""
    return int((environment.info()["last_pgno"] + 1) * environment.stat()["psize"])


class _Environment:
    """An open file and the one transaction that reads it; all readers of the file share it.

    LMDB forbids to open a file twice in one process, and two datasets of one path are common.

    Attributes:
        identity: The identity of the shard, where it lies in the file: looking there is safe whatever has
            become of the tree.
    """

    def __init__(self, path: str) -> None:
        self._lmdb = lmdb.open(path, subdir=False, readonly=True, lock=False, create=False, readahead=False)
        size = os.stat(path).st_size
        if (reach := _reach_bytes(self._lmdb)) > size:  # to look for what is not there would end the process
            self._lmdb.close()
            raise ValueError(f"its pages must reach to {reach:,} bytes, it has {size:,}")
        self._transaction = self._lmdb.begin(buffers=True)
        self.identity = self.get(_IDENTITY_KEY) or memoryview(b"")

    def get(self, key: bytes) -> memoryview | None:
        """The value of a key, None where there is none; valid while the environment is open."""
        value: memoryview | None = self._transaction.get(key)
        return value

    def close(self) -> None:
        self._transaction.abort()
        self._lmdb.close()


# By device and inode, not by path: a dataset may be replaced while the old one is still being read.
_environments: weakref.WeakValueDictionary[tuple[int, int], _Environment] = weakref.WeakValueDictionary()
_readers: weakref.WeakSet[LmdbReader] = weakref.WeakSet()
_opening = threading.Lock()


def _environment(path: Path, stamp: Stamp) -> _Environment:
    place = stamp.device, stamp.inode
    with _opening:
        environment = _environments.get(place)
        if environment is None:
            environment = _environments[place] = _Environment(str(path))
        return environment


class LmdbReader:
    """Reads one LMDB shard.

    The file is opened anew in each process: LMDB's environments must not cross a fork. Rows are
    copies: what LMDB hands out itself ends with its environment, and would crash whoever kept it.

    Args:
        path: The shard.
        columns: The columns that it must hold.
        entry: What the manifest says of it.

    Raises:
        AccessError: This process may not read the file, or has too many files open.
        DamageError: The file is missing, is no LMDB file, lacks a column or is another shard.
    """

    def __init__(self, path: Path, columns: Sequence[Column], entry: ShardEntry) -> None:
        self.count = entry.records
        self._path = path
        self._columns = columns
        self._entry = entry
        self._environment: _Environment | None = None
        self._fixed: dict[str, NDArray[Any]] = {}
        self._checksummed: list[tuple[Bytes | None, bytes]] = []
        self._open()
        _readers.add(self)

    def _open(self) -> _Environment:
        with opening(self._path, self._entry, "an LMDB") as self.stamp:
            environment = _environment(self._path, self.stamp)
            # First of all: of a file that was written over while it is open here, the tree leads anywhere.
            require_identity(self._path, bytes(environment.identity), self._entry)
            if bytes(environment.get(_COUNT_KEY) or b"") != b"%d" % self.count:
                raise ValueError(f"key {_COUNT_KEY.decode()} must say {self.count}")
            for column in self._columns:
                if not column.ragged:
                    self._fixed[column.name] = self._mapped(environment, column)
        self._environment = environment
        self._checksummed = [
            (self._bytes_of(column), column.name.encode() + b"/")
            for column in self._columns
            if column != CRC32C
        ]
        return environment

    def identity(self) -> bytes:
        """The identity that the file holds now."""
        return bytes((self._environment or self._open()).identity)

    def _bytes_of(self, column: Column) -> Bytes | None:
        fixed = self._fixed.get(column.name)
        return None if fixed is None else fixed.reshape(-1).view(np.uint8).reshape(self.count, -1)

    def _mapped(self, environment: _Environment, column: Column) -> NDArray[Any]:
        value = environment.get(column.name.encode())
        if value is None or len(value) != self.count * column.row_bytes:
            raise ValueError(f"key {column.name} must hold {self.count} rows")
        rows: NDArray[Any] = np.frombuffer(value, column.numpy_dtype).reshape(self.count, *column.shape)
        return rows

    def row(self, column: str, index: int) -> bytes:
        """The stored bytes of one record in one column: a copy."""
        environment = self._environment or self._open()
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

    def rows(self, index: int) -> list[bytes | Bytes]:
        """The stored bytes of one record in all columns that its checksum reads, in their order."""
        # Written out, because it runs for every record: a call of row() a column takes 1.5 times as long.
        environment = self._environment or self._open()
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

    def fixed(self, column: str) -> NDArray[Any]:
        """A whole fixed column: a copy."""
        if self._environment is None:
            self._open()
        rows: NDArray[Any] = self._fixed[column].copy()
        return rows

    def taken(self, column: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Some records' rows of a fixed column, (indices, *row shape), a copy."""
        if self._environment is None:
            self._open()
        rows: NDArray[Any] = self._fixed[column][indices]
        return rows

    def stacked(self, column: str, indices: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """Some records' stored bytes in a ragged column, where they have one size; None where sizes differ.

        Returns:
            (indices, size), a copy, and the rows in their order.
        """
        values = [self.row(column, index) for index in indices.tolist()]
        if len({len(value) for value in values}) != 1:
            return None
        stored = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)
        return stored, np.arange(len(values))

    def is_resident(self, column: str, index: int) -> bool:
        """Whether one record's bytes of a ragged column can be read without waiting for the disk."""
        return is_resident(self._stretch(column, index))

    def prefetch(self, column: str, indices: NDArray[np.int64]) -> None:
        """Has the system fetch some records' bytes of a ragged column from the disk, and does not wait."""
        fetch_ahead(self._stretch(column, index) for index in indices.tolist())

    def _stretch(self, column: str, index: int) -> Bytes:
        """A row where it lies in the file, not to be kept."""
        environment = self._environment or self._open()
        return np.frombuffer(environment.get(_row_key(column, index)) or b"", np.uint8)

    def leave(self) -> None:
        """Lets go of the file until the next read."""
        self._fixed, self._checksummed = {}, []
        self._environment = None


def _leave_all() -> None:
    """In a forked child: closes what the parent had open, to be opened anew when it is read."""
    global _opening
    _opening = threading.Lock()  # another thread may have held it, and that thread is not here
    for reader in list(_readers):
        reader.leave()
    for environment in list(_environments.values()):
        environment.close()
    _environments.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
