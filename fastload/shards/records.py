"""Reading records of a packed dataset: from an index to checked bytes.

Opening reads the manifest alone. Shards are opened when a record of theirs is first asked for, in
each process by itself, and no more of them at once than the process may have descriptors.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError, OptionError, RecordIndexError
from fastload.shards.checksum import array_crc32c, record_crc32c
from fastload.shards.container import Bytes, ShardReader, open_shard
from fastload.shards.manifest import read_manifest
from fastload.shards.schema import CRC32C, Field

Verify = Literal["always", "once", "never"]

_SHAPE = struct.Struct("<3I")
_STRUCT_CODES = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d", "bool": "?",
}  # fmt: skip

_ValueReaders = dict[str, Callable[[Any], Any]]  # from bytes or an array of them

# Where nothing says how many descriptors a process may have (Windows): well below its 512.
_FALLBACK_OPEN_SHARDS = 256


class Record:
    """One stored record. Its parts are read when they are asked for.

    Attributes:
        index: Its number in the dataset.
    """

    __slots__ = ("_row", "_shard", "_values", "index")

    def __init__(self, index: int, shard: ShardReader, row: int, values: _ValueReaders) -> None:
        self.index = index
        self._shard = shard
        self._row = row
        self._values = values

    @property
    def key(self) -> str:
        """Its path relative to the source it was packed from."""
        return os.fsdecode(bytes(self._shard.row("key", self._row)))

    def stored(self, column: str) -> bytes | Bytes:
        """The stored bytes of one column, read-only: for an image, the encoded bytes."""
        return self._shard.row(column, self._row)

    def image_shape(self, name: str = "image") -> tuple[int, int, int]:
        """(height, width, channels) of an image field as stored; zeros where it cannot be read."""
        stored: Any = self._shard.row(f"{name}/shape", self._row)
        height, width, channels = _SHAPE.unpack(stored)
        return height, width, channels

    def __getitem__(self, name: str) -> Any:
        """The value of a field: a number, an array, a str, or bytes; of an image, its encoded bytes."""
        return self._values[name](self._shard.row(name, self._row))


class _Part(NamedTuple):
    """The records of a batch that lie in one shard: where in the batch, and which rows of the shard."""

    shard: ShardReader
    positions: NDArray[np.int64]
    rows: NDArray[np.int64]


def value_reader(field: Field) -> Callable[[Any], Any]:
    """What turns a field's stored bytes into its value; made once, because it runs for every record."""
    if field.kind in ("image", "bytes"):
        return bytes
    if field.kind == "text":
        return lambda stored: bytes(stored).decode("utf-8", "surrogateescape")
    dtype = field.columns()[0].numpy_dtype
    if field.kind == "scalar":
        # Six times as fast as by way of a NumPy array of one.
        unpack = struct.Struct("<" + _STRUCT_CODES[field.dtype]).unpack
        return lambda stored: unpack(stored)[0]
    shape = field.shape if field.kind == "vector" else (-1, *field.shape)
    return lambda stored: np.frombuffer(stored, dtype).reshape(shape)


