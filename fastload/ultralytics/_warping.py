"""Warps of pictures: what a matrix shows of an image, in one step.

Without rotation, shear and perspective, which Ultralytics leaves out unless it is asked for them, a warp is a
resize of a box. It takes 0.5 ms instead of 1.5 to 2.3 ms at 640×640.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.images.opencv import cv2
from fastload.ultralytics._pictures import GREY, Canvas, Node, Pixels, placed

# `cv2.resize` samples at positions that depend on where its source begins, which is a whole pixel. Beginning
# some pixels of the output earlier moves them by fractions; this many beginnings are tried.
_BEGINNINGS = 96

# The greatest distance, in pixels of the source, between the positions wanted and those sampled: the step of
# `cv2.warpAffine`'s own table of weights (INTER_TAB_SIZE in OpenCV's imgproc.hpp).
_NEAR = 1 / 32


@dataclass(frozen=True, slots=True)
class Warped:
    """The image of `size` (width, height) that a 3×3 matrix makes of another, grey where that ends."""

    node: Node
    matrix: NDArray[Any]
    size: tuple[int, int]
    is_perspective: bool

    @property
    def is_rgb(self) -> bool:
        """See `Node`."""
        return self.node.is_rgb

    @property
    def shape(self) -> tuple[int, int, int]:
        """See `Node`."""
        return self.size[1], self.size[0], self.node.shape[2]

    def region(self, left: int, top: int, width: int, height: int) -> Pixels:
        """See `Node`."""
        pixels = self._resized()
        if pixels is None:
            pixels = self._warped()
        return pixels[top : top + height, left : left + width]

    def _warped(self) -> Pixels:
        height, width, _ = self.node.shape
        source = self.node.region(0, 0, width, height)
        border = (GREY, GREY, GREY, GREY)
        if self.is_perspective:
            return np.asarray(cv2.warpPerspective(source, self.matrix, self.size, borderValue=border))
        return np.asarray(cv2.warpAffine(source, self.matrix[:2], self.size, borderValue=border))

    def _resized(self) -> Pixels | None:
        """Return the image by a resize, or None if that would sample other positions."""
        (scale, skew, left), (skew_too, scale_too, top) = self.matrix[:2].tolist()
        if self.is_perspective or skew or skew_too or scale != scale_too or scale <= 0:
            return None
        across, down = axis(scale, left, self.size[0]), axis(scale, top, self.size[1])
        if across is None or down is None:
            return None
        height, width, _ = self.node.shape
        if across.length * down.length > 4 * height * width:
            return None  # mostly grey
        # A canvas is grey beside its images, whatever box is asked for.
        canvas = self.node if isinstance(self.node, Canvas) and self.node.fill == GREY else None
        canvas = placed(self.node, 0, 0, (width, height)) if canvas is None else canvas
        pixels = canvas.region(across.start, down.start, across.length, down.length)
        if scale == 1:
            return _shifted(pixels, across.fraction, down.fraction)
        resized = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
        return np.asarray(
            resized[
                down.skipped : down.skipped + self.size[1], across.skipped : across.skipped + self.size[0]
            ]
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of the source along one axis, whose resize begins `skipped` pixels before the output.

    At a scale of 1 nothing is skipped; `fraction` is then the part of a pixel by which to move.
    """

    start: int
    length: int
    skipped: int
    fraction: float


def axis(scale: float, offset: float, size: int) -> Axis | None:
    """Return the stretch from which `size` pixels come at (pixel − offset) / scale; None if none is near."""
    if scale == 1:
        start = math.floor(-offset + _NEAR)
        fraction = -offset - start
        fraction = 0.0 if fraction <= _NEAR else fraction
        return Axis(start, size + (fraction > 0), 0, fraction)
    # Resizing from `start`, pixel p is sampled at start + (p + 0.5) / scale - 0.5. The first ones of a
    # magnified stretch would be sampled before its beginning.
    skipped = np.arange(_BEGINNINGS) + max(0, math.ceil((scale - 1) / 2))
    starts = 0.5 - (skipped + 0.5) / scale - offset / scale
    distances = np.abs(starts - np.rint(starts))
    best = int((distances <= _NEAR).argmax())  # the first
    if distances[best] > _NEAR:
        return None
    count = int(skipped[best])
    return Axis(round(float(starts[best])), math.ceil((count + size) / scale) + 2, count, 0.0)


def _shifted(pixels: Pixels, across: float, down: float) -> Pixels:
    """Return the pixels moved by a fraction of a pixel; along such an axis there is one fewer."""
    if across:
        pixels = np.asarray(cv2.addWeighted(pixels[:, :-1], 1 - across, pixels[:, 1:], across, 0))
    if down:
        pixels = np.asarray(cv2.addWeighted(pixels[:-1], 1 - down, pixels[1:], down, 0))
    return pixels
