"""Padding: what lies beyond an image's edges, of one image or of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.system.buffers import recycled
from fastload.transforms.geometry import Sizes
from fastload.transforms.transform import Parameters, Pixels, Transform, to_colour

# torchvision's padding modes, as OpenCV calls them; `reflect` does not repeat the last row, `symmetric` does.
_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}


class Pad(Transform):
    """Pads an image.

    Args:
        padding: Pixels at each side: one number, (left and right, top and bottom) or (left, top, right,
            bottom).
        fill: The padding's colour: a number, or one for each channel.
        padding_mode: `constant`, `edge`, `reflect` or `symmetric`.

    Raises:
        OptionError: A parameter is none of these.
    """

    takes_any_dtype = True

    def __init__(
        self, padding: int | Sequence[int], fill: float | Sequence[float] = 0, padding_mode: str = "constant"
    ) -> None:
        if padding_mode not in _BORDERS:
            raise OptionError(f"padding_mode must be one of {', '.join(_BORDERS)}, got {padding_mode!r}")
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode
        self.sides = _sides(padding)
        to_colour(fill)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes with padding."""
        left, top, right, bottom = self.sides
        return sizes + np.array([top + bottom, left + right], np.int64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Pads."""
        left, top, right, bottom = self.sides
        return pad(image, (top, bottom), (left, right), self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"Pad(padding={self.padding!r}, fill={self.fill!r}, padding_mode={self.padding_mode!r})"


def pad(
    image: Pixels, rows: tuple[int, int], columns: tuple[int, int], fill: Any = 0, mode: str = "constant"
) -> Pixels:
    """Pads an image with rows before and after, and columns."""
    if not (any(rows) or any(columns)):
        return image
    channels = image.shape[2]
    if mode in ("reflect", "symmetric"):
        _require_enough(image, rows, columns, mode)
    padded = cv2.copyMakeBorder(image, *rows, *columns, _BORDERS[mode], value=_levels(fill, image).tolist())
    return padded.reshape(*padded.shape[:2], channels)


def pad_batch(
    images: Pixels, rows: tuple[int, int], columns: tuple[int, int], fill: Any, mode: str
) -> Pixels:
    """Pads images of one size."""
    if mode != "constant":
        return np.stack([pad(image, rows, columns, fill, mode) for image in images])
    count, height, width, channels = images.shape
    shape = (count, height + sum(rows), width + sum(columns), channels)
    padded = recycled(shape, images.dtype)
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
    """Crops a box that may leave the image; what lies outside is padding."""
    rows = max(0, -top), max(0, top + height - image.shape[0])
    columns = max(0, -left), max(0, left + width - image.shape[1])
    if mode != "constant":
        image = pad(image, rows, columns, fill, mode)
        top, left = top + rows[0], left + columns[0]
        return image[top : top + height, left : left + width]
    # Only what is seen is copied.
    seen = image[max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    if seen.size == 0:
        return np.full((height, width, image.shape[2]), _levels(fill, image)[: image.shape[2]])
    return pad(seen, rows, columns, fill)


def _sides(padding: Any) -> tuple[int, int, int, int]:
    sides = list(padding) if isinstance(padding, (tuple, list)) else [padding]
    if len(sides) in (1, 2):
        sides = [sides[0], sides[-1]] * 2
    if len(sides) != 4 or not all(isinstance(side, int) and side >= 0 for side in sides):
        raise OptionError(
            "padding must be a number of pixels, (left and right, top and bottom) or "
            f"(left, top, right, bottom), got {padding!r}"
        )
    return sides[0], sides[1], sides[2], sides[3]


def _levels(fill: Any, image: Pixels) -> NDArray[Any]:
    """A colour as levels of an image's type, rounded down for uint8, as torchvision does: four."""
    return np.array(to_colour(fill, image.shape[-1])).astype(image.dtype)


def _require_enough(image: Pixels, rows: tuple[int, int], columns: tuple[int, int], mode: str) -> None:
    lacks = int(mode == "reflect")
    if max(rows) > image.shape[0] - lacks or max(columns) > image.shape[1] - lacks:
        raise OptionError(
            f"padding_mode {mode!r} must have enough pixels to mirror, got {max(*rows, *columns)} to pad an "
            f"image of {image.shape[0]}x{image.shape[1]} with"
        )
