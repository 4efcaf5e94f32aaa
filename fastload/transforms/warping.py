"""Rotations and other affine maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.layout import contiguous, with_channels
from fastload.transforms.sampling import affine_grid, sampled
from fastload.transforms.transform import Parameters, Pixels, Transform, to_colour, to_pair, to_resampling

_FLAGS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR}

# What torch's single precision makes of the places of an image of 1000 pixels is as far off.
_NEARLY = 1e-4

_MOST_PARTS = 32

# The fraction of a pixel, torchvision's, below which a rotated corner does not make the picture larger.
_CORNER_TOLERANCE = np.float32(1e-4)


class RandomRotation(Transform):
    """Rotates by a random angle, counter-clockwise.

    Args:
        degrees: The range of angles, or the most to either side.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        expand: Whether the result is as large as the rotated image; else corners are cut off.
        center: (x, y) that stays where it is, in pixels from the upper left corner; the middle if None.
        fill: The colour around the image: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 3

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        self.degrees = _to_range(degrees, "degrees")
        self.interpolation = interpolation
        self.expand = expand
        self.center = None if center is None else to_pair(center, "center")
        self.fill = fill
        self._filter = to_filter(interpolation)
        to_colour(fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Angles in degrees, then the heights and widths of the results."""
        angles = draws.between(*self.degrees)
        results = [
            self._size(angle, height, width)
            for angle, (height, width) in zip(angles.tolist(), sizes.tolist(), strict=True)
        ]
        return np.concatenate((angles[:, None], np.array(results, np.float64).reshape(-1, 2)), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """As drawn."""
        return parameters[:, 1:].astype(np.int64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Rotates."""
        size = int(parameters[1]), int(parameters[2])
        return rotated(image, parameters[0], self._filter, self.fill, self.center, size)

    def _size(self, angle: float, height: int, width: int) -> tuple[int, int]:
        if not self.expand:
            return height, width
        if self.center is None and angle % 90 == 0:
            return (height, width) if angle % 180 == 0 else (width, height)
        # In torchvision's single precision, or whole numbers would come out a pixel larger.
        matrix = np.array(inverse_matrix(-angle, center=_from_middle(self.center, height, width)), np.float32)
        half = np.array([width / 2, height / 2], np.float32)
        corners = half * np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)], np.float32)
        places = corners @ matrix.reshape(2, 3)[:, :2].T + matrix[2::3] + half
        places = np.trunc(places / _CORNER_TOLERANCE) * _CORNER_TOLERANCE
        new_width, new_height = np.ceil(places.max(axis=0)) - np.floor(places.min(axis=0))
        return int(new_height), int(new_width)


