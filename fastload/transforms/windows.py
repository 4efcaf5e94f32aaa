"""Padding, and windows that may extend beyond the edges of one image or of each image of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.transforms.options import FillColour, to_levels

# torchvision's padding modes and OpenCV's; `reflect` does not repeat the last row, `symmetric` does.
BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}

_Sides = tuple[int, int]  # pixels before and after

_OPENCV_DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float32", "float64")


class Gathered(NamedTuple):
    """A batch as rows of an array (count, height, width, channels), contiguous, possibly a mapped file."""

    images: Pixels
    rows: NDArray[np.int64]


def pad(image: Pixels, rows: _Sides, columns: _Sides, fill: FillColour = 0, mode: str = "constant") -> Pixels:
    """Pad an image with rows above and below, and columns to the left and right."""
    if not (any(rows) or any(columns)):
        return image
    if mode in ("reflect", "symmetric"):
        _require_enough(image, rows, columns, mode)
    if image.dtype.name not in _OPENCV_DTYPES:
        return _padded_by_numpy(image, rows, columns, fill, mode)
    colour = _levels(fill, image).tolist()
    return with_last_axis(cv2.copyMakeBorder(image, *rows, *columns, BORDERS[mode], value=colour))


def crop_padded(
    image: Pixels, top: int, left: int, height: int, width: int, fill: FillColour = 0, mode: str = "constant"
) -> Pixels:
    """Crop a box, padded where it extends beyond the image."""
    rows = max(0, -top), max(0, top + height - image.shape[0])
    columns = max(0, -left), max(0, left + width - image.shape[1])
    if mode != "constant":
        image = pad(image, rows, columns, fill, mode)
        top, left = top + rows[0], left + columns[0]
        return image[top : top + height, left : left + width]
    # Crop before padding, so that only pixels of the result are copied.
    inside = image[max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    if inside.size == 0:
        return np.full((height, width, image.shape[2]), _levels(fill, image)[: image.shape[2]])
    return pad(inside, rows, columns, fill)


def windows_into(gathered: Gathered, offsets: NDArray[np.int64], out: Pixels) -> None:
    """Copy a window of each image to `out` (images, window height, window width, channels), contiguous.

    `offsets` are top and left of each window, (images, 2); all windows lie within the images.
    """
    total, height, width, channels = gathered.images.shape
    pixel_bytes, length = channels * out.itemsize, out.shape[2]
    # Every possible row of a window is one element of this array, so each is copied in one go. (torch's
    # index_select is faster in one thread; in several, when the cores are busy, it takes ten times as long.)
    run = np.dtype((np.void, length * pixel_bytes))
    shape, strides = (total * height * width - length + 1,), (pixel_bytes,)
    runs: NDArray[np.void] = np.ndarray(shape, run, gathered.images.data, strides=strides)
    rows = gathered.rows[:, None] * height + offsets[:, :1] + np.arange(out.shape[1])
    out.reshape(-1).view(run)[:] = runs[(rows * width + offsets[:, 1:]).reshape(-1)]


def _padded_by_numpy(image: Pixels, rows: _Sides, columns: _Sides, fill: FillColour, mode: Any) -> Pixels:
    """Pad pixels of a dtype that OpenCV lacks: it would turn int64 into int32."""
    if mode != "constant":
        return np.pad(image, (rows, columns, (0, 0)), mode)
    height, width, channels = image.shape
    padded = np.empty((sum(rows) + height, sum(columns) + width, channels), image.dtype)
    padded[:] = _levels(fill, image)[:channels]
    padded[rows[0] : rows[0] + height, columns[0] : columns[0] + width] = image
    return padded


def _levels(fill: FillColour, image: Pixels) -> Pixels:
    """Return a colour as four levels of an image's dtype, rounded down for uint8, as torchvision does."""
    return np.array(to_levels(fill, image)).astype(image.dtype)


def _require_enough(image: Pixels, rows: _Sides, columns: _Sides, mode: str) -> None:
    lacks = int(mode == "reflect")
    if max(rows) > image.shape[0] - lacks or max(columns) > image.shape[1] - lacks:
        raise OptionError(
            f"padding_mode {mode!r} must have enough pixels to mirror, got {max(*rows, *columns)} to add to "
            f"an image of {image.shape[0]}x{image.shape[1]}"
        )
