"""Padding: Pad, RandomZoomOut, and crops of boxes that leave the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array
from fastload.transforms._pixels import with_last_axis
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.options import Fill, Size, require, to_colour, to_list, to_probability, to_range
from fastload.transforms.transform import Parameters, Pixels, Transform

# torchvision's padding modes and OpenCV's; `reflect` does not repeat the last row, `symmetric` does.
_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}


class Pad(Transform):
    """Pads images.

    Args:
        padding: Pixels on each side: one number, (left and right, top and bottom) or (left, top, right,
            bottom).
        fill: The colour of the padding: a number, or one for each channel.
        padding_mode: `constant`, `edge`, `reflect` or `symmetric`.
    """

    takes_any_dtype = True

    def __init__(self, padding: Size, fill: Fill = 0, padding_mode: str = "constant") -> None:
        require(padding_mode in _BORDERS, f"padding_mode must be one of {', '.join(_BORDERS)}", padding_mode)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode
        self.sides = _to_sides(padding)
        to_colour(fill)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes with padding."""
        left, top, right, bottom = self.sides
        return sizes + np.array([top + bottom, left + right], np.int64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Pad the image."""
        left, top, right, bottom = self.sides
        return pad(image, (top, bottom), (left, right), self.fill, self.padding_mode)


class BoxCrop(Transform):
    """Base class of crops; the parameters are a box (top, left, height, width) that may leave the image."""

    width = 4
    takes_any_dtype = True

    fill: Fill = 0
    padding_mode = "constant"

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes of the boxes."""
        return parameters[:, 2:].astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """Add the crop to a geometry, if no padding is needed."""
        return geometry.crop(parameters.astype(np.int64))

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Crop and pad the image."""
        top, left, height, width = map(int, parameters)
        return crop_padded(image, top, left, height, width, self.fill, self.padding_mode)


class RandomZoomOut(BoxCrop):
    """Places images somewhere on a larger canvas of one colour, at random.

    Liu et al., "SSD: Single Shot MultiBox Detector", https://arxiv.org/abs/1512.02325.

    Args:
        fill: The colour of the canvas: a number, or one for each channel.
        side_range: Range of the canvas's sides relative to the image's, from 1 up.
        p: The probability that an image is placed on a larger canvas.
    """

    def __init__(self, fill: Fill = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5) -> None:
        self.fill = fill
        self.side_range = to_range(side_range, "side_range", 1)
        self.p = to_probability(p)
        to_colour(fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the canvas, as a box around the image."""
        numbers = draws.uniform(4)
        low, high = self.side_range
        factors = np.where(numbers[:, :1] < self.p, low + (high - low) * numbers[:, 1:2], 1)
        canvas = np.floor(sizes * factors)
        offsets = np.floor((canvas - sizes) * numbers[:, 2:])
        return np.concatenate((-offsets, canvas), axis=1)


def pad(
    image: Pixels, rows: tuple[int, int], columns: tuple[int, int], fill: Any = 0, mode: str = "constant"
) -> Pixels:
    """Pad an image with rows above and below, and columns to the left and right."""
    if not (any(rows) or any(columns)):
        return image
    if mode in ("reflect", "symmetric"):
        _require_enough(image, rows, columns, mode)
    colour = _levels(fill, image).tolist()
    return with_last_axis(cv2.copyMakeBorder(image, *rows, *columns, _BORDERS[mode], value=colour))


def pad_batch(
    images: Pixels, rows: tuple[int, int], columns: tuple[int, int], fill: Any, mode: str
) -> Pixels:
    """Pad images of one size; see `pad`."""
    if mode != "constant":
        return np.stack([pad(image, rows, columns, fill, mode) for image in images])
    count, height, width, channels = images.shape
    shape = (count, height + sum(rows), width + sum(columns), channels)
    padded = reusable_array(shape, images.dtype)
    bottom, right = rows[0] + height, columns[0] + width
    # A row at a time: colours of three numbers each would be as many small copies as there are pixels.
    colours = np.tile(_levels(fill, images)[:channels], shape[2])
    flat = padded.reshape(count, shape[1], shape[2] * channels)
    flat[:, : rows[0]] = colours
    flat[:, bottom:] = colours
    flat[:, rows[0] : bottom, : columns[0] * channels] = colours[: columns[0] * channels]
    flat[:, rows[0] : bottom, right * channels :] = colours[right * channels :]
    padded[:, rows[0] : bottom, columns[0] : right] = images
    return padded


def crop_padded(
    image: Pixels, top: int, left: int, height: int, width: int, fill: Any = 0, mode: str = "constant"
) -> Pixels:
    """Crop a box, padded where it leaves the image."""
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


def _to_sides(padding: Any) -> tuple[int, int, int, int]:
    sides = to_list(padding)
    if len(sides) in (1, 2):
        sides = [sides[0], sides[-1]] * 2
    is_valid = len(sides) == 4 and all(isinstance(side, int) and side >= 0 for side in sides)
    rule = (
        "padding must be a number of pixels, (left and right, top and bottom) or (left, top, right, bottom)"
    )
    require(is_valid, rule, padding)
    return sides[0], sides[1], sides[2], sides[3]


def _levels(fill: Any, image: Pixels) -> NDArray[Any]:
    """Return a colour as four levels of an image's dtype, rounded down for uint8, as torchvision does."""
    return np.array(to_colour(fill, image.shape[-1])).astype(image.dtype)


def _require_enough(image: Pixels, rows: tuple[int, int], columns: tuple[int, int], mode: str) -> None:
    lacks = int(mode == "reflect")
    if max(rows) > image.shape[0] - lacks or max(columns) > image.shape[1] - lacks:
        raise OptionError(
            f"padding_mode {mode!r} must have enough pixels to mirror, got {max(*rows, *columns)} to pad an "
            f"image of {image.shape[0]}x{image.shape[1]} with"
        )
