"""The stored pictures of a batch: those of packed records, and those of files in a folder."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache.files import KeptFiles
from fastload.datasets.cache.records import KeptRecord, KeptRecords, stated_orientation
from fastload.errors import DecodeError
from fastload.images.decode import decode, is_reducible
from fastload.images.encodings import Encoding, Raw, Yuv420
from fastload.images.header import read_header, states_its_size
from fastload.images.jpeg import TileIndex
from fastload.images.orientation import is_on_its_side, stored_box, upright
from fastload.images.region import Box, cropped, reduction_for
from fastload.shards.records import Record, RecordReader
from fastload.sources.files import FileSource
from fastload.transforms.windows import Gathered

Pixels = NDArray[np.uint8]

# What a batch of files may hold in memory at once, in bytes: beyond that files are read a second time.
_MOST_HELD_BYTES = 64 << 20

# What a cache keeps of decoded pictures.
_PIXELS = Raw()


class _Reducing:
    """Decides by how much pictures are shrunk while they are decoded.

    Args:
        reducing_gap: A JPEG is decoded at a half, a quarter or an eighth of its size where that leaves so
            many times the size that is wanted, as PIL's parameter of that name; None: never.
    """

    def __init__(self, reducing_gap: float | None) -> None:
        self._gap = reducing_gap

    def _reduction(self, box: Box, size: tuple[int, int]) -> int:
        return 1 if self._gap is None else reduction_for(box, size, self._gap)


class RecordPictures(_Reducing):
    """Pictures of a packed dataset.

    Args:
        records: Of the dataset, by the shards or through a cache.
        encoding: Of its images in the shards.
        positions: Which of them.
        reducing_gap: See `_Reducing`.

    Attributes:
        sizes: Heights and widths, in pixels: (pictures, 2).

    Raises:
        DamageError: A record differs from its checksum, or a shard is missing or damaged.
        DecodeError: A record was kept though unreadable.
    """

    def __init__(
        self,
        records: RecordReader | KeptRecords,
        encoding: Encoding,
        positions: NDArray[np.int64],
        reducing_gap: float | None = None,
    ) -> None:
        super().__init__(reducing_gap)
        self._records = records
        self._encoding = encoding
        self._positions = positions
        # First of all, because nothing may be made of a damaged record, not even room for its pixels.
        records.check(positions)
        self._shapes = records.taken("image/shape", positions)
        self.sizes: NDArray[np.int64] = self._shapes[:, :2].astype(np.int64)
        if not self._shapes[:, 0].all():
            self.region(int(np.argmin(self._shapes[:, 0])), Box(0, 0, 0, 0), (1, 1))

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        """A part of one picture, of which a resize to `size` is wanted.

        Raises:
            DecodeError: It cannot be decoded; says which it is.
        """
        record = self._records.read_checked(int(self._positions[position]))
        encoding = _PIXELS if _is_decoded(record) else self._encoding
        try:
            return encoding.decode_box(
                record.stored("image"),
                record.image_shape(),
                box,
                _tiles_of(record, encoding),
                self._reduction(box, size),
            )
        except DecodeError as error:
            raise DecodeError(
                f"{self._records.folder}, record {record.index} (key {record.key!r}): {error}"
            ) from error

    def orientations(self) -> list[int]:
        """The EXIF orientation of each, 1 where it says none.

        Raises:
            DecodeError: A file is truncated.
        """
        if isinstance(self._encoding, Raw | Yuv420):
            return [1] * len(self._positions)
        records = map(self._records.read_checked, self._positions.tolist())
        return [_orientation(record) for record in records]

    def gathered(self) -> Gathered | None:
        """All, where they are stored as pixels of one shape."""
        is_pixels = isinstance(self._encoding, Raw) or (
            isinstance(self._records, KeptRecords) and self._records.holds_pixels
        )
        if not is_pixels or (self._shapes != self._shapes[0]).any():
            return None
        stacked = self._records.stacked("image", self._positions)
        shape = tuple(self._shapes[0].tolist())
        if stacked is None or stacked[0].shape[1] != shape[0] * shape[1] * shape[2]:
            return None
        stored, rows = stacked
        return Gathered(stored.reshape(len(stored), *shape), rows)


def _is_decoded(record: Record | KeptRecord) -> bool:
    return isinstance(record, KeptRecord) and record.is_decoded


def _orientation(record: Record | KeptRecord) -> int:
    if isinstance(record, KeptRecord) and record.is_decoded:
        return record.orientation
    return stated_orientation(bytes(record.stored("image")))


def _tiles_of(record: Record | KeptRecord, encoding: Encoding) -> TileIndex | None:
    if encoding.name not in ("tiled", "jpeg"):
        return None
    lengths = np.frombuffer(record.stored("image/tiles"), np.uint16)
    if not lengths.size:
        return None
    sof_offset, scan_offset, tile_height, tile_width = np.frombuffer(
        record.stored("image/grid"), np.uint32
    ).tolist()
    return TileIndex((sof_offset, scan_offset, tile_height, tile_width), lengths)


class FileHeaders:
    """What the headers of files say, read once: by this process, or by one forked from it.

    Args:
        count: Of the files.
    """

    def __init__(self, count: int) -> None:
        # Height, width and orientation of each; zeros until they are known. The kernel gives memory only to
        # what is touched.
        memory = mmap.mmap(-1, max(1, count) * 3 * np.dtype(np.uint32).itemsize)
        self._values = np.frombuffer(memory, np.uint32).reshape(-1, 3)

    def size(self, index: int) -> tuple[int, int] | None:
        """(height, width) of a file's picture; None while it is not known."""
        height, width, orientation = self._values[index].tolist()
        return (height, width) if orientation else None

    def orientation(self, index: int) -> int:
        """The EXIF orientation of a file's picture; 1 where none is known."""
        return int(self._values[index, 2]) or 1

    def note(self, index: int, size: tuple[int, int], orientation: int) -> None:
        """Notes what a header says, its size as (height, width)."""
        self._values[index, :2] = size
        # Last, because it says that the others are there.
        self._values[index, 2] = orientation


