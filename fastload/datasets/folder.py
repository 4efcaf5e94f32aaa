"""FolderDataset: the images of a folder as a map-style dataset, without packing."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.contracts import Box
from fastload.datasets.batch import BatchSource, Positions
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.originals import FileOriginals
from fastload.datasets.images import ImageDataset
from fastload.errors import DecodeError, SourceError
from fastload.images.arrays import Pixels
from fastload.images.decode import decode, is_reducible
from fastload.images.header import ImageHeader, orientation_of, parsed_header, read_header
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.region import crop, decode_region, reduction_for
from fastload.images.unchanged import decode_region_as
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.file_source import FileSource
from fastload.sources.opening import open_class_folders
from fastload.sources.pixel_type import first_pixel_type
from fastload.transforms.compose import AnyTransform
from fastload.transforms.transform import Sizes

Headers = NDArray[np.uint32]

# Bytes of files that a batch may hold in memory at once; files beyond that are read a second time.
# Headers have the orientation, 1 to 8, in the lower bits of the last column, and above them `_file`.
FILE_STEP = 16
_MOST_BUFFERED_BYTES = 64 << 20


def unread_headers(count: int) -> Headers:
    """Return an array for height, width and EXIF orientation of files, (count, 3), zeros until one is read.

    It is shared with forked processes, so that each header is read once.
    """
    # A page takes no memory until it is written.
    memory = mmap.mmap(-1, max(1, count) * 3 * np.dtype(np.uint32).itemsize)
    return np.frombuffer(memory, np.uint32).reshape(-1, 3)


class FileImages(BatchSource):
    """Images in files, at `positions`.

    `path` returns the path of a file, for messages, and `read` its content. All must have `pixel_type`, and
    are decoded so; without one, they are decoded as RGB of 8 bits, whatever they are.

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
        pixel_type: PixelType | None = None,
    ) -> None:
        self._headers = headers
        self._required_type = pixel_type
        self._pixel_type = pixel_type or RGB
        self.dtype, self.channels = self._pixel_type.numpy_dtype, self._pixel_type.channels
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
            if self._pixel_type != RGB:
                return decode_region_as(data, (height, width), box, self._pixel_type)
            reduction = 1
            if self._reducing_gap is not None and is_reducible(data):
                reduction = reduction_for(box, size, self._reducing_gap)
            return decode_region(data, (height, width), None, box, reduction)
        except DecodeError as error:
            raise self._with_path(position, error) from error

    def orientations(self) -> list[int]:
        return [int(self._headers[index, 2]) % FILE_STEP or 1 for index in self._positions]

    def _size(self, position: int) -> tuple[int, int]:
        """Return the size of one image; data that has to be read or decoded is buffered for `region`."""
        index = self._positions[position]
        height, width, known = self._headers[index].tolist()
        file = self._file(index)
        if known and known // FILE_STEP == file:
            return height, width
        try:
            data, header = self._opened(position)
            if self._required_type is not None:
                header = self._checked(data, header)
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
        self._headers[index, 2] = file * FILE_STEP + orientation  # last, because it marks the others as known
        return height, width

    def _checked(self, data: bytes, header: ImageHeader | None) -> ImageHeader | None:
        """Return the header, or None for an RGB image without one; raise DecodeError for another type."""
        found = read_header(data) if header is None else header
        if found.pixel_type != self._required_type:
            raise DecodeError(
                f"the image must be {self._required_type}, as the first one, got {found.pixel_type}: pack "
                "with --convert uint8, or another dtype, or take images of each type apart"
            )
        return found if self._required_type != RGB else header

    def _file(self, index: int) -> int:
        """Return a number below 2**28 that tells the file at an index from others listed there."""
        return 0

    def _opened(self, position: int) -> tuple[bytes, ImageHeader | None]:
        """Return a file's content, and its header; None if only decoding shows the size."""
        data = self._read(position)
        return data, parsed_header(data)

    def _whole(self, position: int, data: bytes) -> tuple[Pixels, int]:
        """Return all pixels of a file without a header, and its orientation."""
        return decode(data), orientation_of(data)

    def _may_buffer(self, size_bytes: int) -> bool:
        """Reserve memory for a file; return False if it does not fit."""
        fits = size_bytes <= self._free_bytes
        self._free_bytes -= size_bytes * fits
        return fits

    def _read(self, position: int) -> bytes:
        return self._read_file(self._positions[position])

    def _with_path(self, position: int, error: DecodeError) -> DecodeError:
        return DecodeError(f"{self._path(self._positions[position])}: {error}")


