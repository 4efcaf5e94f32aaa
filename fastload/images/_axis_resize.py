"""Resizes along an axis of an image, in place of warps that only scale and move.

A matrix that does not rotate is carried out by `cv2.resize`, which takes a quarter of the time of
`cv2.warpAffine` (0.4 ms against 1.5 ms for 640x640). It samples at positions that depend on where its source
begins, which is a whole pixel; beginning some pixels of the output earlier moves them by fractions.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fastload.images.arrays import Pixels, Size
from fastload.images.opencv import cv2

# The greatest number of starts to try. The first one that is close enough is taken, the 17th on average. Of
# Ultralytics' default matrices, 1.4 % have none (with 96, 4.8 %).
_MOST_STARTS = 384

# The greatest distance, in pixels of the source, between the positions wanted and those sampled: the step of
# `cv2.warpAffine`'s own table of weights (INTER_TAB_SIZE in OpenCV's imgproc.hpp).
_NEAR = 1 / 32


@dataclass(frozen=True, slots=True)
class AxisResize:
    """Range of the source along one axis, whose resize begins `skipped` pixels before the output.

    At a scale of 1 nothing is skipped; `fraction` is then the part of a pixel by which to move.
    """

    start: int
    length: int
    skipped: int
    fraction: float


@functools.lru_cache(16)
def axis_resize(scale: float, offset: float, size: int) -> AxisResize | None:
    """Return the resize that samples `size` pixels at (pixel - offset) / scale; None if none comes near."""
    if scale == 1:
        start = math.floor(-offset + _NEAR)
        fraction = -offset - start
        fraction = 0.0 if fraction <= _NEAR else fraction
        return AxisResize(start, size + (fraction > 0), 0, fraction)
    # Resizing from `start`, pixel p is sampled at start + (p + 0.5) / scale - 0.5. The first ones of a
    # magnified range would be sampled before its start.
    first = max(0, math.ceil((scale - 1) / 2))
    for skipped in range(first, first + _MOST_STARTS):
        start_exactly = 0.5 - (skipped + 0.5 + offset) / scale
        start = round(start_exactly)
        if abs(start_exactly - start) <= _NEAR:
            return AxisResize(start, math.ceil((skipped + size) / scale) + 2, skipped, 0.0)
    return None


def is_mostly_empty(resizes: tuple[AxisResize, AxisResize], size: Size) -> bool:
    """Return True if ranges extend so far beyond an image of `size` that a warp is faster."""
    across, down = resizes
    return across.length * down.length > 4 * size[0] * size[1]


def resize_axes(
    pixels: Pixels, scales: tuple[float, float], resizes: tuple[AxisResize, AxisResize], size: Size
) -> Pixels:
    """Resize the pixels of two ranges to `size`, perhaps as a view.

    Scales and resizes are those along x and y; both scales are 1, or none is.
    """
    across, down = resizes
    if scales == (1, 1):
        return _shifted(pixels, across.fraction, down.fraction)
    resized = cv2.resize(pixels, None, fx=scales[0], fy=scales[1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(
        resized[down.skipped : down.skipped + size[0], across.skipped : across.skipped + size[1]]
    )


def _shifted(pixels: Pixels, across: float, down: float) -> Pixels:
    """Return the pixels moved by a fraction of a pixel; along such an axis there is one fewer."""
    if across:
        pixels = np.asarray(cv2.addWeighted(pixels[:, :-1], 1 - across, pixels[:, 1:], across, 0))
    if down:
        pixels = np.asarray(cv2.addWeighted(pixels[:-1], 1 - down, pixels[1:], down, 0))
    return pixels
