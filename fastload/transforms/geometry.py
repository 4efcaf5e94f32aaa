"""What a batch of images becomes by cropping, resizing and flipping alone: what a decoder can be asked for.

    source ──box──▶ region ──resize──▶ size ──window──▶ part of it ──flips──▶ result

Transforms at the head of a pipeline fold themselves into it, one after the other, as long as the form above
can say what they do. Everything is said for the whole batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.images.region import Box
from fastload.images.resize import Resampling

Ints = NDArray[np.int64]
Sizes = Ints  # (images, 2): heights and widths


class View(NamedTuple):
    """What one image becomes.

    Attributes:
        box: The region of the source.
        size: The (height, width) that the region is resized to.
        window: The part of the resized region that is kept.
        flips: Whether it is turned upside down, and whether left and right change places.
    """

    box: Box
    size: tuple[int, int]
    window: Box
    flips: tuple[bool, bool]


class Geometry:
    """What every image of a batch becomes.

    Args:
        sizes: Of the sources, in pixels.

    Attributes:
        resampling: How regions are resized; None where none is.
    """

    def __init__(self, sizes: Sizes) -> None:
        self._boxes = np.concatenate((np.zeros_like(sizes), sizes), axis=1)
        self._resized: Sizes | None = None
        self._windows: Ints | None = None
        self._flips: NDArray[np.bool_] | None = None
        self.resampling: Resampling | None = None

    @property
    def sizes(self) -> Sizes:
        """Of the results, in pixels: (images, 2)."""
        if self._windows is not None:
            return self._windows[:, 2:]
        return self._boxes[:, 2:] if self._resized is None else self._resized

    @property
    def uniform_size(self) -> tuple[int, int] | None:
        """The (height, width) of every result; None where they differ."""
        sizes = self.sizes
        return None if (sizes != sizes[0]).any() else (int(sizes[0, 0]), int(sizes[0, 1]))

    def crop(self, boxes: Ints) -> bool:
        """Crops; boxes are (images, 4): top, left, height, width.

        Returns:
            Whether it could be folded in: nothing was flipped before, and no box leaves its image.
        """
        if self._flips is not None or (boxes[:, :2] < 0).any():
            return False
        if (boxes[:, :2] + boxes[:, 2:] > self.sizes).any():
            return False
        if self._resized is None:
            self._boxes = np.concatenate((self._boxes[:, :2] + boxes[:, :2], boxes[:, 2:]), axis=1)
        elif self._windows is None:
            self._windows = boxes
        else:
            moved = self._windows[:, :2] + boxes[:, :2]
            self._windows = np.concatenate((moved, boxes[:, 2:]), axis=1)
        return True

    def resize(self, sizes: Sizes, resampling: Resampling) -> bool:
        """Resizes to (images, 2) heights and widths; returns whether it is the first to do so."""
        if self._resized is not None or self._flips is not None:
            return False
        self._resized = sizes
        self.resampling = resampling
        return True

    def flip(self, axis: int, which: NDArray[np.bool_]) -> bool:
        """Flips some images along an axis, 0 for rows, 1 for columns."""
        if self._flips is None:
            self._flips = np.zeros((len(which), 2), bool)
        self._flips[:, axis] ^= which
        return True

    def flipped(self) -> NDArray[np.bool_]:
        """Which results are flipped along which axis: (images, 2)."""
        return np.zeros((len(self._boxes), 2), bool) if self._flips is None else self._flips

    @property
    def is_only_crop(self) -> bool:
        """Whether nothing is resized."""
        return self._resized is None

    @property
    def boxes(self) -> Ints:
        """The regions of the sources: (images, 4)."""
        return self._boxes

    def views(self) -> Iterator[View]:
        """What each image becomes."""
        boxes = self._boxes.tolist()
        sizes = (self._boxes[:, 2:] if self._resized is None else self._resized).tolist()
        windows = [[0, 0, *size] for size in sizes] if self._windows is None else self._windows.tolist()
        for box, size, window, flips in zip(boxes, sizes, windows, self.flipped().tolist(), strict=True):
            yield View(Box(*box), tuple(size), Box(*window), tuple(flips))