class FilePictures(_Reducing):
    """Pictures in files.

    Args:
        source: The files.
        root: Their folder.
        positions: Which of them.
        headers: What is known of all of the files.
        reducing_gap: See `_Reducing`.
        kept: The files through a cache; None without one.

    Attributes:
        sizes: Heights and widths, in pixels: (pictures, 2).

    Raises:
        SourceError: A file cannot be read.
        DecodeError: A file is no whole image.
    """

    def __init__(
        self,
        source: FileSource,
        root: str,
        positions: list[int],
        headers: FileHeaders,
        reducing_gap: float | None = None,
        kept: KeptFiles | None = None,
    ) -> None:
        super().__init__(reducing_gap)
        self._headers = headers
        self._kept = kept
        self._source = source
        self._root = root
        self._positions = positions
        self._files: dict[int, bytes] = {}
        self._decoded: dict[int, Pixels] = {}
        self._room = _MOST_HELD_BYTES
        self.sizes: NDArray[np.int64] = np.array(
            [self._size(place) for place in range(len(positions))], np.int64
        )

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        """A part of one picture, of which a resize to `size` is wanted.

        Raises:
            SourceError: The file cannot be read.
            DecodeError: It is no whole image.
        """
        reduction = 1
        pixels = self._decoded.get(position)
        if pixels is None and self._kept is not None:
            pixels = self._kept.pixels(self._positions[position])
        try:
            if pixels is None:
                data = self._files.get(position) or self._read(position)
                reduction = self._reduction(box, size) if is_reducible(data) else 1
                pixels = decode(data, reduction)
                if self._kept is not None and reduction == 1:
                    index = self._positions[position]
                    self._kept.keep_pixels(index, pixels, self._headers.orientation(index))
            return cropped(pixels, tuple(self.sizes[position].tolist()), box, reduction)
        except DecodeError as error:
            raise self._named(position, error) from error

    def orientations(self) -> list[int]:
        """The EXIF orientation of each, 1 where it says none."""
        return [self._headers.orientation(position) for position in self._positions]

    def gathered(self) -> Gathered | None:
        """All, where their pixels are kept and they have one size."""
        stacked = None if self._kept is None else self._kept.stacked(np.array(self._positions, np.int64))
        return None if stacked is None else Gathered(*stacked)

    def _size(self, position: int) -> tuple[int, int]:
        """The size of one picture; what had to be read or decoded for that is kept while there is room."""
        known = self._headers.size(self._positions[position])
        if known is not None:
            return known
        index = self._positions[position]
        kept = None if self._kept is None else self._kept.pixels(index)
        if self._kept is not None and kept is not None:
            size = kept.shape[0], kept.shape[1]
            self._headers.note(index, size, self._kept.orientation(index))
            self._decoded[position] = kept
            return size
        data = self._read(position)
        try:
            if states_its_size(data):
                header = read_header(data)
                self._keep(self._files, position, data, len(data))
                self._headers.note(index, (header.height, header.width), header.orientation)
                return header.height, header.width
            pixels = decode(data)
            if self._kept is not None:
                self._kept.keep_pixels(index, pixels, 1)
        except DecodeError as error:
            raise self._named(position, error) from error
        self._keep(self._decoded, position, pixels, pixels.nbytes)
        return pixels.shape[0], pixels.shape[1]

    def _keep(self, held: dict[int, Any], position: int, value: Any, size_bytes: int) -> None:
        if size_bytes <= self._room:
            held[position] = value
            self._room -= size_bytes

    def _read(self, position: int) -> bytes:
        files = self._source.files if self._kept is None else self._kept
        return files.read(self._positions[position])

    def _named(self, position: int, error: DecodeError) -> DecodeError:
        key = self._source.key(self._positions[position])
        return DecodeError(f"{os.path.join(self._root, key)}: {error}")


class UprightPictures:
    """Pictures turned as their EXIF orientations say.

    Args:
        pictures: As they are stored.

    Attributes:
        sizes: Heights and widths after turning, in pixels: (pictures, 2).

    Raises:
        DecodeError: A file is truncated.
    """

    def __init__(self, pictures: RecordPictures | FilePictures) -> None:
        self._pictures = pictures
        self._orientations = pictures.orientations()
        is_turned = np.array([is_on_its_side(orientation) for orientation in self._orientations])
        self.sizes = np.where(is_turned[:, None], pictures.sizes[:, ::-1], pictures.sizes)

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        """A part of one picture: see `RecordPictures` and `FilePictures`."""
        orientation = self._orientations[position]
        height, width = self._pictures.sizes[position].tolist()
        box = stored_box(box, (height, width), orientation)
        size = (size[1], size[0]) if is_on_its_side(orientation) else size
        return upright(self._pictures.region(position, box, size), orientation)

    def gathered(self) -> Gathered | None:
        """All, where none is to be turned: see `RecordPictures`."""
        return (
            None if any(orientation != 1 for orientation in self._orientations) else self._pictures.gathered()
        )
