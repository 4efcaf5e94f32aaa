"""Canvases on which several images are placed, as detectors are trained: decoded only where they are seen.

    images ──place──▶ canvas ──matrix──▶ output         canvas = Canvas(size, placements, matrix, output)
                                                        render(canvas, region)

`render` makes only the visible part of the canvas, of regions of the images. One warp for each image straight
into the output was slower than one canvas of the visible part (1.8 ms against 1.7 ms), and leaves seams. A
region is resized with its neighbours, until it begins and ends where the entire image would be sampled,
within `_MOST_SHIFT`.

A matrix that does not rotate is carried out by `cv2.resize`, which takes a quarter of the time of
`cv2.warpAffine` (0.4 ms against 1.5 ms for 640x640). It samples at positions that depend on where its source
begins, which is a whole pixel; beginning some pixels of the output earlier moves them by fractions.

Coordinates of pixels are OpenCV's: (0, 0) is the centre of the first pixel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.contracts import Box
from fastload.images.arrays import DType, Pixels, Size, with_last_axis
from fastload.images.opencv import cv2
from fastload.images.pixel_types import most_of
from fastload.system.buffers import reusable_array

Matrix = NDArray[np.floating]  # (3, 3)
Rectangle = tuple[int, int, int, int]  # x1, y1, x2, y2
Region = Callable[[int, Box, Size], Pixels]  # `Regions.region`

#: Ultralytics' grey, and its class of unlabelled pixels in masks.
GREY, UNLABELLED = 114, 255

_BORDER_CHANNELS = 4  # the most for which OpenCV has a border colour

# Pixels by which a region may be widened, and the shift in source pixels that is accepted then: a tenth
# changes a level by at most a tenth of the step to its neighbour.
_REACH = 24
_MOST_SHIFT = 0.1

# The greatest number of starts of a resize to try. The first one that is close enough is taken, the 17th on
# average. Of Ultralytics' default matrices, 1.4 % have none (with 96, 4.8 %).
_MOST_STARTS = 384

# The greatest distance, in pixels of the source, between the positions wanted and those sampled: the step of
# `cv2.warpAffine`'s own table of weights (INTER_TAB_SIZE in OpenCV's imgproc.hpp).
_NEAR = 1 / 32


class Placement(NamedTuple):
    """An image on the canvas, which may extend beyond it."""

    image: int  # its number
    stored: Size  # before it is resized
    size: Size  # on the canvas
    left: int = 0  # the column of the canvas at which it begins, possibly negative
    top: int = 0

    def within(self, rectangle: Rectangle) -> Rectangle:
        """Return the part of a rectangle of the canvas that it covers, possibly empty."""
        right, bottom = self.left + self.size[1], self.top + self.size[0]
        return _intersection(rectangle, (self.left, self.top, right, bottom))


@dataclass(frozen=True, slots=True)
class AxisResize:
    """Range of the source along one axis, whose resize begins `skipped` pixels before the output."""

    start: int
    length: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Canvas:
    """Images on a canvas, later ones over earlier ones, and the matrix from it to the output."""

    size: Size
    placements: tuple[Placement, ...]
    matrix: Matrix | None  # from the canvas to the output; None if they are the same
    output: Size
    is_exact: bool = False  # True to resize entire images and make the entire canvas, as Ultralytics does
    fill: int = GREY  # where there is no image; beyond the canvas, it is always grey

    @classmethod
    def of(cls, size: Size) -> Canvas:
        """Return the canvas of one image as it is."""
        return cls(size, (Placement(0, size, size),), None, size)

    @property
    def is_plain(self) -> bool:
        """True for one image as it is."""
        return self.matrix is None and self.placements == (Placement(0, self.output, self.output),)

    @property
    def bounds(self) -> Rectangle:
        """The rectangle of the entire canvas."""
        return 0, 0, self.size[1], self.size[0]

    @property
    def axis_resizes(self) -> tuple[AxisResize, AxisResize] | None:
        """Equivalent resizes along x and y; None if the matrix has none."""
        if self.matrix is None or self.is_exact or self.fill != GREY:
            return None
        (a, b, x), (d, e, y), bottom = self.matrix.tolist()
        if b or d or bottom != [0, 0, 1] or a <= 0 or e <= 0:
            return None
        height, width = self.output
        across, down = axis_resize(a, x, width), axis_resize(e, y, height)
        if across is None or down is None:
            return None
        # If they extend so far beyond the canvas, a warp is faster.
        is_mostly_empty = across.length * down.length > 4 * self.size[0] * self.size[1]
        return None if is_mostly_empty else (across, down)


def render(canvas: Canvas, region: Region, channels: int, dtype: DType) -> Pixels:
    """Return the output's pixels, (height, width, channels), in new memory, perhaps as a view.

    `region` is called once for each visible image; it returns pixels of these channels and this dtype.
    """
    if dtype == np.float16:  # which OpenCV neither resizes nor warps

        def in_single(image: int, box: Box, size: Size) -> Pixels:
            return region(image, box, size).astype(np.float32)

        return render(canvas, in_single, channels, np.dtype(np.float32)).astype(dtype)
    matrix, resizes = canvas.matrix, canvas.axis_resizes
    if matrix is None:
        return _placed(canvas, region, canvas.bounds, channels, dtype)
    if resizes is not None:
        across, down = resizes
        box = across.start, down.start, across.start + across.length, down.start + down.length
        pixels = _placed(canvas, region, box, channels, dtype)
        scales = float(matrix[0, 0]), float(matrix[1, 1])
        resized = cv2.resize(pixels, None, fx=scales[0], fy=scales[1], interpolation=cv2.INTER_LINEAR)
        return with_last_axis(Box(down.skipped, across.skipped, *canvas.output).of(np.asarray(resized)))
    box = canvas.bounds if canvas.is_exact else _visible_part(matrix, canvas.output, canvas.size)
    if box[:2] != (0, 0):
        matrix = matrix @ np.array(((1, 0, box[0]), (0, 1, box[1]), (0, 0, 1.0)))
    pixels = _placed(canvas, region, box, channels, dtype)
    return with_last_axis(warped(pixels, matrix, canvas.output, cv2.INTER_LINEAR, GREY))


def warped(pixels: Pixels, matrix: Matrix, size: Size, interpolation: int, level: int) -> Pixels:
    """Warp pixels by a matrix to `size` (height, width); fill with a level of 255."""
    if pixels.ndim == 3 and pixels.shape[2] > _BORDER_CHANNELS:
        groups = np.split(pixels, range(_BORDER_CHANNELS, pixels.shape[2], _BORDER_CHANNELS), axis=2)
        moved = [warped(np.ascontiguousarray(each), matrix, size, interpolation, level) for each in groups]
        return np.concatenate(list(map(with_last_axis, moved)), axis=2)
    out, sides = reusable_array((*size, *pixels.shape[2:]), pixels.dtype), size[::-1]
    colour = (level_in(level, pixels.dtype),) * _BORDER_CHANNELS
    if matrix[2, 0] or matrix[2, 1]:
        cv2.warpPerspective(pixels, matrix, sides, out, interpolation, borderValue=colour)
    else:
        cv2.warpAffine(pixels, matrix[:2], sides, out, interpolation, borderValue=colour)
    return out


def level_in(level: int, dtype: DType) -> float:
    """Return a level of 255 as the number that has the same brightness in a dtype."""
    if dtype == np.uint8:
        return level
    number = level / 255 * most_of(dtype)
    return number if dtype.kind == "f" else round(number)


@functools.lru_cache(16)
def axis_resize(scale: float, offset: float, size: int) -> AxisResize | None:
    """Return the resize that samples `size` pixels at (pixel - offset) / scale; None if none comes near."""
    # Resizing from `start`, pixel p is sampled at start + (p + 0.5) / scale - 0.5. The first ones of a
    # magnified range would be sampled before its start.
    first = max(0, math.ceil((scale - 1) / 2))
    for skipped in range(first, first + _MOST_STARTS):
        start_exactly = 0.5 - (skipped + 0.5 + offset) / scale
        start = round(start_exactly)
        if abs(start_exactly - start) <= _NEAR:
            return AxisResize(start, math.ceil((skipped + size) / scale) + 2, skipped)
    return None


def _intersection(first: Rectangle, second: Rectangle) -> Rectangle:
    """Return the common part of two rectangles, possibly empty."""
    (left, top, right, bottom), (x1, y1, x2, y2) = first, second
    return max(left, x1), max(top, y1), min(right, x2), min(bottom, y2)


def _visible_part(matrix: Matrix, output: Size, canvas: Size) -> Rectangle:
    """Return the part of the canvas that the output shows, and its neighbours."""
    height, width = output
    canvas_height, canvas_width = canvas
    corners = np.array(((-1, width, -1, width), (-1, -1, height, height), (1, 1, 1, 1)), np.float64)
    x, y, scale = np.linalg.inv(matrix.astype(np.float64)) @ corners
    if (scale <= 0).any():  # the horizon lies within the output
        return 0, 0, canvas_width, canvas_height
    x, y = x / scale, y / scale
    left = min(max(int(x.min()) - 1, 0), canvas_width - 1)
    top = min(max(int(y.min()) - 1, 0), canvas_height - 1)
    right = min(max(int(x.max()) + 3, left + 1), canvas_width)
    bottom = min(max(int(y.max()) + 3, top + 1), canvas_height)
    return left, top, right, bottom


def _placed(canvas: Canvas, region: Region, box: Rectangle, channels: int, dtype: DType) -> Pixels:
    """Return the pixels of a box, which may extend beyond the canvas."""
    out = reusable_array((box[3] - box[1], box[2] - box[0], channels), dtype)
    out.fill(level_in(canvas.fill, dtype))
    for each in canvas.placements:
        x1, y1, x2, y2 = each.within(_intersection(box, canvas.bounds))
        if x1 >= x2 or y1 >= y2:
            continue
        cell = out[y1 - box[1] : y2 - box[1], x1 - box[0] : x2 - box[0]]
        image, stored, size, left, top = each
        shown = Box(y1 - top, x1 - left, y2 - y1, x2 - x1)
        if stored == size:
            np.copyto(cell, region(image, shown, cell.shape[:2]))
            continue
        rows, columns = (0, stored[0], 0, size[0]), (0, stored[1], 0, size[1])
        if not canvas.is_exact:
            rows = _span(shown.top, shown.top + shown.height, stored[0], size[0])
            columns = _span(shown.left, shown.left + shown.width, stored[1], size[1])
        resized = rows[3] - rows[2], columns[3] - columns[2]
        part = Box(rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0])
        pixels = region(image, part, resized)
        if resized == cell.shape[:2]:
            cv2.resize(pixels, resized[::-1], dst=cell)
            continue
        pixels = cv2.resize(pixels, resized[::-1], dst=reusable_array((*resized, channels), dtype))
        inner = shown._replace(top=shown.top - rows[2], left=shown.left - columns[2])
        np.copyto(cell, inner.of(with_last_axis(pixels)))
    return out


def _span(first: int, end: int, stored: int, size: int) -> tuple[int, int, int, int]:
    """Return (first, end) of an image's side, and (first, end) of the same resized, around a part of it."""
    factor = stored / size
    shift = 0.5 * factor - 0.5
    low = _fitted(factor, shift, first, -1, min(_REACH, first + 1))
    high = _fitted(factor, shift, end, 1, min(_REACH, size - end + 1))
    low = low if low[2] < _MOST_SHIFT else (0, 0, 0.0)
    high = high if high[2] < _MOST_SHIFT and high[1] > low[1] else (size, stored, 0.0)
    return low[1], high[1], low[0], high[0]


def _fitted(factor: float, shift: float, edge: int, step: int, reach: int) -> tuple[int, int, float]:
    """Return an edge of the result, the nearest edge of the source, and the distance between them.

    Pixel i of the result is pixel `factor` * i + `shift` of the source. Edges are tried from `edge` on, in
    steps, until one lies close to an edge of source pixels.
    """
    best = (edge, 0, math.inf)
    for tried in range(edge, edge + step * reach, step):
        place = factor * (tried - 0.5) + shift + 0.5
        off = abs(place - round(place))
        if off < best[2]:
            best = tried, round(place), off
            if off < _MOST_SHIFT:
                break
    return best
