"""Cache in memory that the processes of a node share: a store, read and filled by all of them.

A stored sample is complete: its image, as stored or as pixels, and all other columns of a packed record. So
reading it needs no access to the disk, not even to check a checksum.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastload.datasets._batch_source import RecordImages, Records, StoredImages
from fastload.datasets.cache._choose import CacheReport
from fastload.datasets.cache._registry import StoreFolder
from fastload.datasets.cache._store import Bytes, Store
from fastload.datasets.cache.opening import Opening, open_store
from fastload.datasets.cache.originals import Originals
from fastload.datasets.cache.sample_cache import FilledCache, Positions
from fastload.datasets.cache.storing import LENGTH, ORIENTATION, PIXELS, RecordLayout, StoreWriter, fill_store
from fastload.shards.container import ShardReader
from fastload.shards.record import Record, value_reader
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder


class StoreCache(FilledCache):
    """Samples in a store; missing ones are stored by the processes that read them, while there is room.

    `needed` is the size in bytes of a store that holds all samples.
    """

    # A dataset that is used for less time is not worth the 0.3 s of a core that starting a process takes.
    starts_after_s = 1.0
    per_process = (*FilledCache.per_process, "store", "_writer", "_held", "_records")

    def __init__(self, originals: Originals, opening: Opening, choice: CacheReport, needed: int) -> None:
        self.originals = originals
        self.opening = opening
        super().__init__(choice)
        share = min(1.0, self.store.layout.capacity_bytes / max(1, needed))
        self._choice = replace(choice, form=opening.form, share=share)

    def _prepare(self, is_unpickled: bool) -> None:
        super()._prepare(is_unpickled)
        self.store = open_store(self.opening, is_unpickled)
        self._writer = StoreWriter(self.originals, self.opening.form, self.store)
        parts = self.store, self.originals, self._writer.layout
        self._held, self._records = _HeldRecords(*parts), _StoredRecords(*parts)

    def records(self, originals: RecordReader) -> Records:
        """See `SampleCache`."""
        return self._records

    def verify_records(self, originals: RecordReader, positions: Positions) -> None:
        """See `SampleCache`."""
        self.hold(positions)

    def missing(self, positions: Positions) -> Positions:
        """See `SampleCache`."""
        return positions[~self.store.found(positions)]

    def report(self) -> CacheReport:
        """See `SampleCache`."""
        store, (hits, misses) = self.store, self._counts.hits_and_misses
        return replace(
            self._choice,
            ready=store.ready / max(1, store.count),
            used_bytes=store.used_bytes,
            stopped=store.why_closed or self.failure,
            hits=hits,
            misses=misses,
        )

    def hold(self, positions: Positions) -> NDArray[np.bool_]:
        """See `FilledCache`; missing samples are stored first."""
        records = self.originals.records
        is_held = self.store.found(positions, records is not None and records.verify == "always")
        self._counts.add(is_held)
        if np.count_nonzero(is_held) == len(is_held):
            return is_held
        missing = positions[~is_held]
        if records is not None:
            records.verify_records(missing)
        if self.store.is_open:
            for position in missing.tolist():
                self._writer.store_sample(position)
            is_held[~is_held] = self.store.found(missing)
        return is_held

    def _images(self, positions: Positions, reducing_gap: float | None) -> StoredImages:
        encoding = PIXELS if self.opening.form == "decoded" else self.originals.encoding
        assert encoding is not None
        return RecordImages(self._held, encoding, positions, reducing_gap, ORIENTATION)

    def _check(self) -> None:
        """See `FilledCache`.

        To a forked child, the process of its parent seems to have ended; the lock prevents a second one.
        """
        if (reason := self._why_ended()) is not None:
            self._process, self.failure = None, reason
        if self._process is not None or self.failure or self.store.is_filled:
            return
        if not self.store.missing().size:
            self.store.note_filled()
            return
        # If the folder is gone, workers still store what they read.
        with contextlib.suppress(OSError):
            lock = StoreFolder(self.opening.folder).open(self.opening.key, "filler")
            try:
                if lock.take():
                    descriptors = self.store.descriptor, lock.fileno()
                    self._start(fill_store, (self.originals, self.opening), *descriptors)
            finally:
                lock.release()


class _HeldRecords:
    """Samples that a store holds, as records; see `Records`."""

    def __init__(self, store: Store, originals: Originals, layout: RecordLayout) -> None:
        self._store, self._originals, self._layout = store, originals, layout
        fields = () if originals.records is None else originals.records.manifest.fields
        self._values = {field.name: value_reader(field) for field in fields}

    @property
    def _shards(self) -> RecordReader:
        assert self._originals.records is not None, "files are never asked for as records"
        return self._originals.records

    @property
    def folder(self) -> Path | RemoteFolder:
        return self._shards.folder

    def read_verified(self, index: int) -> Record:
        # A record uses only `row` of its shard.
        return Record(index, cast(ShardReader, self), index, self._values)

    def row(self, column: str, index: int) -> Bytes:
        if column == "image" and self._originals.encoding is not None:
            return self._store.data(index)
        fixed = self._store.fixed(index)
        if column in self._layout.columns:
            return fixed[self._layout.places[column]]
        lengths = fixed[self._layout.lengths].view(LENGTH).tolist()
        place = self._layout.ragged.index(column)
        begin = sum(lengths[:place])
        return self._store.tail(index)[begin : begin + lengths[place]]

    def take(self, name: str, indices: Positions) -> NDArray[Any]:
        dtype, shape = self._layout.columns[name]
        rows = np.ascontiguousarray(self._store.fixed(indices)[:, self._layout.places[name]])
        return rows.view(dtype).reshape(len(indices), *shape)

    def stack(self, name: str, indices: Positions) -> tuple[Bytes, Positions] | None:
        return self._store.stack(indices)


class _StoredRecords(_HeldRecords):
    """Records from the store if it holds them, else from shards; see `Records`."""

    def read_verified(self, index: int) -> Record:
        return super().read_verified(index) if self._store.has(index) else self._shards.read(index)

    def take(self, name: str, indices: Positions) -> NDArray[Any]:
        is_held = self._store.found(indices)
        if np.count_nonzero(is_held) == len(is_held):
            return super().take(name, indices)
        missing = self._shards.take(name, indices[~is_held])
        rows = np.empty((len(indices), *missing.shape[1:]), missing.dtype)
        rows[~is_held], rows[is_held] = missing, super().take(name, indices[is_held])
        return rows
