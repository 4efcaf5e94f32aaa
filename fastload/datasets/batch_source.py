"""Sources of a batch's images: records of a packed dataset, or files in a folder."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, Size
from fastload.images.decode import decode, is_reducible
from fastload.images.encodings import Encoding
from fastload.images.header import ImageHeader, orientation_of, parsed_header
from fastload.images.jpeg import TileIndex
from fastload.images.region import Box, crop, decode_region, reduction_for, stored_box, swaps_sides, upright
from fastload.shards.record import Record
from fastload.shards.remote import RemoteFolder
from fastload.transforms.transform import Sizes
from fastload.transforms.windows import Gathered

Headers = NDArray[np.uint32]

Positions = NDArray[np.int64]
"""Samples by their positions in the dataset, counted from the first one."""

# Bytes of files that a batch may hold in memory at once; files beyond that are read a second time.
_MOST_BUFFERED_BYTES = 64 << 20


class BatchSource(ABC):
    """The stored images of a batch; see `Regions`."""

    sizes: Sizes  # heights and widths, in pixels: (images, 2)
    channels = 3  # of every image: 3, or 1
    gives_own_regions = False  # True if each region is in memory that nobody else uses

    @abstractmethod
    def region(self, position: int, box: Box, size: Size) -> Pixels:
        """Return a region of one image; see `Regions`."""

    def info(self, position: int) -> dict[object, object]:
        """Return PIL's `info` of one image."""
        return {}

    def orientations(self) -> list[int]:
        """Return the EXIF orientation with which each image is stored, 1 if it has none."""
        return [1] * len(self.sizes)

    def gathered(self) -> Gathered | None:
        """Return all images if that needs no decoding and they have one size."""
        return None


ImagesAt = Callable[[Positions], BatchSource]
"""Returns the images at some positions, as they are stored: before their orientation is applied."""


class Records(Protocol):
    """Verified records, from shards or through a cache."""

    @property
    def folder(self) -> Path | RemoteFolder:
        """The dataset's place, for messages."""

    def read_verified(self, index: int) -> Record:
        """Return a verified record; its bytes are read-only."""

    def take(self, name: str, indices: Positions) -> NDArray[np.generic]:
        """Return a copy of verified records' rows of a fixed column, (indices, *row shape)."""

    def stack(self, name: str, indices: Positions) -> tuple[Pixels, Positions] | None:
        """Return the images as rows of an array (any number, size), read-only, and the row of each record.

        None unless all have one size.
        """


class RecordImages(BatchSource):
    """Images of verified records, at `positions`; a damaged record's sizes could ask for any memory.

    `orientation` is the column that holds their EXIF orientations; "" if only their files do.

    Raises DecodeError if a record was packed although it is unreadable.
    """

    def __init__(
        self,
        records: Records,
        encoding: Encoding,
        positions: Positions,
        reducing_gap: float | None = None,
        orientation: str = "",
    ) -> None:
        self._records = records
        self._encoding = encoding
        self._positions = positions
        self._reducing_gap = reducing_gap
        self._orientation = orientation
        self._shapes = records.take("image/shape", positions)
        self.sizes: Sizes = self._shapes[:, :2].astype(np.int64)
        # Read for the batch at once, because record by record takes ten times as long.
        grids = records.take("image/grid", positions).tolist() if encoding.has_tiles else []
        self._grids: list[tuple[int, int, int, int]] = list(map(tuple, grids))
        if np.count_nonzero(self._shapes[:, 0]) < len(positions):
            self.region(int(np.argmin(self._shapes[:, 0])), Box(0, 0, 0, 0), (1, 1))

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        record = self._records.read_verified(int(self._positions[position]))
        reduction = 1 if self._reducing_gap is None else reduction_for(box, size, self._reducing_gap)
        shape, tiles = tuple(self._shapes[position].tolist()), None
        if self._grids:
            lengths = np.frombuffer(record.stored("image/tiles"), np.uint16)
            tiles = TileIndex(self._grids[position], lengths) if lengths.size else None
        try:
            return self._encoding.decode_box(record.stored("image"), shape, box, tiles, reduction)
        except DecodeError as error:
            raise DecodeError(
                f"{self._records.folder}, record {record.index} (key {record.key!r}): {error}"
            ) from error

    def orientations(self) -> list[int]:
        if self._orientation:
            return self._records.take(self._orientation, self._positions).tolist()  # type: ignore[no-any-return]
        if not self._encoding.holds_files:
            return super().orientations()
        read = map(self._records.read_verified, self._positions.tolist())
        return [orientation_of(bytes(record.stored("image"))) for record in read]

    def gathered(self) -> Gathered | None:
        if not self._encoding.is_rgb or (self._shapes != self._shapes[0]).any():
            return None
        stacked = self._records.stack("image", self._positions)
        shape = tuple(self._shapes[0].tolist())
        if stacked is None or stacked[0].shape[1] != shape[0] * shape[1] * shape[2]:
            return None
        stored, rows = stacked
        return Gathered(stored.reshape(len(stored), *shape), rows)


