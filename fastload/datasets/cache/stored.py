"""Cache in memory that the processes of a node share: a store, read and filled by all of them.

A stored sample is complete: its image, as stored or as pixels, and all other columns of a packed record. So
reading it needs no access to the disk, not even to check a checksum. A process stores what it has to read
from the disk: together, all processes read each sample once.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.batch import BatchSource, Positions
from fastload.datasets.cache.options import Cache, CacheReport, Form, no_cache
from fastload.datasets.cache.originals import Originals
from fastload.datasets.cache.sample_cache import SampleCache
from fastload.datasets.cache.sharing import can_cache, open_store, store_folder
from fastload.datasets.cache.store import Bytes, Opening, Store
from fastload.datasets.records import RecordImages, Records
from fastload.errors import DamageError, DecodeError, OptionError, SourceError
from fastload.images.encodings import Raw
from fastload.images.header import orientation_of
from fastload.images.opencv import cv2
from fastload.shards.record import Record, value_reader
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Column
from fastload.system.cache_folder import cache_name
from fastload.system.memory import Room, memory_margin, tmpfs_room
from fastload.system.units import format_size

# The version of the store format: increased when the layout or the meaning of a key changes.
_STORE_VERSION = 7

# The column of an image's EXIF orientation, which pixels no longer hold.
_ORIENTATION = "image/orientation"

# The lengths of the variable columns; no column of a dataset has this name.
_LENGTHS = "/lengths"

_SHAPE = struct.Struct("<3I")


def open_store_cache(
    cache: Cache, choice: CacheReport, originals: Originals, room: Room
) -> tuple[StoreCache | None, CacheReport]:
    """Open the cache in memory that is asked for or chosen; return it, or None for lack of room, and why."""
    if not can_cache():
        raise OptionError(f'cache="{cache.kind}" needs Linux (memfd, posix_fallocate, /proc): leave it out')
    kind: Literal["ram", "tmpfs"] = "tmpfs" if choice.kind == "tmpfs" else "ram"
    form: Form = (cache.form or choice.form or "encoded") if originals.can_be_decoded else "encoded"
    folder = store_folder(cache.folder, holds_data=kind == "tmpfs")
    parent = str(folder.path.parent)
    room_bytes, bound = room(), f"{format_size(memory_margin())} of the memory must stay free"
    if kind == "tmpfs" and tmpfs_room(parent) < room_bytes:
        room_bytes, bound = tmpfs_room(parent), f"a tenth of the file system of {parent} must stay free"
    counts = originals.samples, RecordLayout(originals).fixed.itemsize
    opening = Opening(kind, form, folder, originals.name, _key(form, originals), *counts, 0, room)
    needed = originals.size_bytes(form)
    capacity = min(needed, room_bytes - opening.area_offset)
    if capacity <= 0:
        return None, no_cache(f"{bound}, which leaves no room")
    try:
        store = open_store(replace(opening, capacity_bytes=capacity))
    except OSError as error:
        return None, no_cache(f"it could not be opened ({error.strerror})")
    choice = replace(choice, form=form)
    return StoreCache(originals, store, choice, needed), choice


def find_shared(cache: Cache, originals: Originals) -> CacheReport | None:
    """Return the choice by which other processes of this user cache the dataset now; None if none does.

    If each rank measured by itself, ranks could choose differently, and would measure a busy disk.
    """
    forms: tuple[Form, ...] = ("encoded", "decoded") if cache.form is None else (cache.form,)
    folder = store_folder(cache.folder)
    for form in forms if can_cache() else ():
        if folder.is_locked(cache_name(originals.name, _key(form, originals))):
            reason = "another of your processes chose it for this dataset"
            return CacheReport("ram" if cache.folder is None else "tmpfs", form, 1.0, reason)
    return None


def _key(form: Form, originals: Originals) -> str:
    """Return 32 hexadecimal digits that distinguish a store from any other."""
    decoder = cv2.__version__ if form == "decoded" else ""
    parts = "\n".join((str(_STORE_VERSION), form, decoder, originals.identity()))
    return hashlib.blake2b(parts.encode(errors="surrogateescape"), digest_size=16).hexdigest()


class RecordLayout:
    """Places of a sample's columns in a store.

    The fixed part holds the EXIF orientation of the image (a byte), the columns of fixed size, and the
    lengths of the other columns; the tail holds these columns, except the image.
    """

    def __init__(self, originals: Originals) -> None:
        columns = originals.columns
        fixed = [Column(_ORIENTATION, "uint8"), *(column for column in columns if not column.ragged)]
        image = None if originals.encoding is None else "image"
        self.ragged = [column.name for column in columns if column.ragged and column.name != image]
        parts = [(column.name, column.numpy_dtype, column.shape) for column in fixed]
        self.fixed = np.dtype([*parts, (_LENGTHS, "<u4", (len(self.ragged),))])

    def parts(self, columns: Mapping[str, bytes | Bytes]) -> tuple[bytes, bytes]:
        """Return the fixed part and the tail of a sample."""
        tail = [bytes(columns[name]) for name in self.ragged]
        lengths = np.array([len(part) for part in tail], "<u4").tobytes()
        fixed = {**columns, _LENGTHS: lengths}
        return b"".join(bytes(fixed[name]) for name in self.fixed.names or ()), b"".join(tail)


class StoreCache(SampleCache):
    """Samples in a store; missing ones are stored by the processes that read them, while there is room.

    `needed` is the size in bytes of a store that holds all samples.
    """

    def __init__(self, originals: Originals, store: Store, choice: CacheReport, needed: int) -> None:
        self.originals, self.store, self._needed = originals, store, needed
        super().__init__(replace(choice, share=min(1.0, store.capacity_bytes / max(1, needed))))
        self._layout = RecordLayout(originals)
        parts = store, originals, self._layout
        self._held, self._records = _HeldRecords(*parts), _StoredRecords(*parts)

    def __reduce__(self) -> tuple[type[StoreCache], tuple[object, ...]]:
        return StoreCache, (self.originals, self.store, self._choice, self._needed)

    def refresh(self) -> None:
        """See `SampleCache`; samples are stored only as they are read."""

    def records(self, originals: RecordReader) -> Records:
        return self._records

    def missing(self, positions: Positions) -> Positions:
        return positions[~self.store.found(positions)]

    def report(self) -> CacheReport:
        store = self.store
        ready = store.ready / max(1, store.count)
        report = replace(self._choice, ready=ready, used_bytes=store.used_bytes, stopped=store.why_closed)
        return self._counted(report)

    def _mask(self, positions: Positions) -> NDArray[np.bool_]:
        records = self.originals.records
        return self.store.found(positions, records is not None and records.verify == "always")

    def _take(self, positions: Positions) -> NDArray[np.bool_]:
        if self.originals.records is not None:
            self.originals.records.verify_records(positions)
        if not self.store.is_open:
            return super()._take(positions)
        for position in positions.tolist():
            # The error of one that cannot be read is raised where it is read from the original.
            with contextlib.suppress(SourceError, DamageError, DecodeError):
                self._store_sample(position)
        return self.store.found(positions)

    def _images(self, positions: Positions, reducing_gap: float | None) -> BatchSource:
        encoding = self.originals.encoding
        assert encoding is not None
        if self.store.opening.form == "decoded":
            encoding = Raw(encoding.pixel_type)
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
            if encoding.holds_files:
                orientation = orientation_of(bytes(image))
            if self.store.opening.form == "decoded":
                shape = _SHAPE.unpack(bytes(columns["image/shape"]))
                pixels = encoding.decode(image, shape)
                if pixels.shape[:2] != shape[:2]:
                    return  # damaged: reading the original raises the error
                image = np.ascontiguousarray(pixels).reshape(-1).view(np.uint8)
                changed = {"image/shape": _SHAPE.pack(*pixels.shape), "image/tiles": b""}
        changed[_ORIENTATION] = bytes([orientation])
        fixed, tail = self._layout.parts({**columns, **changed})
        self.store.put(position, image, fixed, tail)


class _HeldRecords:
    """Samples that a store holds, as records; see `Records`."""

    def __init__(self, store: Store, originals: Originals, layout: RecordLayout) -> None:
        self._store, self._originals, self._layout = store, originals, layout
        rows, names = store.fixed.view(layout.fixed)[:, 0], layout.fixed.names or ()
        self._columns: dict[str, NDArray[np.generic]] = {name: rows[name] for name in names}
        fields = () if originals.records is None else originals.records.manifest.fields
        self._values = {field.name: value_reader(field) for field in fields}

    @property
    def _shards(self) -> RecordReader:
        if self._originals.records is None:
            # Asked for by the message about a file that cannot be decoded: reading the file raises its own.
            raise DamageError("a file in the cache cannot be decoded")
        return self._originals.records

    @property
    def folder(self) -> Path | RemoteFolder:
        return self._shards.folder

    def read_verified(self, index: int) -> Record:
        return Record(index, self, index, self._values)

    def row(self, column: str, index: int) -> Bytes:
        if column == "image" and self._originals.encoding is not None:
            return self._store.data(index)
        if (rows := self._columns.get(column)) is not None:
            return np.frombuffer(rows[index].tobytes(), np.uint8)
        lengths = self._columns[_LENGTHS][index].tolist()
        place = self._layout.ragged.index(column)
        begin = sum(lengths[:place])
        return self._store.tail(index)[begin : begin + lengths[place]]

    def take(self, name: str, indices: Positions) -> NDArray[np.generic]:
        return self._columns[name][indices]

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
