"""Images and targets of other libraries' datasets as datasets of fastload."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray

from fastload.datasets._batch_source import BatchSource, FileImages
from fastload.datasets.cache.originals import FileOriginals
from fastload.datasets.compiled._lazy import info_of
from fastload.datasets.folder import FilesDataset
from fastload.datasets.images import ImageDataset
from fastload.errors import DecodeError
from fastload.images.arrays import Pixels
from fastload.images.header import ImageHeader
from fastload.images.region import Box
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.files import FileList, list_files
from fastload.transforms.windows import Gathered

# A mark in place of an orientation: the file is decoded by the loader of the original dataset.
_THEIRS = 255


class ListedImages(FileImages):
    """Image files, given by their paths.

    JPEG and PNG files of at most 8 bits per channel are decoded by OpenCV, which gives the same pixels as
    PIL. All others, and those that cannot be decoded, are left to `load`, the dataset's own loader, which
    raises its own errors.
    """

    def __init__(self, load: Callable[[str], PIL.Image.Image], *files: Any) -> None:
        self._load = load
        self._infos: dict[int, dict[object, object]] = {}
        super().__init__(*files)

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        index = self._positions[position]
        if self._headers[index, 2] != _THEIRS:
            with contextlib.suppress(DecodeError):
                return super().region(position, box, size)
        pixels = self._decoded.get(position)
        if pixels is None:
            pixels = self._loaded(position)
        height, width = self.sizes[position].tolist()
        if pixels.shape[:2] != (height, width):
            self._headers[index] = 0
            raise DecodeError(
                f"{self._path(index)}: must have {height}x{width} pixels, as before, got "
                f"{pixels.shape[0]}x{pixels.shape[1]}: the file was replaced; the new one is used from now on"
            )
        return box.of(pixels)

    def info(self, position: int) -> dict[object, object]:
        """Return the `info` of one image, as the loader of the original dataset would."""
        if position not in self._infos:
            try:
                return info_of(self._files.get(position) or self._read(position))
            except OSError:
                self._loaded(position)
        return self._infos[position]

    def _opened(self, position: int) -> tuple[bytes, ImageHeader | None]:
        with contextlib.suppress(DecodeError, OSError):  # the loader's own error says more
            data, header = super()._opened(position)
            return data, header if header is not None and header.is_read_alike else None
        return b"", None

    def _whole(self, position: int, data: bytes) -> tuple[Pixels, int]:
        return self._loaded(position), _THEIRS

    def _loaded(self, position: int) -> Pixels:
        image = self._load(self._path(self._positions[position])).convert("RGB")
        self._infos[position] = image.info
        return np.asarray(image)


class ListedFiles(FilesDataset):
    """Image files, listed as (path, target); `load` is the loader of the dataset that lists them."""

    def __init__(self, listed: Sequence[tuple[str, object]], load: Callable[[str], PIL.Image.Image]) -> None:
        self.listed = listed
        self._count = len(listed)  # the user may extend the list
        self._load = load
        super().__init__(None, None, torch.contiguous_format, None, False)

    def __len__(self) -> int:
        return self._count

    def _stored_images(self, positions: NDArray[np.int64]) -> ListedImages:
        indices = positions.tolist()
        return ListedImages(self._load, self._path, self._read, indices, self._headers)

    def _path(self, index: int) -> str:
        return self.listed[index][0]

    def _read(self, index: int) -> bytes:
        with open(self._path(index), "rb", buffering=0) as file:
            return file.read()

    def targets_of(self, positions: NDArray[np.int64], annotations: object = None) -> list[object]:
        return [self.listed[position][1] for position in positions.tolist()]

    def _originals(self) -> FileOriginals:
        files = self._files()
        paths = [files.names[0], files.names[-1]] if len(files) else ["/"]
        return FileOriginals(CacheableFiles(files, os.path.commonpath(paths), alike_only=True))

    def _files(self) -> FileList:
        return list_files("/", (os.path.abspath(path) for path, _ in self.listed))


class Arrays(ImageDataset):
    """Images in one array (images, height, width, channels), uint8, with an array of targets."""

    lies_in_memory = True

    def __init__(self, pixels: Pixels, targets: object) -> None:
        super().__init__(None, None, torch.contiguous_format, None, False)
        # CIFAR's pixels are not contiguous: torchvision only transposes their colour planes.
        self.pixels = np.ascontiguousarray(pixels)
        self._their_targets = targets

    def __len__(self) -> int:
        return len(self.pixels)

    def _stored_images(self, positions: NDArray[np.int64]) -> ArrayImages:
        return ArrayImages(self.pixels, positions)

    def targets_of(self, positions: NDArray[np.int64], annotations: object = None) -> list[object]:
        return self._targets_at(positions).tolist()  # type: ignore[no-any-return]

    def _labels(self, positions: NDArray[np.int64]) -> NDArray[np.generic] | None:
        targets = self._targets_at(positions)
        fits = targets.dtype.kind in "iu" and np.can_cast(targets.dtype, np.int64)
        return targets if fits and targets.ndim == 1 else None

    def _targets_at(self, positions: NDArray[np.int64]) -> NDArray[np.generic]:
        # Read from the list of the original dataset, whose elements may be set at any time.
        targets = self._their_targets
        if isinstance(targets, list):
            return np.array(list(map(targets.__getitem__, positions.tolist())))
        return np.asarray(targets)[positions]


class ArrayImages(BatchSource):
    """Rows of an array of images."""

    def __init__(self, pixels: Pixels, positions: NDArray[np.int64]) -> None:
        self._pixels = pixels
        self._positions = positions
        self.channels = pixels.shape[3]
        self.sizes = np.broadcast_to(pixels.shape[1:3], (len(positions), 2))

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        image: Pixels = self._pixels[self._positions[position]]
        return box.of(image)

    def gathered(self) -> Gathered:
        return Gathered(self._pixels, self._positions)