class RecordReader:
    """The records of one packed dataset, by index.

    Args:
        folder: The packed dataset.
        verify: When a record's checksum is checked: `once` for each record and process, `always`,
            or `never`.

    Raises:
        FormatError: The folder holds no packed dataset, or one that cannot be read.
        OptionError: `verify` is none of the three.
    """

    def __init__(self, folder: str | os.PathLike[str], verify: Verify = "once") -> None:
        if verify not in get_args(Verify):
            raise OptionError(f"verify must be always, once or never, got {verify!r}")
        # Absolute, so that a later change of the working folder changes nothing.
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.verify = verify
        self.manifest = read_manifest(self.folder)
        self._prepare()

    def _prepare(self) -> None:
        manifest = self.manifest
        self._columns = manifest.columns
        self._values = {field.name: value_reader(field) for field in manifest.fields}
        self._ends = list(accumulate(shard.records for shard in manifest.shards))
        self._count = manifest.records
        self._open: dict[int, ShardReader] = {}
        # One byte a record, by the kernel only where touched. Shared memory, so that what one of several
        # forked workers has checked is not checked again by the next epoch's.
        self._checked = np.frombuffer(mmap.mmap(-1, max(1, self._count)), np.uint8)

    def __len__(self) -> int:
        return self._count

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "verify": self.verify, "manifest": self.manifest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def read(self, index: int) -> Record:
        """The record at `index`, its checksum checked as `verify` says.

        Args:
            index: 0 … len - 1.

        Raises:
            RecordIndexError: There is no such record.
            DamageError: The record's bytes differ from what its checksum says, or its shard is
                missing or damaged.
        """
        if not 0 <= index < self._count:
            raise RecordIndexError(f"{self.folder}: index {index} is out of range for {self._count} records")
        number = bisect_right(self._ends, index)
        shard = self._open.get(number) or self._open_number(number)
        row = index - (self._ends[number - 1] if number else 0)
        if self.verify != "never":
            self._check(number, shard, row, index)
        return Record(index, shard, row, self._values)

    def read_checked(self, index: int) -> Record:
        """The record at an index that lies in range and was given to `check` before.

        Raises:
            DamageError: Its shard is missing or damaged.
        """
        number = bisect_right(self._ends, index)
        shard = self._open.get(number) or self._open_number(number)
        return Record(index, shard, index - (self._ends[number - 1] if number else 0), self._values)

    def taken(self, name: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Some records' rows of a fixed column, unchecked: (indices, *row shape), a copy.

        Args:
            name: Of the column.
            indices: 0 … len - 1.

        Raises:
            DamageError: A shard is missing or damaged.
        """
        parts = self._parts(indices)
        if len(parts) == 1:
            return parts[0].shard.taken(name, parts[0].rows)
        column = next(column for column in self._columns if column.name == name)
        values = np.empty((len(indices), *column.shape), column.numpy_dtype)
        for part in parts:
            values[part.positions] = part.shard.taken(name, part.rows)
        return values

    def stacked(self, name: str, indices: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """Some records' stored bytes in a ragged column, unchecked, where they have one size.

        Args:
            name: Of the column.
            indices: 0 … len - 1.

        Returns:
            Bytes of records, (any number, size), possibly mapped and read-only, and which row is whose;
            None where sizes differ.

        Raises:
            DamageError: A shard is missing or damaged.
        """
        parts = self._parts(indices)
        stacks = [part.shard.stacked(name, part.rows) for part in parts]
        if len(stacks) == 1:
            return stacks[0]
        found = [stack for stack in stacks if stack is not None]
        if len(found) != len(stacks) or len({stored.shape[1] for stored, _ in found}) != 1:
            return None
        values = np.empty((len(indices), found[0][0].shape[1]), np.uint8)
        for part, (stored, rows) in zip(parts, found, strict=True):
            values[part.positions] = stored[rows]
        return values, np.arange(len(indices))

    def prefetch(self, name: str, indices: NDArray[np.int64]) -> None:
        """Has the system fetch some records' bytes in a ragged column from the disk, and does not wait.

        Args:
            name: Of the column.
            indices: 0 … len - 1.

        Raises:
            DamageError: A shard is missing or damaged.
        """
        # With more shards than can be open at once, hints would open and close them in turn.
        if len(self._ends) > _open_shard_limit():
            return
        # Two records tell for all: a hint costs a microsecond, and there may be hundreds in a batch.
        ends = indices[[0, -1]] if len(indices) else indices
        if all(part.shard.is_resident(name, int(row)) for part in self._parts(ends) for row in part.rows):
            return
        for part in self._parts(indices):
            part.shard.prefetch(name, part.rows)

    def check(self, indices: NDArray[np.int64]) -> None:
        """Checks some records as `verify` says.

        Raises:
            DamageError: One differs from what its checksum says, or its shard is missing or damaged.
        """
        if self.verify == "never":
            return
        if self.verify == "once":
            indices = indices[self._checked[indices] == 0]
        for index in indices.tolist():
            self.read(index)

    def _parts(self, indices: NDArray[np.int64]) -> list[_Part]:
        """The records shard by shard."""
        if len(self._ends) == 1:
            return [_Part(self._shard(0), np.arange(len(indices)), indices)]
        numbers = np.searchsorted(np.array(self._ends), indices, side="right")
        parts = []
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            first = self._ends[number - 1] if number else 0
            parts.append(_Part(self._shard(number), positions, indices[positions] - first))
        return parts

    def column(self, name: str) -> NDArray[Any]:
        """The column of a scalar or vector field, of all records: (records, *row shape).

        Checked as a whole against the manifest, unless `verify` is `never`.

        Raises:
            DamageError: A shard is missing, or its column differs from what its checksum says.
        """
        parts = [self._column_of(number, name) for number in range(len(self.manifest.shards))]
        if not parts:
            column = next(column for column in self._columns if column.name == name)
            return np.empty((0, *column.shape), column.numpy_dtype)
        return np.concatenate(parts)

    def is_open(self, number: int) -> bool:
        """Whether shard `number` is open in this process."""
        return number in self._open

    def let_go(self, number: int) -> None:
        """Lets go of a shard, which closes with the last record that is still held; reading opens it anew."""
        self._open.pop(number, None)

    def _column_of(self, number: int, name: str) -> NDArray[Any]:
        entry, array = self.manifest.shards[number], self._shard(number).fixed(name)
        if self.verify != "never" and (crc := array_crc32c(array)) != entry.columns.get(name):
            raise DamageError(
                f"{self.folder / entry.file}, column {name}: checksum is {crc}, the manifest says "
                f"{entry.columns.get(name)}: the file was damaged after packing. "
                f"'fastload verify {self.folder}' lists every damaged record"
            )
        return array

    def _shard(self, number: int) -> ShardReader:
        return self._open.get(number) or self._open_number(number)

    def _open_number(self, number: int) -> ShardReader:
        entry = self.manifest.shards[number]
        path = self.folder / entry.file
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DamageError(
                f"{path}: cannot be read ({error.strerror}): the manifest lists it, "
                "restore it from a copy, or pack again"
            ) from error
        if size != entry.size_bytes:
            raise DamageError(
                f"{path}: its size must be {entry.size_bytes} bytes, it is {size}: "
                "the file was cut or replaced after packing"
            )
        columns = (*self._columns, CRC32C)
        shard = open_shard(self.manifest.container, path, columns, entry.records)
        self._open[number] = shard
        _note_open(self, number)
        return shard

    def _check(self, number: int, shard: ShardReader, row: int, index: int) -> None:
        if self._checked[index] and self.verify == "once":
            return
        crc = record_crc32c(shard.rows(row))
        stored = int.from_bytes(bytes(shard.row("crc32c", row)), "little")
        if crc != stored:
            raise DamageError(self._damage(number, shard, row, index, crc, stored))
        self._checked[index] = 1

    def _damage(self, number: int, shard: ShardReader, row: int, index: int, crc: int, stored: int) -> str:
        key = os.fsdecode(bytes(shard.row("key", row)))
        return (
            f"{self.folder / self.manifest.shards[number].file}, record {index} (key {key!r}): "
            f"checksum is {crc:08x}, the index says {stored:08x}: the file was damaged after packing. "
            f"'fastload verify {self.folder}' lists every such record"
        )


# The shards that readers of this process hold open, oldest first: they share its descriptors.
_open_shards: deque[tuple[weakref.ref[RecordReader], int]] = deque()


def _note_open(reader: RecordReader, number: int) -> None:
    """Takes note of a shard just opened; lets go of the oldest ones where there are too many."""
    while len(_open_shards) >= _open_shard_limit():
        oldest, its_number = _open_shards.popleft()
        if (other := oldest()) is not None:
            other.let_go(its_number)
    _open_shards.append((weakref.ref(reader), number))


def _open_shard_limit() -> int:
    """How many shards a process may keep open: half of its descriptors, where each one takes any."""
    if sys.version_info >= (3, 13):
        return 32_000  # mappings keep no descriptor; the kernel allows 65 530 mappings
    try:
        import resource
    except ImportError:
        return _FALLBACK_OPEN_SHARDS  # Windows
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 2, 1) if soft != resource.RLIM_INFINITY else 32_000
