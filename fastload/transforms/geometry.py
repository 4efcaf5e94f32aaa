"""The crops, resizes and flips of a batch as one geometry that a decoder can carry out.

Transforms at the head of a pipeline fold themselves into it one after the other, as long as a `View` of each
image can express them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastload.images.deferred import View
from fastload.images.region import Box
from fastload.images.resize import Resampling

Ints = NDArray[np.int64]
Sizes = Ints  # (images, 2): heights and widths


class Geometry:
    """Geometry of every image of a batch, given the sizes of the sources.

    Attributes:
        boxes: Regions of the sources, (images, 4): top, left, height, width.
        resampling: The method by which regions are resized; None if they are not.
        flips: True for results that are flipped, along rows and along columns, (images, 2).
    """

    def __init__(self, sizes: Sizes) -> None:
        self.boxes: Ints = _whole(sizes)
        self.resampling: Resampling | None = None
        self.flips: NDArray[np.bool_] = np.zeros((len(sizes), 2), bool)
        self._region_sizes = sizes
        self._windows = self.boxes

    @property
    def sizes(self) -> Sizes:
        """Sizes of the results in pixels, (images, 2)."""
        return self._windows[:, 2:]

    def crop(self, boxes: Ints) -> bool:
        """Crop to boxes (images, 4); return False after a flip, or if a box extends beyond its image."""
        is_outside = (boxes[:, :2] < 0) | (boxes[:, :2] + boxes[:, 2:] > self.sizes)
        if self.flips.any() or is_outside.any():
            return False
        if self.resampling is None:
            self.boxes = _box_in_box(self.boxes, boxes)
            self._region_sizes = boxes[:, 2:]
            self._windows = _whole(self._region_sizes)
        else:
            self._windows = _box_in_box(self._windows, boxes)
        return True

    def resize(self, sizes: Sizes, resampling: Resampling) -> bool:
        """Resize to (images, 2) heights and widths; return False after a flip or an earlier resize."""
        if self.resampling is not None or self.flips.any():
            return False
        self.resampling = resampling
        self._region_sizes = sizes
        self._windows = _whole(sizes)
        return True

    def flip(self, axis: int, which: NDArray[np.bool_]) -> bool:
        """Flip some images along an axis, 0 for rows, 1 for columns."""
        self.flips[:, axis] ^= which
        return True

    def views(self) -> Iterator[View]:
        """Yield the geometry of each image."""
        parts = self.boxes, self._region_sizes, self._windows, self.flips
        for box, size, window, flips in zip(*(part.tolist() for part in parts), strict=True):
            yield View(Box(*box), tuple(size), Box(*window), tuple(flips))


def _whole(sizes: Sizes) -> Ints:
    return np.concatenate((np.zeros_like(sizes), sizes), axis=1)


def common_size(sizes: Sizes) -> tuple[int, int] | None:
    """Return the one (height, width) of all images; None if they differ."""
    is_one = sizes.strides[0] == 0 or not (sizes != sizes[0]).any()
    return (int(sizes[0, 0]), int(sizes[0, 1])) if is_one else None


def _box_in_box(outer: Ints, inner: Ints) -> Ints:
    """Convert boxes relative to other boxes into boxes relative to the image."""
    return np.concatenate((outer[:, :2] + inner[:, :2], inner[:, 2:]), axis=1)
