"""Cache in memory that the processes of a node share: a store, read and filled by all of them.

A stored sample is complete: its image, as stored or as pixels, and all other columns of a packed record. So
reading it needs no access to the disk, not even to check a checksum. A process stores what it has to read
from the disk: together, all processes read each sample once.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fastload.datasets._batch_source import RecordImages, Records
from fastload.datasets.batch import BatchSource
from fastload.datasets.cache._choose import CacheReport
from fastload.datasets.cache._store import Bytes, Store
from fastload.datasets.cache.opening import Opening, open_store
from fastload.datasets.cache.originals import Originals
from fastload.datasets.cache.sample_cache import FilledCache, Positions
from fastload.errors import DamageError, DecodeError, SourceError
from fastload.images.encodings import Raw, Yuv420
from fastload.images.header import orientation_of
from fastload.shards.container import ShardReader
from fastload.shards.record import Record, value_reader
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Column

# The column of an image's EXIF orientation, which pixels no longer hold.
_ORIENTATION = "image/orientation"

# How pixels are stored.
_PIXELS = Raw()

_LENGTH = np.dtype("<u4")
_SHAPE = struct.Struct("<3I")


class RecordLayout:
    """Positions of a sample's columns in a store.

    The fixed part holds the EXIF orientation of the image (a byte), the columns of fixed size, and the
    lengths of the other columns; the tail holds these columns, except the image.
    """

    def __init__(self, originals: Originals) -> None:
        columns = originals.columns
        fixed = [Column(_ORIENTATION, "uint8"), *(column for column in columns if not column.ragged)]
        ends = list(accumulate((column.row_bytes for column in fixed), initial=0))
        self.columns = {column.name: (column.numpy_dtype, column.shape) for column in fixed}
        self.places = dict(zip(self.columns, map(slice, ends, ends[1:]), strict=True))
        image = None if originals.encoding is None else "image"
        self.ragged = [column.name for column in columns if column.ragged and column.name != image]
        self.fixed_bytes = ends[-1] + _LENGTH.itemsize * len(self.ragged)
        self.lengths = slice(ends[-1], self.fixed_bytes)

    def parts(self, columns: Mapping[str, bytes | Bytes]) -> tuple[bytes, bytes]:
        """Return the fixed part and the tail of a sample."""
        fixed, tail = ([bytes(columns[name]) for name in part] for part in (self.columns, self.ragged))
        lengths = np.array([len(part) for part in tail], _LENGTH).tobytes()
        return b"".join([*fixed, lengths]), b"".join(tail)


class StoreCache(FilledCache):
    """Samples in a store; missing ones are stored by the processes that read them, while there is room.

    `needed` is the size in bytes of a store that holds all samples.
    """

    def __init__(
        self,
        originals: Originals,
        opening: Opening,
        choice: CacheReport,
        needed: int,
        is_unpickled: bool = False,
    ) -> None:
        self.originals, self.opening, self._needed = originals, opening, needed
        self.store = open_store(opening, is_unpickled)
        share = min(1.0, self.store.layout.capacity_bytes / max(1, needed))
        super().__init__(replace(choice, form=opening.form, share=share))
        self._layout = RecordLayout(originals)
        parts = self.store, originals, self._layout
        self._held, self._records = _HeldRecords(*parts), _StoredRecords(*parts)

    def __reduce__(self) -> tuple[type[StoreCache], tuple[object, ...]]:
        return StoreCache, (self.originals, self.opening, self._choice, self._needed, True)

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
        store = self.store
        ready = store.ready / max(1, store.count)
        report = replace(self._choice, ready=ready, used_bytes=store.used_bytes, stopped=store.why_closed)
        return self._counted(report)

    def hold(self, positions: Positions) -> NDArray[np.bool_]:
        """See `FilledCache`; missing samples are stored first."""
        records = self.originals.records
        is_held = self.store.found(positions, records is not None and records.verify == "always")
        self._count_reads(is_held)
        if np.count_nonzero(is_held) == len(is_held):
            return is_held
        missing = positions[~is_held]
        if records is not None:
            records.verify_records(missing)
        if self.store.is_open:
            for position in missing.tolist():
                # The error of one that cannot be read is raised where it is read from the original.
                with contextlib.suppress(SourceError, DamageError, DecodeError):
                    self._store_sample(position)
            is_held[~is_held] = self.store.found(missing)
        return is_held

    def _images(self, positions: Positions, reducing_gap: float | None) -> BatchSource:
        encoding = _PIXELS if self.opening.form == "decoded" else self.originals.encoding
        assert encoding is not None
        return RecordImages(self._held, encoding, positions, reducing_gap, _ORIENTATION)

    def _store_sample(self, position: int) -> None:
        """Read a sample from its original, and store it, unless it must not be cached."""
        columns = self.originals.columns_of(position)
        if columns is None:
            return
        encoding, orientation = self.originals.encoding, 1
        image: bytes | Bytes = b"" if encoding is None else columns["image"]
        changed: dict[str, bytes] = {}
        if encoding is not None and len(image):
            if not isinstance(encoding, Raw | Yuv420):
                orientation = orientation_of(bytes(image))
            if self.opening.form == "decoded":
                shape = _SHAPE.unpack(bytes(columns["image/shape"]))
                pixels = encoding.decode(image, shape)
                if pixels.shape[:2] != shape[:2]:
                    return  # damaged: reading the original raises the error
                image = np.ascontiguousarray(pixels).reshape(-1)
                changed = {"image/shape": _SHAPE.pack(*shape[:2], 3), "image/tiles": b""}
        changed[_ORIENTATION] = bytes([orientation])
        fixed, tail = self._layout.parts({**columns, **changed})
        self.store.put(position, image, fixed, tail)


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
        lengths = fixed[self._layout.lengths].view(_LENGTH).tolist()
        place = self._layout.ragged.index(column)
        begin = sum(lengths[:place])
        return self._store.tail(index)[begin : begin + lengths[place]]

    def take(self, name: str, indices: Positions) -> NDArray[np.generic]:
        dtype, shape = self._layout.columns[name]
        rows = np.ascontiguousarray(self._store.fixed(indices)[:, self._layout.places[name]])
        return rows.view(dtype).reshape(len(indices), *shape)

    def stack(self, name: str, indices: Positions) -> tuple[Bytes, Positions] | None:
        return self._store.stack(indices)


class _StoredRecords(_HeldRecords):
    """Records from the store if it holds them, else from shards; see `Records`."""

    def read_verified(self, index: int) -> Record:
        return super().read_verified(index) if self._store.has(index) else self._shards.read(index)

    def take(self, name: str, indices: Positions) -> NDArray[np.generic]:
        is_held = self._store.found(indices)
        if np.count_nonzero(is_held) == len(is_held):
            return super().take(name, indices)
        missing = self._shards.take(name, indices[~is_held])
        rows = np.empty((len(indices), *missing.shape[1:]), missing.dtype)
        rows[~is_held], rows[is_held] = missing, super().take(name, indices[is_held])
        return rows
