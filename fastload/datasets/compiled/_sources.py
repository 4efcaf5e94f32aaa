"""Images and targets of other libraries' datasets, as datasets of fastload's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets._batch_source import unread_headers
from fastload.datasets.batch import Pixels
from fastload.datasets.cache._attaching import Extent, estimated_bytes
from fastload.datasets.cache.files import FIXED_BYTES, CachedFiles
from fastload.datasets.cache.opening import Opening
from fastload.datasets.compiled._files import ListedImages
from fastload.datasets.images import ImageDataset
from fastload.errors import OptionError
from fastload.images.region import Box
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.files import FileList, list_files
from fastload.sources.protocol import evenly_spaced
from fastload.transforms.geometry import same_sizes
from fastload.transforms.windows import Gathered

_IN_MEMORY = "a dataset that lies in memory needs no cache: leave cache out"

_SAMPLED = 32  # images from which the size of all pixels is estimated


class ListedFiles(ImageDataset):
    """Image files as pairs of a path and a target; `load` is the loader of the dataset that lists them."""

    def __init__(self, listed: Sequence[tuple[str, Any]], load: Callable[[str], Any]) -> None:
        super().__init__(None, None, torch.contiguous_format, None, False)
        self.listed = listed
        self._load = load
        self._headers = unread_headers(len(listed))

    def __len__(self) -> int:
        return len(self._headers)

    def _stored_images(self, positions: NDArray[np.int64]) -> ListedImages:
        indices = positions.tolist()
        paths = [self.listed[index][0] for index in indices]
        return ListedImages(paths, self._load, indices, self._headers, self._cached_samples)

    def targets_of(self, positions: NDArray[np.int64]) -> list[Any]:
        return [self.listed[position][1] for position in positions.tolist()]

    def _labels(self, positions: NDArray[np.int64]) -> None:
        return None

    def _extent(self, wants_pixels: bool) -> Extent:
        count = len(self)
        files = self._files()
        pixels = (
            [self._pixels_bytes(index) for index in evenly_spaced(count, _SAMPLED)] if wants_pixels else []
        )
        digest = hashlib.sha256(bytes(files.names.data) + files.times_ns.tobytes()).hexdigest()
        return Extent(
            identity=f"files {digest}",
            samples=count,
            stored_bytes=int(files.sizes_bytes.clip(min=0).sum()),
            decoded_bytes=estimated_bytes(pixels, count),
            other_bytes=0,
            fixed_bytes=FIXED_BYTES,
            paths=tuple(path for path, _ in self.listed),
        )

    def _through_store(self, opening: Opening) -> CachedFiles:
        return CachedFiles(self._files(), opening)

    def _cacheable_files(self) -> CacheableFiles:
        files = self._files()
        paths = [files.names[0], files.names[-1]] if len(files) else ["/"]
        return CacheableFiles(files, os.path.commonpath(paths), alike_only=True)

    def _files(self) -> FileList:
        return list_files("/", (os.path.abspath(path) for path, _ in self.listed))

    def _pixels_bytes(self, index: int) -> int:
        height, width = self.source_of(np.array([index])).sizes[0].tolist()
        return int(height * width * 3)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_headers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._headers = unread_headers(len(self.listed))


class Arrays(ImageDataset):
    """Images in one array (images, height, width, channels), uint8, with an array of targets."""

    lies_in_memory = True

    def __init__(self, pixels: Pixels, targets: Any) -> None:
        super().__init__(None, None, torch.contiguous_format, None, False)
        # CIFAR's files hold planes of colour, and torchvision only turns the axes of the array.
        self.pixels = np.ascontiguousarray(pixels)
        self._their_targets = targets

    def __len__(self) -> int:
        return len(self.pixels)

    def _stored_images(self, positions: NDArray[np.int64]) -> ArrayImages:
        return ArrayImages(self.pixels, positions)

    def targets_of(self, positions: NDArray[np.int64]) -> list[Any]:
        return self._targets_at(positions).tolist()  # type: ignore[no-any-return]

    def _labels(self, positions: NDArray[np.int64]) -> NDArray[Any] | None:
        targets = self._targets_at(positions)
        fits = targets.dtype.kind in "iu" and np.can_cast(targets.dtype, np.int64)
        return targets if fits and targets.ndim == 1 else None

    def _targets_at(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        # From the dataset's own list, whose elements may be set at any time.
        targets = self._their_targets
        if isinstance(targets, list):
            return np.array([targets[position] for position in positions.tolist()])
        return np.asarray(targets)[positions]

    def _extent(self, wants_pixels: bool) -> Extent:
        raise OptionError(_IN_MEMORY)

    def _cacheable_files(self) -> CacheableFiles:
        raise OptionError(_IN_MEMORY)

    def _through_store(self, opening: Opening) -> CachedFiles:
        raise NotImplementedError


class ArrayImages:
    """Rows of an array of images; see `BatchSource`."""

    gives_own_regions = False

    def __init__(self, pixels: Pixels, positions: NDArray[np.int64]) -> None:
        self._pixels = pixels
        self._positions = positions
        self.channels = pixels.shape[3]
        self.sizes = same_sizes((pixels.shape[1], pixels.shape[2]), len(positions))

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        """See `BatchSource`."""
        image: Pixels = self._pixels[self._positions[position]]
        return box.of(image)

    def orientations(self) -> list[int]:
        """Return 1 for each image: upright."""
        return [1] * len(self._positions)

    def gathered(self) -> Gathered:
        """See `BatchSource`."""
        return Gathered(self._pixels, self._positions)