class FilesDataset(ImageDataset):
    """Base of datasets of image files; a subclass sets `_headers` once `__len__` works."""

    _headers: Headers

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in super().__getstate__().items() if name != "_headers"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._headers = unread_headers(len(self))


class FolderDataset(FilesDataset):
    """The samples of a folder of images, without packing: like ImageFolder, decoded by OpenCV.

    Classes, files and their order are those of torchvision's ImageFolder, which selects files by their
    suffix; others that packing recognises by content, such as `.gif`, are not included. Images of a folder
    without class folders have the label -1. Samples are those of `PackedDataset`.

    Args:
        path: The folder.
        transform: Applied to every image.
        target_transform: Applied to every target.
        memory_format: Same meaning as for `PackedDataset`.
        reducing_gap: Same meaning as for `PackedDataset`.
        apply_orientation: Same meaning as for `PackedDataset`.
        cache: Same meaning as for `PackedDataset`.
        layout: "classes" to take the folders for classes where they could mean something else too, such as
            `images` and `masks`; None to refuse such folders.

    Attributes:
        root: The path that was passed.
        source: The listing of its files.

    Raises:
        SourceError: The folder cannot be listed, holds no images, is split into train, val, test, has a
            layout that holds more than labels, such as YOLO's, or can be read in two ways.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: AnyTransform | None = None,
        target_transform: AnyTransform | None = None,
        *,
        memory_format: torch.memory_format = torch.channels_last,
        reducing_gap: float | None = None,
        apply_orientation: bool = False,
        cache: str | Cache | None = None,
        layout: str | None = None,
    ) -> None:
        self.root = os.fspath(path)
        sources = open_class_folders(self.root, layout)
        if "" not in sources:
            raise SourceError(f"{self.root}: is split into {', '.join(sources)}: name one of these folders")
        self.source = sources[""]
        super().__init__(transform, target_transform, memory_format, reducing_gap, apply_orientation)
        self._headers = unread_headers(len(self))
        self.classes = list(self.source.classes)
        self.use_cache(cache)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"FolderDataset({self.root!r}, {len(self):,} files)"

    @functools.cached_property
    def pixel_type(self) -> PixelType:
        """The dtype and the number of channels of the first image, which all must have."""
        return first_pixel_type([self.source])

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """The (path, label) of each file, as in ImageFolder; `imgs` is the same."""
        files = self.source.files
        return [(files.path(index), label) for index, label in enumerate(self.targets)]

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """See `samples`."""
        return self.samples

    @functools.cached_property
    def targets(self) -> list[int]:
        """The labels of all files."""
        return np.asarray(self.source.values["label"]).tolist()  # type: ignore[no-any-return]

    def files_read(self) -> FileSource | None:
        """See `ReadsFiles`; a subclass with samples of its own changes them."""
        is_plain = self.transform is None and self.target_transform is None
        return self.source if is_plain and type(self).__getitem__ is ImageDataset.__getitem__ else None

    def _stored_images(self, positions: Positions) -> FileImages:
        files = self.source.files
        return FileImages(
            files.path, files.read, positions.tolist(), self._headers, self.reducing_gap, self.pixel_type
        )

    def _prefetch(self, positions: Positions) -> None:
        self.source.files.prefetch(positions.tolist())

    def _originals(self) -> FileOriginals:
        files = self.source.files
        return FileOriginals(CacheableFiles(files, files.folder, alike_only=False), self.pixel_type)

    def targets_of(self, positions: Positions, annotations: object = None) -> list[object]:
        return self._labels(positions).tolist()  # type: ignore[no-any-return]

    def _labels(self, positions: Positions) -> NDArray[np.int64]:
        return np.asarray(self.source.values["label"], np.int64)[positions]
