"""Geometric distortions: RandomRotation, RandomAffine, RandomPerspective, ElasticTransform."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.images.arrays import Pixels, Size
from fastload.images.opencv import cv2
from fastload.transforms import options
from fastload.transforms.annotations import Annotations, Mask, MoveMask, Points
from fastload.transforms.draws import Draws, between, integers, seeds
from fastload.transforms.options import Amount, Fill, Filter
from fastload.transforms.shapes import warping
from fastload.transforms.transform import Parameters, Row, Sizes, Transform

# The fraction of a pixel, torchvision's, below which a rotated corner does not enlarge the result.
_CORNER_TOLERANCE = np.float32(1e-4)


class Distortion(Transform):
    """Base class of transforms that move pixels."""

    takes_any_dtype = True

    def __init__(self, interpolation: Filter, fill: Fill) -> None:
        self.interpolation = interpolation
        self.fill = fill
        self._filter = name = options.to_resampling(interpolation).filter
        is_valid = name in ("nearest", "bilinear")
        options.require(is_valid, "interpolation must be nearest or bilinear here", name)
        self._fill, self._mask_fill = options.to_fills(fill)

    def forward(self, parameters: Row, size: Size) -> tuple[NDArray[np.floating], Size]:
        """Return the matrix, (3, 3), that moves points of an image of a size, and the size of the result."""
        raise NotImplementedError

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        matrix, size = self.forward(parameters, annotations.size)
        return annotations.warped(matrix, size, self.mask_mover(parameters), self._mask_fill)

    def mask_mover(self, parameters: Row) -> MoveMask:
        """Return the function that moves a mask as `apply` moves pixels, with the nearest pixels' levels."""

        def move(mask: Mask, fill: int) -> Mask:
            twin = copy.copy(self)
            twin._filter, twin._fill = "nearest", fill
            return np.ascontiguousarray(twin.apply(mask[:, :, None], parameters)[:, :, 0])

        return move