def unread_headers(count: int) -> Headers:
    """Return an array for height, width and EXIF orientation of files: (count, 3), zeros until one is read.

    It is shared with forked processes, so that each header is read once.
    """
    # A page takes no memory until it is written.
    memory = mmap.mmap(-1, max(1, count) * 3 * np.dtype(np.uint32).itemsize)
    return np.frombuffer(memory, np.uint32).reshape(-1, 3)


class FileImages(BatchSource):
    """Images in files, at `positions`.

    `path` returns the path of a file, for messages, and `read` its content.

    Raises:
        SourceError: A file cannot be read.
        DecodeError: A file is not a complete image.
    """

    def __init__(
        self,
        path: Callable[[int], str],
        read: Callable[[int], bytes],
        positions: list[int],
        headers: Headers,
        reducing_gap: float | None = None,
    ) -> None:
        self._headers = headers
        self._path = path
        self._read_file = read
        self._positions = positions
        self._reducing_gap = reducing_gap
        self._files: dict[int, bytes] = {}
        self._decoded: dict[int, Pixels] = {}
        self._free_bytes = _MOST_BUFFERED_BYTES
        self.sizes: Sizes = np.array([self._size(position) for position in range(len(positions))], np.int64)

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        height, width = self.sizes[position].tolist()
        pixels = self._decoded.get(position)
        try:
            if pixels is not None:
                return crop(pixels, (height, width), box)
            data = self._files.get(position) or self._read(position)
            reduction = 1
            if self._reducing_gap is not None and is_reducible(data):
                reduction = reduction_for(box, size, self._reducing_gap)
            return decode_region(data, (height, width), None, box, reduction)
        except DecodeError as error:
            raise self._with_path(position, error) from error

    def orientations(self) -> list[int]:
        return [int(self._headers[index, 2]) or 1 for index in self._positions]

    def _size(self, position: int) -> tuple[int, int]:
        """Return the size of one image; data that has to be read or decoded is buffered for `region`."""
        index = self._positions[position]
        height, width, orientation = self._headers[index].tolist()
        if orientation:
            return height, width
        try:
            data, header = self._opened(position)
            if header is not None:
                height, width, orientation = header.height, header.width, header.orientation
                if self._may_buffer(len(data)):
                    self._files[position] = data
            else:
                pixels, orientation = self._whole(position, data)
                height, width = pixels.shape[:2]
                if self._may_buffer(pixels.nbytes):
                    self._decoded[position] = pixels
        except DecodeError as error:
            raise self._with_path(position, error) from error
        self._headers[index, :2] = height, width
        self._headers[index, 2] = orientation  # last, because it marks the others as known
        return height, width

    def _opened(self, position: int) -> tuple[bytes, ImageHeader | None]:
        """Return a file's content, and its header; None if only decoding shows the size."""
        data = self._read(position)
        return data, parsed_header(data)

    def _whole(self, position: int, data: bytes) -> tuple[Pixels, int]:
        """Return all pixels of a file without a header, and its orientation."""
        return decode(data), orientation_of(data)

    def _may_buffer(self, size_bytes: int) -> bool:
        """Return True, and count the bytes, if so many more may be held in memory."""
        fits = size_bytes <= self._free_bytes
        self._free_bytes -= size_bytes * fits
        return fits

    def _read(self, position: int) -> bytes:
        return self._read_file(self._positions[position])

    def _with_path(self, position: int, error: DecodeError) -> DecodeError:
        return DecodeError(f"{self._path(self._positions[position])}: {error}")


class JoinedImages(BatchSource):
    """Images of a batch from several sources, each added with its positions in the batch."""

    def __init__(self, count: int) -> None:
        self.sizes = np.zeros((count, 2), np.int64)
        self._origins: list[tuple[BatchSource, int]] = [(self, 0)] * count
        self._parts: list[tuple[BatchSource, Sequence[int]]] = []

    def add(self, source: BatchSource, positions: Sequence[int]) -> None:
        self.sizes[positions] = source.sizes
        self.channels = source.channels
        self._parts.append((source, positions))
        for inner, position in enumerate(positions):
            self._origins[position] = source, inner

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        source, inner = self._origins[position]
        return source.region(inner, box, size)

    def info(self, position: int) -> dict[object, object]:
        source, inner = self._origins[position]
        return source.info(inner)

    def orientations(self) -> list[int]:
        joined = [1] * len(self.sizes)
        for source, positions in self._parts:
            for position, orientation in zip(positions, source.orientations(), strict=True):
                joined[position] = orientation
        return joined


class UprightImages(BatchSource):
    """Images of another source, turned upright by their EXIF orientations."""

    def __init__(self, images: BatchSource) -> None:
        self._images = images
        self._orientations = images.orientations()
        is_turned = np.array([swaps_sides(orientation) for orientation in self._orientations])
        self.sizes = np.where(is_turned[:, None], images.sizes[:, ::-1], images.sizes)

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        orientation = self._orientations[position]
        height, width = self._images.sizes[position].tolist()
        box = stored_box(box, (height, width), orientation)
        size = (size[1], size[0]) if swaps_sides(orientation) else size
        return upright(self._images.region(position, box, size), orientation)

    def gathered(self) -> Gathered | None:
        """Return all images as `BatchSource` does, but None if any must be turned."""
        is_turned = any(orientation != 1 for orientation in self._orientations)
        return None if is_turned else self._images.gathered()
