"""Affine and other geometric maps of one image, and the sampling of their pixels.

OpenCV computes affine maps of uint8 images. Where its rounding would choose other pixels than torchvision's,
for maps that are not affine, and for other dtypes, whose levels show that it rounds coordinates to 1/32 of a
pixel, PyTorch samples the pixels by the same steps as torchvision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional
from numpy.typing import NDArray

from fastload.images.arrays import Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.transforms.options import FillLevels, to_levels
from fastload.transforms.pixels import contiguous

_FLAGS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR}

_CHANNELS_OF_COLOURS = 4  # OpenCV's border colours have no more

# The error of coordinates in single precision, in an image of 1000 pixels.
_COORDINATE_ERROR = 1e-4

_MOST_PARTS = 32


def inverse_matrix(
    angle: float,
    shift: Sequence[float] = (0.0, 0.0),
    scale: float = 1.0,
    shear: Sequence[float] = (0.0, 0.0),
    center: Sequence[float] = (0.0, 0.0),
) -> tuple[float, float, float, float, float, float]:
    """Return the matrix from points of the result to points of the source, relative to the image's middle.

    The map shears along x, then along y, in degrees; rotates clockwise, in degrees; scales, all around the
    center; and shifts, in pixels. The matrix, (2, 3) row by row, multiplies columns (x, y, 1).
    """
    turn, along_x, along_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    cosine, sine = math.cos(turn), math.sin(turn)
    # Rotation times shear along y, then times shear along x: of determinant 1, so easily inverted.
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


def forward_matrix(
    matrix: Sequence[float], size: tuple[int, int], new_size: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the inverse of a matrix of `inverse_matrix`, (3, 3), from points of the source to the result.

    Points are relative to the upper left corners of the source and of the result.
    """
    (height, width), (new_height, new_width) = size, new_size
    square = np.array((matrix[:3], matrix[3:], (0, 0, 1)), np.float64)
    to_middle = np.array(((1, 0, -width / 2), (0, 1, -height / 2), (0, 0, 1)))
    from_middle = np.array(((1, 0, new_width / 2), (0, 1, new_height / 2), (0, 0, 1)))
    return np.asarray(from_middle @ np.linalg.inv(square) @ to_middle)


def from_middle(center: Sequence[float] | None, height: int, width: int) -> tuple[float, float]:
    """Return a point (x, y), given from the upper left corner, relative to the image's middle."""
    return (0.0, 0.0) if center is None else (center[0] - width / 2, center[1] - height / 2)


def rotated(
    image: Pixels,
    angle: float,
    interpolation: str,
    fill: FillLevels,
    center: Sequence[float] | None = None,
    size: tuple[int, int] | None = None,
) -> Pixels:
    """Rotate an image counter-clockwise by an angle in degrees; see `warped` and `from_middle`."""
    height, width = image.shape[:2]
    size = size or (height, width)
    if center is None and angle % 90 == 0:
        # Without resampling, if the result has the right size.
        turns = int(angle % 360) // 90
        if size == ((width, height) if turns % 2 else (height, width)):
            return np.rot90(image, turns)
    matrix = inverse_matrix(-angle, center=from_middle(center, height, width))
    return warped(image, matrix, interpolation, fill, size)


def warped(
    image: Pixels,
    matrix: Sequence[float],
    interpolation: str,
    fill: FillLevels,
    size: tuple[int, int] | None = None,
) -> Pixels:
    """Map an image (height, width, channels) by a matrix of `inverse_matrix`; a fill of None is 0."""
    image = contiguous(image)
    height, width, channels = image.shape
    new_height, new_width = size or (height, width)
    if image.dtype != np.uint8 or channels > _CHANNELS_OF_COLOURS:
        return sampled(
            image, _affine_grid(matrix, (height, width), (new_height, new_width)), interpolation, fill
        )
    x_of_x, x_of_y, x, y_of_x, y_of_y, y = matrix
    # OpenCV measures from the middle of the first pixel.
    middle_x, middle_y = (new_width - 1) / 2, (new_height - 1) / 2
    x += (width - 1) / 2 - x_of_x * middle_x - x_of_y * middle_y
    y += (height - 1) / 2 - y_of_x * middle_x - y_of_y * middle_y
    if interpolation == "nearest" and (_hits_middle(x_of_x, x_of_y, x) or _hits_middle(y_of_x, y_of_y, y)):
        return sampled(image, _affine_grid(matrix, (height, width), (new_height, new_width)), "nearest", fill)
    affine, sides = np.array(((x_of_x, x_of_y, x), (y_of_x, y_of_y, y))), (new_width, new_height)
    flags, colour = _FLAGS[interpolation] | cv2.WARP_INVERSE_MAP, to_levels(fill, channels, image.dtype)
    pixels = with_last_axis(cv2.warpAffine(image, affine, sides, flags=flags, borderValue=colour))
    if interpolation == "bilinear" and fill is not None:
        shares = cv2.warpAffine(np.full((height, width), 255, np.uint8), affine, sides, flags=flags)
        _fade(pixels.reshape(-1, channels), shares.reshape(-1), np.array(colour[:channels]))
    return pixels