class RandomAffine(Transform):
    """Rotates, shifts, scales and shears by random amounts.

    Args:
        degrees: The range of angles, clockwise, or the most to either side.
        translate: The most that an image is shifted, as shares of its width and of its height.
        scale: The range of factors.
        shear: The most to either side along x, in degrees; or a range of it; or ranges along x and along y.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around the image: a number, or one for each channel; None is 0.
        center: (x, y) that stays where it is, in pixels from the upper left corner; the middle if None.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 6

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = _to_range(degrees, "degrees")
        self.translate = None if translate is None else to_pair(translate, "translate")
        self.scale = None if scale is None else to_pair(scale, "scale")
        self.shear = None if shear is None else _to_range(shear, "shear", (2, 4))
        self.interpolation = interpolation
        self.fill = fill
        self.center = None if center is None else to_pair(center, "center")
        self._filter = to_filter(interpolation)
        to_colour(fill)
        if self.translate is not None and not all(0 <= share <= 1 for share in self.translate):
            raise OptionError(f"translate must be shares from 0 to 1, got {translate!r}")
        if self.scale is not None and not all(factor > 0 for factor in self.scale):
            raise OptionError(f"scale must be factors above 0, got {scale!r}")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Angles in degrees, shifts along x and y in pixels, scales, shears along x and y in degrees."""
        numbers = draws.uniform(self.width)
        rows = np.zeros((len(sizes), self.width))
        rows[:, 0] = _between(numbers[:, 0], *self.degrees)
        if self.translate is not None:
            most = np.array(self.translate) * sizes[:, ::-1]
            rows[:, 1:3] = np.rint(_between(numbers[:, 1:3], -most, most))
        rows[:, 3] = 1 if self.scale is None else _between(numbers[:, 3], *self.scale)
        if self.shear is not None:
            rows[:, 4] = _between(numbers[:, 4], *self.shear[:2])
        if self.shear is not None and len(self.shear) == 4:
            rows[:, 5] = _between(numbers[:, 5], *self.shear[2:])
        return rows

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Maps."""
        angle, shift_x, shift_y, scale, shear_x, shear_y = parameters
        center = _from_middle(self.center, *image.shape[:2])
        matrix = inverse_matrix(angle, (shift_x, shift_y), scale, (shear_x, shear_y), center)
        return warped(image, matrix, self._filter, self.fill)


def rotated(
    image: Pixels,
    angle: float,
    interpolation: str,
    fill: Any,
    center: Sequence[float] | None = None,
    size: tuple[int, int] | None = None,
) -> Pixels:
    """Rotates an image.

    Args:
        image: (height, width, channels), uint8.
        angle: In degrees, counter-clockwise.
        interpolation: `nearest` or `bilinear`.
        fill: The colour around it.
        center: (x, y) in pixels from the upper left corner; the middle if None.
        size: (height, width) of the result; the image's if None.
    """
    height, width = image.shape[:2]
    size = size or (height, width)
    if center is None and angle % 90 == 0:
        # Without resampling, where the result has its size.
        turns = int(angle % 360) // 90
        if size == ((width, height) if turns % 2 else (height, width)):
            return np.rot90(image, turns)
    matrix = inverse_matrix(-angle, center=_from_middle(center, height, width))
    return warped(image, matrix, interpolation, fill, size)


def inverse_matrix(
    angle: float,
    shift: Sequence[float] = (0.0, 0.0),
    scale: float = 1.0,
    shear: Sequence[float] = (0.0, 0.0),
    center: Sequence[float] = (0.0, 0.0),
) -> tuple[float, float, float, float, float, float]:
    """Where in the source each place of the result comes from, both measured from the image's middle.

    The map shears along x, then along y, rotates and scales, all around the center, and shifts.

    Args:
        angle: In degrees, clockwise.
        shift: Along x and y, in pixels.
        scale: A factor.
        shear: Along x and y, in degrees.
        center: (x, y), from the middle.

    Returns:
        The rows of a (2, 3) matrix for columns (x, y, 1).
    """
    turn, along_x, along_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    cosine, sine = math.cos(turn), math.sin(turn)
    # Rotation after shear along y, then after shear along x too; of determinant 1, so easily inverted.
    left_x, left_y = cosine + sine * math.tan(along_y), sine - cosine * math.tan(along_y)
    right_x, right_y = -sine - left_x * math.tan(along_x), cosine - left_y * math.tan(along_x)
    x_of_x, x_of_y, y_of_x, y_of_y = right_y / scale, -right_x / scale, -left_y / scale, left_x / scale
    from_x, from_y = center[0] + shift[0], center[1] + shift[1]
    return (
        x_of_x,
        x_of_y,
        center[0] - x_of_x * from_x - x_of_y * from_y,
        y_of_x,
        y_of_y,
        center[1] - y_of_x * from_x - y_of_y * from_y,
    )


def warped(
    image: Pixels,
    matrix: Sequence[float],
    interpolation: str,
    fill: Any,
    size: tuple[int, int] | None = None,
) -> Pixels:
    """Maps an image.

    Args:
        image: (height, width, channels), uint8.
        matrix: What `inverse_matrix` made.
        interpolation: `nearest` or `bilinear`.
        fill: The colour around it; None is 0.
        size: (height, width) of the result; the image's if None.
    """
    image = contiguous(image)
    height, width, channels = image.shape
    new_height, new_width = size or (height, width)
    x_of_x, x_of_y, x, y_of_x, y_of_y, y = matrix
    # OpenCV measures from the middle of the first pixel.
    middle_x, middle_y = (new_width - 1) / 2, (new_height - 1) / 2
    x += (width - 1) / 2 - x_of_x * middle_x - x_of_y * middle_y
    y += (height - 1) / 2 - y_of_x * middle_x - y_of_y * middle_y
    if interpolation == "nearest" and (_is_between(x_of_x, x_of_y, x) or _is_between(y_of_x, y_of_y, y)):
        return sampled(image, affine_grid(matrix, (height, width), (new_height, new_width)), "nearest", fill)
    how: dict[str, Any] = {
        "M": np.array(((x_of_x, x_of_y, x), (y_of_x, y_of_y, y))),
        "dsize": (new_width, new_height),
        "flags": _FLAGS[interpolation] | cv2.WARP_INVERSE_MAP,
    }
    colour = to_colour(fill, channels)
    pixels = with_channels(cv2.warpAffine(image, borderValue=colour, **how), channels)
    if interpolation == "bilinear" and fill is not None:
        shares = cv2.warpAffine(np.full((height, width), 255, np.uint8), **how)
        _fade(pixels.reshape(-1, channels), shares.reshape(-1), np.array(colour[:channels]))
    return pixels


def _is_between(of_x: float, of_y: float, first: float) -> bool:
    """Whether many of the places that a map leads to lie halfway between two pixels.

    There rounding errors decide which of the two is nearest: to take those that torchvision takes, its steps
    have to be taken. If both factors are multiples of a fraction, the places are such multiples apart. Of
    more than `_MOST_PARTS` parts at most one in so many is a half: that is left to OpenCV, ten times as fast.
    """
    for parts in range(1, _MOST_PARTS + 1):
        if _is_whole(of_x * parts) and _is_whole(of_y * parts):
            return _is_whole((first - 0.5) * parts)
    return False


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < _NEARLY


def _fade(pixels: Pixels, shares: Pixels, colour: NDArray[np.float64]) -> None:
    """Mixes pixels at an edge with the colour around as torchvision does: the image's share counts squared.

    Args:
        pixels: (pixels, channels), mixed once; changed in place.
        shares: The image's share of each, 0...255.
        colour: The colour around.
    """
    edge = np.flatnonzero((shares > 0) & (shares < 255))
    share = shares[edge, None] / 255
    inside = pixels[edge] - (1 - share) * colour
    pixels[edge] = np.rint(np.clip(share * (inside - colour) + colour, 0, 255))


def to_filter(interpolation: Any) -> str:
    """The name of an interpolation that maps can be done with.

    Raises:
        OptionError: It is none.
    """
    name = to_resampling(interpolation).filter
    if name not in _FLAGS:
        raise OptionError(f"interpolation must be nearest or bilinear here, got {name!r}")
    return name


def _to_range(value: Any, name: str, lengths: tuple[int, ...] = (2,)) -> tuple[float, ...]:
    if isinstance(value, (int, float)) and value >= 0:
        return -float(value), float(value)
    if isinstance(value, (tuple, list)) and len(value) in lengths:
        return tuple(map(float, value))
    expected = " or ".join(map(str, lengths))
    raise OptionError(f"{name} must be a number of at least 0, or a sequence of {expected}, got {value!r}")


def _between(uniform: NDArray[np.float64], low: Any, high: Any) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = low + (high - low) * uniform
    return numbers


def _from_middle(center: Sequence[float] | None, height: int, width: int) -> tuple[float, float]:
    return (0.0, 0.0) if center is None else (center[0] - width / 2, center[1] - height / 2)
