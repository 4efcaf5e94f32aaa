"""Originals of the samples in a cache: image files, or the records of a packed dataset."""

from __future__ import annotations

import hashlib
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastload.datasets.cache._choose import Form
from fastload.errors import OptionError
from fastload.images.decode import decode
from fastload.images.encodings import Encoding, Keep
from fastload.images.header import parsed_header
from fastload.shards.container import ByteArray
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Column
from fastload.sources.protocol import evenly_spaced

if TYPE_CHECKING:
    from fastload.sources.cacheable import CacheableFiles

# The number of images from which the size of the decoded dataset is estimated.
_SAMPLED = 48

# The factor by which an estimate from samples of different sizes is raised. Unwritten memory costs nothing.
_RESERVE = 1.25

# The estimated size of a key, a relative path; if keys are longer on average, the last images do not fit.
_KEY_BYTES = 64

_SHAPE = struct.Struct("<3I")


@dataclass(frozen=True, slots=True)
class Extent:
    """Size of a dataset: the bytes of all its samples, exact or slightly overestimated."""

    identity: str  # differs if the location or the content differs
    samples: int
    stored_bytes: int  # images as stored
    decoded_bytes: int  # images as pixels
    other_bytes: int  # all other fields
    paths: tuple[str, ...]
    can_be_decoded: bool = True  # False if the images are stored as pixels, or if there are none

    def size_bytes(self, form: Form) -> int:
        """Return the size of a store of all samples."""
        return (self.stored_bytes if form == "encoded" else self.decoded_bytes) + self.other_bytes


class Originals(ABC):
    """The samples of a dataset where they lie without a cache; picklable.

    Attributes:
        columns: The columns of a sample, among them `image` and `image/shape` if it has an image.
        encoding: The encoding of the images; None without images.
        records: The records of a packed dataset; None for files.
    """

    columns: tuple[Column, ...]
    encoding: Encoding | None
    records: RecordReader | None = None

    @abstractmethod
    def columns_of(self, position: int) -> Mapping[str, bytes | ByteArray] | None:
        """Read all columns of a sample; None if it must not be cached.

        Raises SourceError, DamageError or DecodeError if it cannot be read.
        """

    @abstractmethod
    def extent(self, *, wants_pixels: bool) -> Extent:
        """Return the size of the dataset; of its pixels only if wanted, because they may have to be read."""

    @abstractmethod
    def files(self) -> CacheableFiles:
        """Return the originals as files, for a packed copy; raise OptionError if they are none."""


def _estimated_bytes(sampled: Sequence[int], count: int) -> int:
    """Estimate the bytes of `count` samples from those of some."""
    if not sampled:
        return 0
    return int(sum(sampled) / len(sampled) * count * (1 if len(set(sampled)) == 1 else _RESERVE))


class FileOriginals(Originals):
    """Image files; see `CacheableFiles` for those that are never cached."""

    columns = (Column("image/shape", "uint32", (3,)), Column("image", "uint8", ragged=True))
    encoding = Keep()

    def __init__(self, source: CacheableFiles) -> None:
        self._source = source

    def columns_of(self, position: int) -> Mapping[str, bytes | ByteArray] | None:
        """See `Originals`."""
        data = self._source.read(position).image
        if not isinstance(data, bytes) or not data:
            return None
        header = parsed_header(data)
        height, width = decode(data).shape[:2] if header is None else (header.height, header.width)
        return {"image": data, "image/shape": _SHAPE.pack(height, width, 3)}

    def extent(self, *, wants_pixels: bool) -> Extent:
        """See `Originals`."""
        files, count = self._source.files, len(self._source)
        sampled = evenly_spaced(count, _SAMPLED) if wants_pixels else []
        return Extent(
            identity=f"files {self._source.origin}",
            samples=count,
            stored_bytes=int(files.sizes_bytes.clip(min=0).sum()),
            decoded_bytes=_estimated_bytes([*map(self._pixels_bytes, sampled)], count),
            other_bytes=0,
            paths=tuple(map(files.path, range(count))),
        )

    def files(self) -> CacheableFiles:
        """See `Originals`."""
        return self._source

    def _pixels_bytes(self, position: int) -> int:
        try:
            columns = self.columns_of(position)
        except (ValueError, OSError):  # training will raise the error
            columns = None
        return 0 if columns is None else int(np.prod(_SHAPE.unpack(bytes(columns["image/shape"]))))


class RecordOriginals(Originals):
    """The records of a packed dataset, with the encoding of their images."""

    def __init__(self, records: RecordReader, encoding: Encoding | None) -> None:
        self.records: RecordReader = records
        self.columns = records.manifest.columns
        self.encoding = encoding

    def columns_of(self, position: int) -> Mapping[str, bytes | ByteArray]:
        """See `Originals`."""
        record = self.records.read(position)
        return {column.name: record.stored(column.name) for column in self.columns}

    def extent(self, *, wants_pixels: bool) -> Extent:
        """See `Originals`."""
        records, manifest, count = self.records, self.records.manifest, len(self.records)
        pixels = np.zeros(0, np.int64)
        if self.encoding is not None and wants_pixels:
            sampled = np.array(evenly_spaced(count, _SAMPLED), np.int64)
            pixels = 3 * records.take("image/shape", sampled)[:, :2].astype(np.int64).prod(axis=1)
        fields = [field for field in manifest.value_fields if not field.internal]
        is_small = self.encoding is None or all(field.kind in ("scalar", "vector") for field in fields)
        digest = hashlib.sha256(manifest.to_bytes()).hexdigest()
        is_remote = isinstance(records.folder, RemoteFolder)
        place = str(records.folder) if is_remote else os.path.realpath(str(records.folder))
        return Extent(
            # A cache of unverified records is shared only with datasets that do not verify either.
            identity=f"packed {place} {digest} {records.verify == 'never'}",
            samples=count,
            stored_bytes=manifest.size_bytes,
            decoded_bytes=_estimated_bytes(pixels.tolist(), count),
            other_bytes=count * _KEY_BYTES if is_small else manifest.size_bytes,
            paths=() if is_remote else tuple(str(records.folder / shard.file) for shard in manifest.shards),
            can_be_decoded=self.encoding is not None and self.encoding.name != "raw",
        )

    def files(self) -> CacheableFiles:
        """See `Originals`."""
        raise OptionError(
            f'cache="disk" keeps a packed copy of files, and {self.records.folder} is packed already: leave '
            'it out, or copy the packed folder to a faster disk; cache="ram" keeps it in memory'
        )