class RandomRotation(Distortion):
    """Rotates images by a random angle, counter-clockwise; parameters as in torchvision."""

    width = 3

    def __init__(
        self,
        degrees: Amount,
        interpolation: Filter = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Fill = 0,
    ) -> None:
        self.degrees = options.to_span(degrees, "degrees")
        self.expand = expand
        self.center = _to_center(center)
        super().__init__(interpolation, fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw angles in degrees, and compute heights and widths of the results."""
        angles = draws.between(*self.degrees)
        rows = [
            (angle, *self._size(angle, *size))
            for angle, size in zip(angles.tolist(), sizes.tolist(), strict=True)
        ]
        return np.array(rows, np.float64).reshape(-1, self.width)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return parameters[:, 1:].astype(np.int64)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        size = int(parameters[1]), int(parameters[2])
        return warping.rotated(image, parameters[0], self._filter, self._fill, self.center, size)

    def forward(self, parameters: Row, size: Size) -> tuple[NDArray[np.floating], Size]:
        new_size = int(parameters[1]), int(parameters[2])
        matrix = warping.inverse_matrix(-parameters[0], center=warping.from_middle(self.center, *size))
        return warping.forward_matrix(matrix, size, new_size), new_size

    def _size(self, angle: float, height: int, width: int) -> tuple[int, int]:
        if not self.expand:
            return height, width
        if self.center is None and angle % 90 == 0:
            return (height, width) if angle % 180 == 0 else (width, height)
        # In torchvision's single precision; otherwise whole numbers would come out a pixel larger.
        middle = warping.from_middle(self.center, height, width)
        matrix = np.array(warping.inverse_matrix(-angle, center=middle), np.float32)
        half = np.array([width / 2, height / 2], np.float32)
        corners = half * np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)], np.float32)
        places = corners @ matrix.reshape(2, 3)[:, :2].T + matrix[2::3] + half
        places = np.trunc(places / _CORNER_TOLERANCE) * _CORNER_TOLERANCE
        new_width, new_height = np.ceil(places.max(axis=0)) - np.floor(places.min(axis=0))
        return int(new_height), int(new_width)


class RandomAffine(Distortion):
    """Rotates, shifts, scales and shears images by random amounts; parameters as in torchvision."""

    width = 6

    def __init__(
        self,
        degrees: Amount,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Fill = None,
        interpolation: Filter = "nearest",
        fill: Fill = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = options.to_span(degrees, "degrees")
        rule = "translate must be two shares from 0 to 1"
        self.translate = None if translate is None else options.to_numbers(translate, rule, (2,), 0, 1)
        rule = "scale must be two factors above 0"
        self.scale = None if scale is None else options.to_numbers(scale, rule, (2,), options.ABOVE_0)
        angles = options.to_list(shear)
        spans = [angles[:2], angles[2:]] if len(angles) == 4 else [shear]
        self.shear: tuple[float, ...] | None = None
        if shear is not None:
            self.shear = tuple(angle for span in spans for angle in options.to_span(span, "shear"))
        self.center = _to_center(center)
        super().__init__(interpolation, fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw angles in degrees, shifts along x and y in pixels, scales, shears along x and y in degrees."""
        numbers = draws.uniform(self.width)
        rows = np.zeros((len(sizes), self.width))
        rows[:, 0] = between(numbers[:, 0], *self.degrees)
        if self.translate is not None:
            most = np.array(self.translate) * sizes[:, ::-1]
            rows[:, 1:3] = np.rint(between(numbers[:, 1:3], -most, most))
        rows[:, 3] = 1 if self.scale is None else between(numbers[:, 3], *self.scale)
        if self.shear is not None:
            rows[:, 4] = between(numbers[:, 4], *self.shear[:2])
        if self.shear is not None and len(self.shear) == 4:
            rows[:, 5] = between(numbers[:, 5], *self.shear[2:])
        return rows

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        matrix = self._matrix(parameters, image.shape[0], image.shape[1])
        return warping.warped(image, matrix, self._filter, self._fill)

    def forward(self, parameters: Row, size: Size) -> tuple[NDArray[np.floating], Size]:
        return warping.forward_matrix(self._matrix(parameters, *size), size, size), size

    def _matrix(self, parameters: Row, height: int, width: int) -> tuple[float, ...]:
        angle, shift_x, shift_y, scale, shear_x, shear_y = parameters
        center = warping.from_middle(self.center, height, width)
        return warping.inverse_matrix(angle, (shift_x, shift_y), scale, (shear_x, shear_y), center)


class RandomPerspective(Distortion):
    """Moves the corners of images inwards by random amounts; parameters as in torchvision."""

    width = 9

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Filter = "bilinear",
        fill: Fill = 0,
    ) -> None:
        self.distortion_scale = options.to_number(distortion_scale, "distortion_scale", 0, 1)
        self.p = options.to_probability(p)
        super().__init__(interpolation, fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw 1 for changed images, and the new corners, (x, y) clockwise from the upper left."""
        numbers = draws.uniform(self.width)
        last = sizes[:, ::-1] - 1
        bounds = np.tile(np.floor(self.distortion_scale * (sizes[:, ::-1] // 2)) + 1, 4).astype(int)
        moves = integers(numbers[:, 1:], bounds)
        rows = np.empty((len(sizes), self.width))
        rows[:, 0] = numbers[:, 0] < self.p
        is_far = np.array([0, 0, 1, 0, 1, 1, 0, 1], bool)
        rows[:, 1:] = np.where(is_far, np.tile(last, 4) - moves, moves)
        return rows

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        if not parameters[0]:
            return image
        grid = warping.perspective_grid(np.reshape(parameters[1:], (4, 2)), *image.shape[:2])
        return warping.sampled(image, grid, self._filter, self._fill)

    def forward(self, parameters: Row, size: Size) -> tuple[NDArray[np.floating], Size]:
        found = warping.perspective_coefficients(np.reshape(parameters[1:], (4, 2)), *size)
        return np.linalg.inv(np.append(found.numpy(), 1).reshape(3, 3)), size

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        return super().apply_to(annotations, parameters) if parameters[0] else annotations


class ElasticTransform(Distortion):
    """Moves each pixel by a random amount, similar to that of its neighbours.

    Parameters are as in torchvision; both numbers of `sigma` are above 0, or both 0.
    """

    width = 1

    def __init__(
        self,
        alpha: Amount = 50.0,
        sigma: Amount = 5.0,
        interpolation: Filter = "bilinear",
        fill: Fill = 0,
    ) -> None:
        rule = "must be a number, or one along x and one along y"
        self.alpha = options.to_two(alpha, f"alpha {rule}")
        self.sigma = options.to_two(sigma, f"sigma {rule}")
        super().__init__(interpolation, fill)
        is_valid = min(self.sigma) > 0 or min(self.sigma) == max(self.sigma) == 0
        options.require(is_valid, "sigma must be above 0 along both sides, or 0 along both", sigma)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw seeds of the displacements."""
        return seeds(draws.uniform(1))

    def displacement(self, seed: float, height: int, width: int) -> torch.Tensor:
        """Return the movement of each pixel along x and y, relative to half a side: (1, height, width, 2)."""
        bits = np.random.Philox(key=int(seed)).random_raw(2 * height * width)
        moves = ((bits >> np.uint64(40)) * (2.0 / (1 << 24)) - 1).astype(np.float32).reshape(2, height, width)
        shares = []
        for move, deviation, alpha, side in zip(moves, self.sigma, self.alpha, (width, height), strict=True):
            if deviation > 0:
                kernel = (int(8 * deviation + 1) | 1,) * 2
                along_x, along_y = self.sigma
                cv2.GaussianBlur(move, kernel, along_x, move, along_y, cv2.BORDER_REFLECT_101)
            shares.append(move * (alpha / side))
        return torch.from_numpy(np.stack(shares, axis=2)[None].astype(np.float32))

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        height, width = image.shape[:2]
        x_bounds, y_bounds = (((1 - side) / side, (side - 1) / side) for side in (width, height))
        places = warping.even_grid(x_bounds, y_bounds, height, width)
        moved = places + self.displacement(parameters[0], height, width)
        return warping.sampled(image, moved, self._filter, self._fill)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        height, width = annotations.size
        # The movement is one of points of the result: that of a source's point is about the opposite.
        moves = self.displacement(parameters[0], height, width)[0].numpy() * (width / 2, height / 2)

        def move(points: Points) -> Points:
            places = np.clip(np.floor(points), 0, (width - 1, height - 1)).astype(np.int64)
            return np.asarray(points - moves[places[..., 1], places[..., 0]])

        return annotations.mapped(move, (height, width), self.mask_mover(parameters), self._mask_fill)


def _to_center(center: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if center is None else options.to_numbers(center, "center must be two numbers", (2,))
