"""Originals of the samples in a cache: image files, or the records of a packed dataset."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from fastload.datasets.cache.options import Form
from fastload.errors import OptionError
from fastload.images.encodings import Encoding, Keep
from fastload.images.header import read_header
from fastload.images.pixel_types import RGB, PixelType
from fastload.shards.container import ByteArray
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Column
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.protocol import evenly_spaced

# The number of images from which the size of the decoded dataset is estimated.
_SAMPLED = 48

# The factor by which an estimate from samples of different sizes is raised. Unwritten memory costs nothing.
_RESERVE = 1.25

# The estimated size of a key, a relative path; if keys are longer on average, the last images do not fit.
_KEY_BYTES = 64

_SHAPE = struct.Struct("<3I")


class Originals(ABC):
    """The samples of a dataset where they lie without a cache; picklable."""

    name: str  # the folder or URL in which they lie
    columns: tuple[Column, ...]  # of a sample, among them `image` and `image/shape` if it has an image
    encoding: Encoding | None  # of the images; None without images
    records: RecordReader | None = None  # of a packed dataset; None for files
    samples: int  # how many there are
    stored_bytes: int  # of all images as stored
    other_bytes: int = 0  # of all other fields, exact or slightly overestimated

    @abstractmethod
    def identity(self) -> str:
        """Return text that differs if the location or the content differs."""

    @abstractmethod
    def paths(self) -> list[str]:
        """Return the files in which the samples lie; none if they are remote."""

    @abstractmethod
    def columns_of(self, position: int) -> Mapping[str, bytes | ByteArray] | None:
        """Read all columns of a sample; None if it must not be cached.

        Raises SourceError, DamageError or DecodeError if it cannot be read.
        """

    @abstractmethod
    def files(self) -> CacheableFiles:
        """Return the originals as files, for a packed copy; raise OptionError if they are none."""

    @abstractmethod
    def _pixels(self, positions: Sequence[int]) -> Sequence[int]:
        """Return the number of pixels of some images; 0 for one that cannot be read."""

    @property
    def can_be_decoded(self) -> bool:
        """False if the images are stored as pixels, or if there are none."""
        return self.encoding is not None and not self.encoding.is_raw

    def size_bytes(self, form: Form) -> int:
        """Return the size of a store of all samples; that of pixels is estimated from some images."""
        if form == "encoded" or self.encoding is None:
            return self.stored_bytes + self.other_bytes
        sampled = self._pixels(evenly_spaced(self.samples, _SAMPLED)) or [0]
        reserve = 1 if len(set(sampled)) == 1 else _RESERVE
        return (
            int(self.encoding.pixel_type.pixel_bytes * sum(sampled) / len(sampled) * self.samples * reserve)
            + self.other_bytes
        )


class FileOriginals(Originals):
    """Image files; see `CacheableFiles` for those that are never cached."""

    columns = (Column("image/shape", "uint32", (3,)), Column("image", "uint8", ragged=True))

    def __init__(self, source: CacheableFiles, pixel_type: PixelType = RGB) -> None:
        self._source, self.name = source, source.name
        self._pixel_type, self.encoding = pixel_type, Keep(pixel_type)
        self.samples = len(source)
        self.stored_bytes = int(source.files.sizes_bytes.clip(min=0).sum())

    def identity(self) -> str:
        return f"files {self._source.origin}"

    def paths(self) -> list[str]:
        return [*map(self._source.files.path, range(self.samples))]

    def columns_of(self, position: int) -> Mapping[str, bytes | ByteArray] | None:
        data = self._source.read(position).image
        if not isinstance(data, bytes) or not data:
            return None
        header = read_header(data)
        if header.pixel_type != self._pixel_type:
            return None  # reading the original raises the error
        shape = _SHAPE.pack(header.height, header.width, self._pixel_type.channels)
        return {"image": data, "image/shape": shape}

    def files(self) -> CacheableFiles:
        return self._source

    def _pixels(self, positions: Sequence[int]) -> list[int]:
        counts = []
        for position in positions:
            columns = None
            with contextlib.suppress(ValueError, OSError):  # training will raise the error
                columns = self.columns_of(position)
            height, width, _ = _SHAPE.unpack(bytes(columns["image/shape"])) if columns else (0, 0, 0)
            counts.append(height * width)
        return counts


class RecordOriginals(Originals):
    """The records of a packed dataset, with the encoding of their images."""

    def __init__(self, records: RecordReader, encoding: Encoding | None) -> None:
        self.records: RecordReader = records
        self.name = str(records.folder)
        self.encoding = encoding
        manifest, self.samples = records.manifest, len(records)
        self.columns, self.stored_bytes = manifest.columns, manifest.size_bytes
        fields = [field for field in manifest.value_fields if not field.internal]
        is_small = encoding is None or all(field.kind in ("scalar", "vector") for field in fields)
        self.other_bytes = self.samples * _KEY_BYTES if is_small else manifest.size_bytes

    def identity(self) -> str:
        folder, digest = self.records.folder, hashlib.sha256(self.records.manifest.to_bytes()).hexdigest()
        place = str(folder) if isinstance(folder, RemoteFolder) else os.path.realpath(folder)
        # A cache of unverified records is shared only with datasets that do not verify either.
        return f"packed {place} {digest} {self.records.verify == 'never'}"

    def paths(self) -> list[str]:
        folder = self.records.folder
        shards = () if isinstance(folder, RemoteFolder) else self.records.manifest.shards
        return [str(folder / shard.file) for shard in shards]

    def columns_of(self, position: int) -> Mapping[str, bytes | ByteArray]:
        record = self.records.read(position)
        return {column.name: record.stored(column.name) for column in self.columns}

    def files(self) -> CacheableFiles:
        raise OptionError(
            f'cache="disk" keeps a packed copy of files, and {self.records.folder} is packed already: leave '
            'it out, or copy the packed folder to a faster disk; cache="ram" keeps it in memory'
        )

    def _pixels(self, positions: Sequence[int]) -> list[int]:
        shapes = self.records.take("image/shape", np.array(positions, np.int64))
        return shapes[:, :2].astype(np.int64).prod(axis=1).tolist()  # type: ignore[no-any-return]