def sampled(image: Pixels, grid: torch.Tensor, interpolation: str, fill: FillLevels) -> Pixels:
    """Sample an image at the points of a grid, as torchvision does.

    `grid` holds points of the source, (1, height, width, 2), float32: x and y, from -1 to 1 within the image.
    A fill of None is 0, and edges are blended with it only once.
    """
    channels = image.shape[2]
    planes = torch.from_numpy(np.moveaxis(contiguous(image), 2, 0).astype(np.float32))[None]
    if fill is not None:
        planes = torch.cat((planes, torch.ones(1, 1, *planes.shape[2:])), dim=1)
    looked_up = torch.nn.functional.grid_sample(planes, grid, interpolation, "zeros", align_corners=False)
    if fill is not None:
        looked_up, share = looked_up[:, :channels], looked_up[:, channels:]
        levels = to_levels(fill, channels, image.dtype)[:channels]
        colour = torch.tensor(levels, dtype=torch.float32).view(1, -1, 1, 1)
        if interpolation == "nearest":
            looked_up = torch.where(share < 0.5, colour, looked_up)
        else:
            looked_up = looked_up.sub(colour).mul_(share).add_(colour)
    pixels: Pixels = looked_up[0].permute(1, 2, 0).contiguous().numpy()
    return (pixels if image.dtype.kind == "f" else np.rint(pixels, out=pixels)).astype(
        image.dtype, copy=False
    )


def even_grid(
    x_bounds: tuple[float, float], y_bounds: tuple[float, float], height: int, width: int, depth: int = 2
) -> torch.Tensor:
    """Return evenly spaced points (x, y), padded with ones to `depth` numbers: (1, height, width, depth)."""
    places = torch.ones(1, height, width, depth)
    places[..., 0] = torch.linspace(*x_bounds, width)
    places[..., 1] = torch.linspace(*y_bounds, height)[:, None]
    return places


def perspective_coefficients(corners: NDArray[np.float64], height: int, width: int) -> torch.Tensor:
    """Return a (3, 3) matrix, all but its last number, 1, from points of the result to those of the source.

    `corners` are the new (x, y) of the image's corners, clockwise from the upper left: (4, 2).
    """
    before = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    rows = []
    for (x, y), (old_x, old_y) in zip(corners.tolist(), before, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -old_x * x, -old_x * y])
        rows.append([0, 0, 0, x, y, 1, -old_y * x, -old_y * y])
    equations = torch.tensor(rows, dtype=torch.float64)
    wanted = torch.tensor(before, dtype=torch.float64).view(8)
    found: torch.Tensor = torch.linalg.lstsq(equations, wanted, driver="gels").solution.float()
    return found


def perspective_grid(corners: NDArray[np.float64], height: int, width: int) -> torch.Tensor:
    """Return a grid for `sampled` that moves an image's corners, computed by torchvision's steps."""
    found = perspective_coefficients(corners, height, width)
    above = found[:6].view(1, 2, 3).transpose(1, 2) / torch.tensor([0.5 * width, 0.5 * height])
    below = torch.cat((found[6:], torch.ones(1))).expand(1, 2, 3).transpose(1, 2)
    places = even_grid((0.5, width - 0.5), (0.5, height - 0.5), height, width, 3).view(1, -1, 3)
    return places.bmm(above).div_(places.bmm(below)).sub_(1.0).view(1, height, width, 2)


def _affine_grid(matrix: Sequence[float], size: tuple[int, int], new_size: tuple[int, int]) -> torch.Tensor:
    """Return a grid for `sampled` that maps an image of one size to a result of another."""
    (height, width), (new_height, new_width) = size, new_size
    bounds = [((1.0 - side) * 0.5, (side - 1.0) * 0.5) for side in (new_width, new_height)]
    places = even_grid(bounds[0], bounds[1], new_height, new_width, 3)
    theta = torch.tensor(matrix, dtype=torch.float32).reshape(1, 2, 3).transpose(1, 2)
    theta = theta / torch.tensor([0.5 * width, 0.5 * height])
    return places.view(1, -1, 3).bmm(theta).view(1, new_height, new_width, 2)


def _hits_middle(of_x: float, of_y: float, first: float) -> bool:
    """Return True if many points of a map lie halfway between two pixels.

    There, rounding errors decide which of the two is nearest, so only torchvision's steps make torchvision's
    choice. If both factors are multiples of 1/n, so are the distances between points. With n above
    `_MOST_PARTS`, at most one point in n is a midpoint: those maps are left to OpenCV, which is ten times as
    fast.
    """
    for parts in range(1, _MOST_PARTS + 1):
        if _is_whole(of_x * parts) and _is_whole(of_y * parts):
            return _is_whole((first - 0.5) * parts)
    return False


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < _COORDINATE_ERROR


def _fade(pixels: Pixels, shares: Pixels, colour: NDArray[np.float64]) -> None:
    """Blend pixels at an edge with the fill colour once more, in place, as torchvision does.

    `pixels` (pixels, channels) are blended once already; `shares` are the weights of the image, 0…255.
    """
    edge = np.flatnonzero((shares > 0) & (shares < 255))
    share = shares[edge, None] / 255
    inside = pixels[edge] - (1 - share) * colour
    pixels[edge] = np.rint(np.clip(share * (inside - colour) + colour, 0, 255))
