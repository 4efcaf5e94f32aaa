"""Reading records of a packed dataset: from an index to checked bytes.

Opening reads the manifest alone. Shards are opened when a record of theirs is first asked for, in
each process by itself, and no more of them at once than the process may have descriptors. That a shard
is the one listed is seen by its identity, which every record's checksum is bound to.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError, FormatError, OptionError, RecordIndexError
from fastload.shards.checksum import array_crc32c, binding, mask, record_crc32c
from fastload.shards.container import Bytes, ShardReader, open_shard
from fastload.shards.files import stamp_of, unreadable
from fastload.shards.manifest import read_manifest
from fastload.shards.openings import most_open, opened
from fastload.shards.record import Record as Record
from fastload.shards.record import value_reader as value_reader
from fastload.shards.schema import CRC32C

Verify = Literal["always", "once", "never"]


class _Part(NamedTuple):
    """The records of a batch that lie in one shard: where in the batch, and which rows of the shard."""

    shard: ShardReader
    positions: NDArray[np.int64]
    rows: NDArray[np.int64]


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
        self._identities = [bytes.fromhex(shard.identity) for shard in manifest.shards]
        self._bindings = list(map(binding, self._identities))
        self._open: dict[int, ShardReader] = {}
        self._epoch: tuple[int, int] | None = None
        self._unseen: set[int] = set()
        # One byte a record, by the kernel only where touched. Shared memory, so that what one of several
        # forked workers has checked is not checked again by the next epoch's.
        try:
            memory = mmap.mmap(-1, max(1, self._count))
        except (OSError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{self.folder}: says that it has {self._count:,} records, for which there is no memory "
                f"({error}): do not trust this dataset"
            ) from error
        self._checked = np.frombuffer(memory, np.uint8)

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
            raise RecordIndexError(
                f"{self.folder}: index {index} is out of range for {self._count:,} records"
            )
        number = bisect_right(self._ends, index)
        shard = self._shard(number)
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
        if len(self._ends) > most_open(self.manifest.container):
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
            if self._unseen:
                self._parts(indices)  # what was checked in a file that was written to since is not
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
        crc = "" if self.verify == "never" else array_crc32c(array, self._bindings[number])
        if crc and crc != entry.columns.get(name):
            raise DamageError(
                f"{self.folder / entry.file}, column {name}: checksum is {crc}, the manifest says "
                f"{entry.columns.get(name)}: the file was damaged after packing. "
                f"'fastload verify {self.folder}' lists every damaged record"
            )
        return array

    def begin_epoch(self, seed: int) -> None:
        """Has every open shard be looked at before it is read again: is it still the file that was opened?

        Args:
            seed: Of the epoch; one that this process has had last changes nothing.
        """
        epoch = seed, os.getpid()
        if epoch != self._epoch:
            self._epoch = epoch
            self._unseen = set(self._open)

    def _shard(self, number: int) -> ShardReader:
        if number in self._unseen:
            self._look_at(number)
        shard = self._open.get(number) or self._open_number(number)
        # A file that is written over in place changes under the mapping. Looking costs 0.1 µs.
        return shard if shard.identity() == self._identities[number] else self._open_anew(number)

    def _look_at(self, number: int) -> None:
        """Opens a shard anew, and has its records checked anew, if it is another file or was written to."""
        path = self.folder / self.manifest.shards[number].file
        shard = self._open.get(number)
        try:
            is_same = shard is None or stamp_of(path) == shard.stamp
        except OSError as error:
            raise unreadable(path, error) from error
        if shard is not None and not is_same:
            end = self._ends[number]
            self._checked[end - shard.count : end] = 0
            self._open_anew(number)
        self._unseen.discard(number)

    def _open_anew(self, number: int) -> ShardReader:
        self.let_go(number)
        return self._open_number(number)

    def _open_number(self, number: int) -> ShardReader:
        entry, container = self.manifest.shards[number], self.manifest.container
        path, columns = self.folder / entry.file, (*self._columns, CRC32C)
        shard = opened(self, number, container, lambda: open_shard(container, path, columns, entry))
        self._open[number] = shard
        return shard

    def _check(self, number: int, shard: ShardReader, row: int, index: int) -> None:
        if self._checked[index] and self.verify == "once":
            return
        crc = record_crc32c(shard.rows(row)) ^ mask(self._bindings[number], row)
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
