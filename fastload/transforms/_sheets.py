"""Pictures made of several images, as Ultralytics' detectors are trained: decoded only where they are seen.

    images ──place──▶ canvas ──matrix──▶ output         sheet = Sheet(placements, canvas, matrix, output)
                                                        render(sheet, region, out)

`render` makes only the part of the canvas that the output shows, of regions of the images. A matrix that
does not rotate is carried out by a resize; see `stretching`. One warp for each image straight into the output
was slower than one canvas of what is seen (1.8 ms against 1.7 ms), and leaves seams. A region is resized with
its neighbours, until it begins and ends where the whole image would be sampled, within `_MOST_SHIFT`.

Coordinates of pixels are OpenCV's: (0, 0) is the centre of the first pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.images.opencv import cv2
from fastload.images.region import Box
from fastload.system.buffers import reusable_array
from fastload.transforms._pixels import Pixels
from fastload.transforms.stretching import Stretch, is_mostly_empty, stretch, stretched

Matrix = NDArray[np.floating]  # (3, 3)
Size = tuple[int, int]  # height, width
Region = Callable[[int, Box, Size], Pixels]  # of an image, by number: a box, which will be resized to a size

#: Ultralytics' grey, and its class of unlabelled pixels in masks.
GREY, UNLABELLED = 114, 255

# Pixels by which a region may be widened, and the shift in source pixels that is accepted then: a tenth
# changes a level by at most a tenth of the step to its neighbour.
_REACH = 24
_MOST_SHIFT = 0.1


class Placement(NamedTuple):
    """An image on the canvas.

    Attributes:
        image: Its number.
        stored: Its size before it is resized.
        size: Its size on the canvas.
        left: The column of the canvas at which it begins, possibly negative.
        top: The row.
        window: The part of the canvas that it covers: x1, y1, x2, y2.
    """

    image: int
    stored: Size
    size: Size
    left: int
    top: int
    window: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Images on a canvas, later ones over earlier ones, and the canvas's way to the output.

    Attributes:
        canvas: Its size.
        placements: The images; the rest is grey.
        matrix: From the canvas to the output; None if they are the same.
        output: The size of the output.
        flips: The flips of the output, upside down and left to right.
        is_exact: True if images are resized whole, and the whole canvas is made, as Ultralytics does.
        fill: The level of the canvas where there is no image; beyond the canvas, it is 114.
    """

    canvas: Size
    placements: tuple[Placement, ...]
    matrix: Matrix | None
    output: Size
    flips: tuple[bool, bool] = (False, False)
    is_exact: bool = False
    fill: int = GREY


def loaded_size(size: Size, imgsz: int) -> Size:
    """Return the size to which Ultralytics resizes an image: the longer side becomes `imgsz`."""
    height, width = size
    ratio = imgsz / max(size)
    if ratio == 1:
        return size
    return min(math.ceil(height * ratio), imgsz), min(math.ceil(width * ratio), imgsz)


def mosaic_of_4(stored: Sequence[Size], imgsz: int, centre: tuple[int, int]) -> tuple[Placement, ...]:
    """Place four images around the centre, (x, y), of a canvas of twice `imgsz`."""
    x, y = centre
    placements = []
    for image, size in enumerate(stored):
        height, width = loaded_size(size, imgsz)
        left = x if image % 2 else x - width
        top = y if image >= 2 else y - height
        window = max(left, 0), max(top, 0), min(left + width, 2 * imgsz), min(top + height, 2 * imgsz)
        placements.append(Placement(image, size, (height, width), left, top, window))
    return tuple(placements)


def mosaic_of_9(stored: Sequence[Size], imgsz: int) -> tuple[Placement, ...]:
    """Place eight images around the first, whose corner lies half of `imgsz` from that of the canvas."""
    placements: list[Placement] = []
    border = imgsz // 2  # of the nine images' 3 x 3 squares, the canvas shows the middle
    height0, width0 = last_height, last_width = loaded_size(stored[0], imgsz)
    for image, size in enumerate(stored):
        height, width = loaded_size(size, imgsz)
        left, top = (
            (0, 0),
            (0, -height),
            (last_width, -height),
            (width0, 0),
            (width0, last_height),
            (width0 - width, height0),
            (width0 - last_width - width, height0),
            (-width, height0 - height),
            (-width, height0 - last_height - height),
        )[image]
        left, top = left + imgsz, top + imgsz
        window = max(left, 0), max(top, 0), max(left + width, 0), max(top + height, 0)
        x1, y1, x2, y2 = (min(max(side - border, 0), 2 * imgsz) for side in window)
        placement = Placement(image, size, (height, width), left - border, top - border, (x1, y1, x2, y2))
        placements.append(placement)
        last_height, last_width = height, width
    return tuple(placements)


