"""Places of images in Ultralytics' mosaics, and the matrix of its RandomPerspective."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastload.images.arrays import Size
from fastload.images.canvas import Matrix, Placement
from fastload.images.opencv import cv2


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
        left, top = x if image % 2 else x - width, y if image >= 2 else y - height
        placements.append(Placement(image, size, (height, width), left, top))
    return tuple(placements)


def mosaic_of_9(stored: Sequence[Size], imgsz: int) -> tuple[Placement, ...]:
    """Place eight images around the first, whose corner lies half of `imgsz` from that of the canvas."""
    placements: list[Placement] = []
    begin = imgsz - imgsz // 2  # of the nine images' 3 x 3 squares, the canvas shows the middle
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
        placements.append(Placement(image, size, (height, width), begin + left, begin + top))
        last_height, last_width = height, width
    return tuple(placements)


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
