"""Random access to the records of a packed dataset: from an index to verified bytes.

Opening a dataset reads only the manifest. Each process opens a shard when it first needs a record of it, as
many as its limits of mappings and, in LMDB, of file descriptors allow. A record's checksum covers the
identity of its shard.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError, FormatError, OptionError, RecordIndexError
from fastload.shards.checksum import array_crc32c, identity_crc, record_crc32c, row_mask
from fastload.shards.container import ByteArray, ShardReader, stamp_of, unreadable
from fastload.shards.copies import Copies
from fastload.shards.manifest import read_manifest
from fastload.shards.record import Record, value_reader
from fastload.shards.remote import RemoteFolder, is_url
from fastload.shards.remote_shards import RemoteShards
from fastload.shards.schema import CRC32C, Column
from fastload.shards.shard import can_all_be_open, max_open_shards, open_within_limit
from fastload.system.page_cache import fetch_ahead, is_resident

Verify = Literal["always", "once", "never"]


_ShardBatch = tuple[ShardReader, NDArray[np.int64], NDArray[np.int64]]
"""A shard, the positions in a batch of the records that are in it, and their rows in the shard."""


class RecordReader:
    """The records of one packed dataset, by index; see `PackedDataset` for `verify`.

    The shards of a remote dataset are cached in `cache_folder`, in at most `most_bytes`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | RemoteFolder,
        verify: Verify = "once",
        cache_folder: str | os.PathLike[str] | None = None,
        most_bytes: int | None = None,
    ) -> None:
        if verify not in get_args(Verify):
            raise OptionError(f"verify must be always, once or never, got {verify!r}")
        place = RemoteFolder(str(folder)) if is_url(folder) else folder
        if not isinstance(place, RemoteFolder):
            # Absolute, so that a later change of the working directory has no effect.
            place = Path(os.path.abspath(os.path.expanduser(place)))
        self.folder: Path | RemoteFolder = place
        self.verify = verify
        self._cache = cache_folder, most_bytes
        self.manifest = read_manifest(self.folder)
        self._prepare()

    def _prepare(self) -> None:
        manifest = self.manifest
        self._columns = manifest.columns
        self._values = {field.name: value_reader(field) for field in manifest.fields}
        self._ends = list(accumulate(shard.records for shard in manifest.shards))
        self._count = manifest.records
        self._identities = [bytes.fromhex(shard.identity) for shard in manifest.shards]
        self._identity_crcs = list(map(identity_crc, self._identities))
        self._open: dict[int, ShardReader] = {}
        self._epoch: tuple[int, int] | None = None
        self._recheck: set[int] = set()
        # One byte a record, allocated by the kernel on first write. Shared memory, so that the forked workers
        # of the next epoch do not verify again the records that those of this epoch have verified.
        try:
            memory = mmap.mmap(-1, max(1, self._count))
        except (OSError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{self.folder}: lists {self._count:,} records, more than fit into memory ({error}): "
                "do not trust this dataset"
            ) from error
        self._verified = np.frombuffer(memory, np.uint8)
        self.remote: RemoteShards | None = None
        if isinstance(self.folder, RemoteFolder):
            self.remote = RemoteShards(self.folder, manifest, Copies(self.folder, *self._cache), self._open)

    def __len__(self) -> int:
        return self._count

    def __getstate__(self) -> dict[str, object]:
        names = ("folder", "verify", "manifest", "_cache")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def read(self, index: int) -> Record:
        """Return the record at `index` (0 … len - 1), verified according to `verify`."""
        if not 0 <= index < self._count:
            raise RecordIndexError(
                f"{self.folder}: index {index} is out of range for {self._count:,} records"
            )
        number = bisect_right(self._ends, index)
        if number not in self._open:
            self.fetch(np.array([index]))
        shard = self._shard(number)
        row = index - (self._ends[number - 1] if number else 0)
        if self.verify != "never":
            self._verify(number, shard, row, index)
        return Record(index, shard, row, self._values)

    def read_verified(self, index: int) -> Record:
        """Return a record that passed `verify_records`, by its index."""
        number = bisect_right(self._ends, index)
        shard = self._open.get(number) or self._open_shard(number)
        return Record(index, shard, index - (self._ends[number - 1] if number else 0), self._values)

    def verify_records(self, indices: NDArray[np.int64]) -> None:
        """Verify some records according to `verify`; raise DamageError for the first damaged one.

        Those of a remote dataset are first fetched, all at once.
        """
        self.fetch(indices)
        if self.verify == "never":
            return
        if self.verify == "once":
            if self._recheck:
                self._by_shard(indices)  # clears `_verified` for the records of files that were written to
            indices = indices[self._verified[indices] == 0]
        for index in indices.tolist():
            self.read(index)

    def take(self, name: str, indices: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return a copy of some rows of a fixed column, (indices, *row shape), without verification."""
        parts = self._by_shard(indices)
        if len(parts) == 1:
            [(shard, _, rows)] = parts
            return shard.fixed(name, rows)
        values = np.empty((len(indices), *self._column(name).shape), self._column(name).numpy_dtype)
        for shard, positions, rows in parts:
            values[positions] = shard.fixed(name, rows)
        return values

    def stack(self, name: str, indices: NDArray[np.int64]) -> tuple[ByteArray, NDArray[np.int64]] | None:
        """Return some records' bytes as `ShardReader.stack` does, without verification."""
        parts = self._by_shard(indices)
        stacks = [shard.stack(name, rows) for shard, _, rows in parts]
        if len(stacks) == 1:
            return stacks[0]
        found = [stack for stack in stacks if stack is not None]
        if len(found) != len(stacks) or len({stored.shape[1] for stored, _ in found}) != 1:
            return None
        values = np.empty((len(indices), found[0][0].shape[1]), np.uint8)
        for (_, positions, _), (stored, rows) in zip(parts, found, strict=True):
            values[positions] = stored[rows]
        return values, np.arange(len(indices))

    def prefetch(self, name: str, indices: NDArray[np.int64]) -> None:
        """Ask the kernel to read some records' bytes of a ragged column from disk, without waiting."""
        # With more shards than can be open at once, hints would only open and close them in turn.
        if self.remote is not None or not can_all_be_open(self.manifest.container, len(self._ends)):
            return
        self._recheck.update(self._open)  # reading the mapping of a truncated file kills the process
        # Only two records are looked at: a hint costs a microsecond, and a batch may need hundreds.
        sample = self._by_shard(indices[[0, -1]] if len(indices) else indices)
        if all(is_resident(shard.location(name, row)) for shard, _, rows in sample for row in rows.tolist()):
            return
        for shard, _, rows in self._by_shard(indices):
            fetch_ahead(shard.location(name, row) for row in rows.tolist())

    def column(self, name: str) -> NDArray[np.generic]:
        """Return the column of a scalar or vector field, (records, *row shape).

        It is verified shard by shard against the manifest, unless `verify` is `never`.
        """
        parts = [self.column_of(number, name) for number in range(len(self.manifest.shards))]
        if not parts:
            return np.empty((0, *self._column(name).shape), self._column(name).numpy_dtype)
        return np.concatenate(parts)

    def column_of(self, number: int, name: str) -> NDArray[np.generic]:
        """Return one shard's part of a column, as `column` does."""
        entry, array = self.manifest.shards[number], self._shard(number).fixed(name)
        crc = "" if self.verify == "never" else array_crc32c(array, self._identity_crcs[number])
        if crc and crc != entry.columns.get(name):
            raise DamageError(
                f"{self.folder / entry.file}, column {name}: checksum is {crc}, the manifest says "
                f"{entry.columns.get(name)}: the file was damaged after packing. "
                f"'fastload verify {self.folder}' lists every damaged record"
            )
        return array

    @property
    def limits(self) -> tuple[str, ...]:
        """Limits of this process that make reading slow, as sentences with the remedy."""
        container, count = self.manifest.container, len(self._ends)
        if can_all_be_open(container, count):
            return ()
        most = max_open_shards(container)
        return (
            f"{self.folder} has {count:,} shards, and this process may keep {most:,} of them open, half of "
            "its limit on files: the others are closed and opened again. Raise the hard limit "
            "('ulimit -Hn', LimitNOFILE of systemd, --ulimit nofile of Docker), pack larger shards, or "
            "shuffle within windows: ShardedSampler(window=).",
        )

    def begin_epoch(self, seed: int) -> None:
        """Check each open shard's file for changes on its next use, once per epoch seed and process."""
        epoch = seed, os.getpid()
        if epoch != self._epoch:
            self._epoch = epoch
            if self.remote is None:
                self._recheck = set(self._open)
            else:
                self.remote.begin_epoch()

    def is_open(self, number: int) -> bool:
        """Return True if shard `number` is open in this process."""
        return number in self._open

    def close_shard(self, number: int) -> None:
        """Close a shard once none of its records is in use; reading opens it again."""
        self._open.pop(number, None)

    def _column(self, name: str) -> Column:
        return next(column for column in self._columns if column.name == name)

    def _by_shard(self, indices: NDArray[np.int64]) -> list[_ShardBatch]:
        return [(self._shard(number), positions, rows) for number, positions, rows in self._split(indices)]

    def _split(self, indices: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Return, for each shard with some of the records, its number, their positions and their rows."""
        if len(self._ends) == 1:
            return [(0, np.arange(len(indices)), indices)]
        numbers = self.shards_of(indices)
        parts = []
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            first = self._ends[number - 1] if number else 0
            parts.append((number, positions, indices[positions] - first))
        return parts

    def shards_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each record's shard."""
        return np.searchsorted(np.array(self._ends), indices, side="right")

    def fetch(self, indices: NDArray[np.int64]) -> None:
        """Fetch records of a remote dataset, by complete shards or by ranges; do nothing for a local one."""
        if self.remote is None:
            return
        for number, _, rows in self._split(indices):
            shard = self._open.get(number)
            if self.remote.is_outdated(number, shard, len(rows)):
                self.close_shard(number)
            shard = self._open.get(number) or self._open_shard(number)
            # Rows that are fetched again are verified again.
            self._verified[self.remote.hold(shard, rows) + self._ends[number] - shard.count] = 0

    def _shard(self, number: int) -> ShardReader:
        if number in self._recheck:
            self._reopen_if_changed(number)
        shard = self._open.get(number) or self._open_shard(number)
        # A file that is overwritten in place changes under the mapping. Comparing costs 0.1 µs.
        return shard if shard.identity() == self._identities[number] else self._open_shard(number)

    def _reopen_if_changed(self, number: int) -> None:
        """Reopen a shard, and verify its records again, if its file was replaced or written to."""
        path = Path(self.folder / self.manifest.shards[number].file)
        shard = self._open.get(number)
        try:
            is_same = shard is None or stamp_of(path) == shard.stamp
        except OSError as error:
            raise unreadable(path, error) from error
        if shard is not None and not is_same:
            end = self._ends[number]
            self._verified[end - shard.count : end] = 0
            self._open_shard(number)
        self._recheck.discard(number)

    def _open_shard(self, number: int) -> ShardReader:
        self.close_shard(number)  # in case of a file that has changed
        entry, container = self.manifest.shards[number], self.manifest.container
        path, columns = self.folder / entry.file, (*self._columns, CRC32C)
        if self.remote is not None:
            shard = self.remote.open(number, self.close_shard, columns)
        else:
            shard = open_within_limit(self.close_shard, number, container, Path(path), columns, entry)
        self._open[number] = shard
        return shard

    def _verify(self, number: int, shard: ShardReader, row: int, index: int) -> None:
        if self._verified[index] and self.verify == "once":
            return
        crc, stored = self._checksums(number, shard, row)
        # Bytes that were fetched by ranges may have been damaged on the way.
        if crc != stored and self.remote is not None and self.remote.fetch_again(shard, row):
            crc, stored = self._checksums(number, shard, row)
        if crc != stored:
            key = os.fsdecode(bytes(shard.row("key", row)))
            advice = "" if self.remote is None else self.remote.advice
            raise DamageError(
                f"{self.folder / self.manifest.shards[number].file}, record {index} (key {key!r}): "
                f"checksum is {crc:08x}, the index says {stored:08x}: the file was damaged after packing. "
                f"'fastload verify {self.folder}' lists every such record{advice}"
            )
        self._verified[index] = 1

    def _checksums(self, number: int, shard: ShardReader, row: int) -> tuple[int, int]:
        """Return the checksum of a record as computed, and as stored in its shard."""
        crc = record_crc32c(shard.rows(row)) ^ row_mask(self._identity_crcs[number], row)
        return crc, int.from_bytes(bytes(shard.row("crc32c", row)), "little")