def alone(stored: Size, size: Size, left: int = 0, top: int = 0) -> tuple[Placement]:
    """Place a single image."""
    height, width = size
    return (Placement(0, stored, size, left, top, (left, top, left + width, top + height)),)


def perspective_matrix(
    canvas: Size,
    output: Size,
    angle: float = 0.0,
    scale: float = 1.0,
    shears: tuple[float, float] = (0.0, 0.0),
    shifts: tuple[float, float] = (0.5, 0.5),
    perspectives: tuple[float, float] = (0.0, 0.0),
) -> Matrix:
    """Return Ultralytics' matrix, float32: centre, perspective, rotation and scale, shear, shift.

    The angle and shears are in degrees; shifts are the canvas's centre as a share of the output's width and
    height.
    """
    centred, tilted, turned, sheared, shifted = np.tile(np.eye(3, dtype=np.float32), (5, 1, 1))
    centred[:2, 2] = -canvas[1] / 2, -canvas[0] / 2
    tilted[2, :2] = perspectives
    turned[:2] = cv2.getRotationMatrix2D(center=(0, 0), angle=angle, scale=scale)
    sheared[0, 1], sheared[1, 0] = (math.tan(math.radians(shear)) for shear in shears)
    shifted[:2, 2] = shifts[0] * output[1], shifts[1] * output[0]
    matrix: Matrix = shifted @ sheared @ turned @ tilted @ centred
    return matrix


def render(sheet: Sheet, region: Region, out: Pixels) -> None:
    """Write a sheet's pixels to `out`, (height, width, 3), uint8, whose rows are contiguous.

    `region` is called once for each image of which something is seen.
    """
    if sheet.matrix is None:
        out.fill(sheet.fill)
        _place(sheet, region, (0, 0, *sheet.canvas[::-1]), out)
        _flip(out, sheet.flips)
        return
    resize = _stretches(sheet)
    if resize is None:
        _warp(sheet, region, out, cv2.INTER_LINEAR)
        return
    (across, down), scales = resize
    canvas = _filled((down.length, across.length), sheet.fill)
    box = across.start, down.start, across.start + across.length, down.start + down.length
    _place(sheet, region, box, canvas)
    inner = stretched(canvas, scales, (across, down), sheet.output[::-1])
    if any(sheet.flips):
        cv2.flip(inner, _flip_code(sheet.flips), dst=out)
    else:
        np.copyto(out, inner)


def flipped_matrix(sheet: Sheet) -> Matrix:
    """Return the matrix from the canvas to the output with its flips."""
    matrix = np.eye(3) if sheet.matrix is None else sheet.matrix.astype(np.float64)
    height, width = sheet.output
    upside_down, left_right = sheet.flips
    if upside_down:
        matrix = np.array(((1, 0, 0), (0, -1, height - 1), (0, 0, 1))) @ matrix
    if left_right:
        matrix = np.array(((-1, 0, width - 1), (0, 1, 0), (0, 0, 1))) @ matrix
    return matrix


def _warp(sheet: Sheet, region: Region, out: Pixels, interpolation: int) -> None:
    assert sheet.matrix is not None
    box = (0, 0, *sheet.canvas[::-1]) if sheet.is_exact else _seen(sheet)
    canvas = _filled((box[3] - box[1], box[2] - box[0]), sheet.fill)
    _place(sheet, region, box, canvas)
    matrix = sheet.matrix if sheet.is_exact else flipped_matrix(sheet)
    if box[:2] != (0, 0):
        matrix = matrix @ np.array(((1, 0, box[0]), (0, 1, box[1]), (0, 0, 1.0)))
    size, grey = sheet.output[::-1], (GREY,) * 4
    if sheet.matrix[2, 0] or sheet.matrix[2, 1]:
        cv2.warpPerspective(canvas, matrix, size, dst=out, flags=interpolation, borderValue=grey)
    else:
        cv2.warpAffine(canvas, matrix[:2], size, dst=out, flags=interpolation, borderValue=grey)
    if sheet.is_exact:
        _flip(out, sheet.flips)


