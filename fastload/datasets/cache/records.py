"""The records of a packed dataset, from a store where they lie in one, else from their shards.

A record is kept whole: its image, as stored or as pixels, and all its other columns. So one that is kept
costs the disk nothing, not even to be checked.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache.choose import Form
from fastload.datasets.cache.opening import Opening, open_store
from fastload.datasets.cache.store import Bytes, Store
from fastload.datasets.cache.tally import Tally
from fastload.errors import DamageError, DecodeError
from fastload.images.encodings import Encoding, Raw, Yuv420
from fastload.images.header import read_header, states_its_size
from fastload.shards.records import Record, RecordReader, value_reader
from fastload.shards.schema import Column

_LENGTH = np.dtype("<u4")
_SHAPE = struct.Struct("<3I")


class RecordLayout:
    """Where a record's columns lie in a store.

    Columns of one size, and the lengths of the others, lie in the fixed part; the others, the image left
    out, in the tail.

    Args:
        columns: Of the dataset's records.
        image: The image's column.
    """

    def __init__(self, columns: tuple[Column, ...], image: str) -> None:
        self.fixed = [column for column in columns if not column.ragged]
        self.ragged = [column.name for column in columns if column.ragged and column.name != image]
        sizes = [column.row_bytes for column in self.fixed] + [_LENGTH.itemsize] * len(self.ragged)
        ends = list(accumulate(sizes))
        names = [column.name for column in self.fixed] + self.ragged
        self.places = {
            name: slice(end - size, end) for name, size, end in zip(names, sizes, ends, strict=True)
        }
        self.columns = {column.name: column for column in self.fixed}
        self.fixed_bytes = sum(sizes)
        self.lengths = slice(self.fixed_bytes - _LENGTH.itemsize * len(self.ragged), self.fixed_bytes)


class KeptRecord:
    """A record that lies in a store: what `fastload.shards.records.Record` is for one in a shard.

    Attributes:
        index: Its number in the dataset.
    """

    __slots__ = ("_kept", "index")

    def __init__(self, index: int, kept: KeptRecords) -> None:
        self.index = index
        self._kept = kept

    @property
    def key(self) -> str:
        """Its path relative to the source it was packed from."""
        return os.fsdecode(bytes(self.stored("key")))

    @property
    def orientation(self) -> int:
        """The EXIF orientation of its pixels."""
        return self._kept.store.orientation(self.index)

    @property
    def is_decoded(self) -> bool:
        """Whether its image is pixels, RGB."""
        return self._kept.form == "decoded"

    def stored(self, column: str) -> Bytes:
        """The bytes of one column, read-only."""
        kept = self._kept
        if column == kept.image:
            return kept.store.data(self.index)
        fixed = kept.store.fixed(self.index)
        if column in kept.layout.columns:
            return fixed[kept.layout.places[column]]
        lengths = fixed[kept.layout.lengths].view(_LENGTH).tolist()
        place = kept.layout.ragged.index(column)
        begin = sum(lengths[:place])
        return kept.store.tail(self.index)[begin : begin + lengths[place]]

    def image_shape(self, name: str = "image") -> tuple[int, int, int]:
        """(height, width, channels) of an image field as it is kept; zeros where it cannot be read."""
        stored: Any = self.stored(f"{name}/shape")
        height, width, channels = _SHAPE.unpack(stored)
        return height, width, channels

    def __getitem__(self, name: str) -> Any:
        """The value of a field that is not the image: a number, an array, a str, or bytes."""
        return self._kept.values[name](self.stored(name))


class KeptRecords:
    """A packed dataset's records through a store.

    What is not there is read from the shards, and kept if there is room.

    Args:
        reader: Of the shards.
        encoding: Of the images there.
        form: What is kept of an image.
        opening: The store.

    Attributes:
        store: The store.
        tally: How many records were found there.
    """

    def __init__(self, reader: RecordReader, encoding: Encoding, form: Form, opening: Opening) -> None:
        self._reader = reader
        self._encoding = encoding
        self.form = form
        self.opening = opening
        self._open(is_guest=False)

    def _open(self, is_guest: bool) -> None:
        manifest = self._reader.manifest
        self.image = manifest.image.name
        self.layout = RecordLayout(manifest.columns, self.image)
        self.values = {field.name: value_reader(field) for field in manifest.fields}
        self.store: Store = open_store(self.opening, is_guest)
        self.tally = Tally()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_reader", "_encoding", "form", "opening")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open(is_guest=True)

    @property
    def folder(self) -> Path:
        """The packed dataset."""
        return self._reader.folder

    @property
    def holds_pixels(self) -> bool:
        """Whether images are pixels, here or there."""
        return self.form == "decoded"

    def check(self, indices: NDArray[np.int64]) -> None:
        """Checks records as the reader would, and keeps those that are not kept yet.

        Raises:
            DamageError: One differs from what its checksum says, or its shard is missing or damaged.
        """
        is_kept = self.store.found(indices, self._reader.verify == "always")
        missing = indices[~is_kept]
        self.tally.add(len(indices) - len(missing), len(missing))
        if not len(missing):
            return
        self._reader.check(missing)
        if self.store.is_open:
            for index in missing.tolist():
                # One that cannot be decoded is an error where its pixels are wanted.
                with contextlib.suppress(DecodeError):
                    self._keep(index)

    def missing(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those records of some that are not kept."""
        return indices[~self.store.found(indices)]

    def read_checked(self, index: int) -> Record | KeptRecord:
        """The record at an index that lies in range and was given to `check` before.

        Raises:
            DamageError: Its shard is missing or damaged.
        """
        return KeptRecord(index, self) if self.store.has(index) else self._reader.read(index)

    def taken(self, name: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Some records' rows of a fixed column: see `RecordReader`."""
        is_kept = self.store.found(indices)
        if not is_kept.any():
            return self._reader.taken(name, indices)
        column = self.layout.columns[name]
        fixed = self.store.fixed(indices[is_kept])[:, self.layout.places[name]]
        kept = np.ascontiguousarray(fixed).view(column.numpy_dtype).reshape(-1, *column.shape)
        if is_kept.all():
            return kept
        values = np.empty((len(indices), *column.shape), column.numpy_dtype)
        values[is_kept] = kept
        values[~is_kept] = self._reader.taken(name, indices[~is_kept])
        return values

    def stacked(self, name: str, indices: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """The images of some records, where they have one size: see `RecordReader`."""
        is_kept = self.store.found(indices)
        if is_kept.all():
            return self.store.stacked(indices)
        if self.holds_pixels:
            return None  # the shards have none
        elsewhere = self._reader.stacked(name, indices[~is_kept])
        if not is_kept.any() or elsewhere is None:
            return elsewhere
        here = self.store.stacked(indices[is_kept])
        if here is None or here[0].shape[1] != elsewhere[0].shape[1]:
            return None
        images = np.empty((len(indices), here[0].shape[1]), np.uint8)
        images[is_kept] = here[0][here[1]]
        images[~is_kept] = elsewhere[0][elsewhere[1]]
        return images, np.arange(len(indices))

    def steps(self) -> Iterator[None]:
        """Keeps what is missing, one record after the other."""
        for index in self.store.missing().tolist():
            if not self.store.is_open:
                return
            # Whoever asks for such a record is told.
            with contextlib.suppress(DamageError, DecodeError):
                self._keep(index)
            yield

    def _keep(self, index: int) -> None:
        record = self._reader.read(index)
        image = record.stored(self.image)
        shape = record.image_shape(self.image)
        orientation = 1
        left_out = ""
        if self.form == "decoded":
            pixels = self._encoding.decode(image, shape)
            if pixels.shape[:2] != shape[:2]:
                return  # damaged: the shards' own path says how
            if not isinstance(self._encoding, Raw | Yuv420):
                orientation = stated_orientation(bytes(image))
            image, shape = np.ascontiguousarray(pixels).reshape(-1), (*shape[:2], 3)
            left_out = f"{self.image}/tiles"
        changed = {f"{self.image}/shape": _SHAPE.pack(*shape)}
        fixed = [
            changed.get(column.name) or bytes(record.stored(column.name)) for column in self.layout.fixed
        ]
        tail = [b"" if name == left_out else bytes(record.stored(name)) for name in self.layout.ragged]
        lengths = np.array([len(part) for part in tail], _LENGTH).tobytes()
        self.store.put(index, image, b"".join([*fixed, lengths]), b"".join(tail), orientation)


def stated_orientation(data: bytes) -> int:
    """The EXIF orientation that a file states; 1 where it states none.

    Raises:
        DecodeError: The file is truncated.
    """
    return read_header(data).orientation if states_its_size(data) else 1
