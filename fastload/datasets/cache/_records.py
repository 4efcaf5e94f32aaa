"""The records of a packed dataset, read through a store.

A stored record is complete: its image, if it has one, as packed or as pixels, and all other columns. So
reading it needs no access to the disk, not even to check its checksum.
"""

from __future__ import annotations

import contextlib
import struct
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache._cached_samples import CachedSamples
from fastload.datasets.cache._store import Bytes
from fastload.datasets.cache.opening import Opening
from fastload.errors import DecodeError
from fastload.images.encodings import Encoding, Raw, Yuv420
from fastload.images.header import orientation_of
from fastload.shards.container import ShardReader
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Column
from fastload.shards.values import value_reader

_LENGTH = np.dtype("<u4")
_SHAPE = struct.Struct("<3I")
_IMAGE = "image"


class RecordLayout:
    """Positions of a record's columns in a store.

    The fixed part holds the EXIF orientation of the pixels (a byte), the columns of fixed size, and the
    lengths of the other columns; the tail holds these columns, except the image.
    """

    def __init__(self, columns: tuple[Column, ...], *, has_image: bool) -> None:
        fixed = [column for column in columns if not column.ragged]
        ends = list(accumulate((column.row_bytes for column in fixed), initial=1))
        self.columns = {column.name: column for column in fixed}
        self.places = dict(zip(self.columns, map(slice, ends, ends[1:]), strict=True))
        image = _IMAGE if has_image else None
        self.ragged = [column.name for column in columns if column.ragged and column.name != image]
        self.fixed_bytes = ends[-1] + _LENGTH.itemsize * len(self.ragged)
        self.lengths = slice(ends[-1], self.fixed_bytes)


class CachedRecord(Record):
    """A record in a store."""

    __slots__ = ()


class CachedRecords(CachedSamples):
    """Records of a packed dataset, read through a store.

    `encoding` is that of the images in the shards, None without images.
    """

    def __init__(self, reader: RecordReader, encoding: Encoding | None, opening: Opening) -> None:
        self._reader = reader
        self._encoding = encoding
        self.layout = RecordLayout(reader.manifest.columns, has_image=encoding is not None)
        super().__init__(opening)

    def _open(self, is_unpickled: bool) -> None:
        super()._open(is_unpickled)
        self._values = {field.name: value_reader(field) for field in self._reader.manifest.fields}

    @property
    def folder(self) -> Path | RemoteFolder:
        return self._reader.folder

    def verify_records(self, indices: NDArray[np.int64]) -> None:
        """Check records as the reader does, and store those that are not stored yet.

        Raises DamageError if one differs from its checksum, or if its shard is missing or damaged.
        """
        missing = indices[~self.store.found(indices, self._reader.verify == "always")]
        self.counts.add(len(indices) - len(missing), len(missing))
        if not len(missing):
            return
        self._reader.verify_records(missing)
        if self.store.is_open:
            for index in missing.tolist():
                # An image that cannot be decoded is an error only where its pixels are needed.
                with contextlib.suppress(DecodeError):
                    self._store_sample(index)

    def read_verified(self, index: int) -> Record:
        """Return a record that passed `verify_records`; raise DamageError if its shard is damaged."""
        if not self.store.has(index):
            return self._reader.read(index)
        # A record uses only `row` of its shard.
        return CachedRecord(index, cast(ShardReader, self), index, self._values)

    def row(self, column: str, index: int) -> Bytes:
        """Return the bytes of one column of a record in the store, read-only."""
        if column == _IMAGE and self._encoding is not None:
            return self.store.data(index)
        fixed = self.store.fixed(index)
        if column in self.layout.columns:
            return fixed[self.layout.places[column]]
        lengths = fixed[self.layout.lengths].view(_LENGTH).tolist()
        place = self.layout.ragged.index(column)
        begin = sum(lengths[:place])
        return self.store.tail(index)[begin : begin + lengths[place]]

    def orientation(self, index: int) -> int:
        """Return the EXIF orientation of a record whose pixels are in the store."""
        return int(self.store.fixed(index)[0])

    def take(self, name: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return some records' rows of a fixed column; see `RecordReader`."""
        is_found = self.store.found(indices)
        column = self.layout.columns[name]
        values = np.empty((len(indices), *column.shape), column.numpy_dtype)
        fixed = np.ascontiguousarray(self.store.fixed(indices[is_found])[:, self.layout.places[name]])
        values[is_found] = fixed.view(column.numpy_dtype).reshape(len(fixed), *column.shape)
        if not is_found.all():
            values[~is_found] = self._reader.take(name, indices[~is_found])
        return values

    def stack(self, name: str, indices: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """Return the images of records as rows of an array; None unless all are stored and have one size."""
        return self.store.stack(indices) if self.store.found(indices).all() else None

    def _store_sample(self, index: int) -> None:
        record = self._reader.read(index)
        fixed = {name: bytes(record.stored(name)) for name in self.layout.columns}
        orientation, left_out = 1, ""
        image = b"" if self._encoding is None else record.stored(_IMAGE)
        if self._encoding is not None and self.holds_pixels:
            shape = record.image_shape()
            pixels = self._encoding.decode(image, shape)
            if pixels.shape[:2] != shape[:2]:
                return  # damaged: reading it from its shard raises the error
            if not isinstance(self._encoding, Raw | Yuv420):
                orientation = orientation_of(bytes(image))
            image = np.ascontiguousarray(pixels).reshape(-1)
            left_out = f"{_IMAGE}/tiles"
            fixed[f"{_IMAGE}/shape"] = _SHAPE.pack(*shape[:2], 3)
        tail = [b"" if name == left_out else bytes(record.stored(name)) for name in self.layout.ragged]
        lengths = np.array([len(part) for part in tail], _LENGTH).tobytes()
        columns = b"".join([bytes([orientation]), *fixed.values(), lengths])
        self.store.put(index, image, columns, b"".join(tail))