def _seen(sheet: Sheet) -> tuple[int, int, int, int]:
    """Return the part of the canvas that the output shows, x1, y1, x2, y2, and its neighbours."""
    assert sheet.matrix is not None
    height, width = sheet.output
    canvas_height, canvas_width = sheet.canvas
    corners = np.array(((-1, width, -1, width), (-1, -1, height, height), (1, 1, 1, 1)), np.float64)
    x, y, scale = np.linalg.inv(sheet.matrix.astype(np.float64)) @ corners
    if (scale <= 0).any():  # the horizon lies within the output
        return 0, 0, canvas_width, canvas_height
    x, y = x / scale, y / scale
    left, top = (
        min(max(int(x.min()) - 1, 0), canvas_width - 1),
        min(max(int(y.min()) - 1, 0), canvas_height - 1),
    )
    right = min(max(int(x.max()) + 3, left + 1), canvas_width)
    return left, top, right, min(max(int(y.max()) + 3, top + 1), canvas_height)


def _stretches(sheet: Sheet) -> tuple[tuple[Stretch, Stretch], tuple[float, float]] | None:
    """Return a resize that does a matrix's work, as stretches and scales along x and y; None if none does."""
    assert sheet.matrix is not None
    (a, b, x), (d, e, y), bottom = sheet.matrix.tolist()
    if sheet.is_exact or b or d or bottom != [0, 0, 1] or a <= 0 or e <= 0 or (a == 1) != (e == 1):
        return None
    height, width = sheet.output
    across, down = stretch(a, x, width), stretch(e, y, height)
    if across is None or down is None or is_mostly_empty((across, down), sheet.canvas):
        return None
    return (across, down), (a, e)


def _fitted(factor: float, shift: float, edge: int, step: int, reach: int) -> tuple[int, int, float]:
    """Return an edge of the result, the edge of the source that belongs to it, and how far that is off.

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


def _place(sheet: Sheet, region: Region, box: tuple[int, int, int, int], canvas: Pixels) -> None:
    """Write the images' parts within a box of the canvas, x1, y1, x2, y2, to an array of that size."""
    for image, stored, size, left, top, window in sheet.placements:
        x1, y1, x2, y2 = (
            max(window[0], box[0]),
            max(window[1], box[1]),
            min(window[2], box[2]),
            min(window[3], box[3]),
        )
        if x1 >= x2 or y1 >= y2:
            continue
        cell = canvas[y1 - box[1] : y2 - box[1], x1 - box[0] : x2 - box[0]]
        x1, x2, y1, y2 = x1 - left, x2 - left, y1 - top, y2 - top
        if stored == size:
            np.copyto(cell, region(image, Box(y1, x1, y2 - y1, x2 - x1), (y2 - y1, x2 - x1)))
            continue
        rows = (0, stored[0], 0, size[0]) if sheet.is_exact else _span(y1, y2, stored[0], size[0])
        columns = (0, stored[1], 0, size[1]) if sheet.is_exact else _span(x1, x2, stored[1], size[1])
        resized = rows[3] - rows[2], columns[3] - columns[2]
        part = Box(rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0])
        pixels = region(image, part, resized)
        if resized == cell.shape[:2]:
            cv2.resize(pixels, resized[::-1], dst=cell)
            continue
        pixels = cv2.resize(pixels, resized[::-1], dst=reusable_array((*resized, 3)))
        np.copyto(cell, pixels[y1 - rows[2] : y2 - rows[2], x1 - columns[2] : x2 - columns[2]])


def _span(first: int, end: int, stored: int, size: int) -> tuple[int, int, int, int]:
    """Return (first, end) of an image's side, and (first, end) of the same resized, around a part of it."""
    factor = stored / size
    shift = 0.5 * factor - 0.5
    low = _fitted(factor, shift, first, -1, min(_REACH, first + 1))
    high = _fitted(factor, shift, end, 1, min(_REACH, size - end + 1))
    low = low if low[2] < _MOST_SHIFT else (0, 0, 0.0)
    high = high if high[2] < _MOST_SHIFT and high[1] > low[1] else (size, stored, 0.0)
    return low[1], high[1], low[0], high[0]


def _filled(size: Size, level: int) -> Pixels:
    canvas = reusable_array((*size, 3))
    canvas.fill(level)
    return canvas


def _flip(out: Pixels, flips: tuple[bool, bool]) -> None:
    if any(flips):
        cv2.flip(out, _flip_code(flips), dst=out)


def _flip_code(flips: tuple[bool, bool]) -> int:
    """Return OpenCV's code: 0 for upside down, 1 for left and right, -1 for both."""
    return -1 if all(flips) else int(flips[1])
