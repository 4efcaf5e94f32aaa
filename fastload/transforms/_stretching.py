"""Resizes of a part of an image in place of warps that only scale and move.

A matrix that does not rotate is carried out by `cv2.resize`, which takes a quarter of the time of
`cv2.warpAffine` (0.4 ms against 1.5 ms for 640x640). It samples at positions that depend on where its source
begins, which is a whole pixel; beginning some pixels of the output earlier moves them by fractions.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2

# Beginnings that are tried, of which the first that will do is taken: 17 pixels on average. Of Ultralytics'
# default matrices, 1.4 % find none (with 96, 4.8 %).
_BEGINNINGS = 384

# The greatest distance, in pixels of the source, between the positions wanted and those sampled: the step of
# `cv2.warpAffine`'s own table of weights (INTER_TAB_SIZE in OpenCV's imgproc.hpp).
_NEAR = 1 / 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the source along one axis, whose resize begins `skipped` pixels before the output.

    At a scale of 1 nothing is skipped; `fraction` is then the part of a pixel by which to move.
    """

    start: int
    length: int
    skipped: int
    fraction: float


@functools.lru_cache(16)
def stretch(scale: float, offset: float, size: int) -> Stretch | None:
    """Return the stretch from which `size` pixels come at (pixel - offset) / scale; None if none is near."""
    if scale == 1:
        start = math.floor(-offset + _NEAR)
        fraction = -offset - start
        fraction = 0.0 if fraction <= _NEAR else fraction
        return Stretch(start, size + (fraction > 0), 0, fraction)
    # Resizing from `start`, pixel p is sampled at start + (p + 0.5) / scale - 0.5. The first ones of a
    # magnified stretch would be sampled before its beginning.
    first = max(0, math.ceil((scale - 1) / 2))
    for skipped in range(first, first + _BEGINNINGS):
        start_exactly = 0.5 - (skipped + 0.5 + offset) / scale
        start = round(start_exactly)
        if abs(start_exactly - start) <= _NEAR:
            return Stretch(start, math.ceil((skipped + size) / scale) + 2, skipped, 0.0)
    return None


def is_mostly_empty(stretches: tuple[Stretch, Stretch], size: tuple[int, int]) -> bool:
    """Return True if stretches go so far beyond an image of `size` (height, width) that a warp is faster."""
    across, down = stretches
    return across.length * down.length > 4 * size[0] * size[1]


def stretched(
    pixels: Pixels, scales: tuple[float, float], stretches: tuple[Stretch, Stretch], size: tuple[int, int]
) -> Pixels:
    """Return the `size` (width, height) pixels of stretches' pixels, perhaps as a view.

    Scales and stretches are those along x and y; both scales are 1, or none is.
    """
    across, down = stretches
    if scales == (1, 1):
        return _shifted(pixels, across.fraction, down.fraction)
    resized = cv2.resize(pixels, None, fx=scales[0], fy=scales[1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(
        resized[down.skipped : down.skipped + size[1], across.skipped : across.skipped + size[0]]
    )


def _shifted(pixels: Pixels, across: float, down: float) -> Pixels:
    """Return the pixels moved by a fraction of a pixel; along such an axis there is one fewer."""
    if across:
        pixels = np.asarray(cv2.addWeighted(pixels[:, :-1], 1 - across, pixels[:, 1:], across, 0))
    if down:
        pixels = np.asarray(cv2.addWeighted(pixels[:-1], 1 - down, pixels[1:], down, 0))
    return pixels
