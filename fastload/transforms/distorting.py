"""Maps that are not affine: RandomPerspective, ElasticTransform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.noise import SEEDS
from fastload.transforms.sampling import sampled
from fastload.transforms.transform import Parameters, Pixels, Transform, to_colour, to_probability
from fastload.transforms.warping import to_filter


class RandomPerspective(Transform):
    """Moves the corners of some images inwards, each by a random amount.

    Args:
        distortion_scale: The most that a corner is moved, as a share of half a side.
        p: The share of images that are.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around the image: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 9

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        if not isinstance(distortion_scale, (int, float)) or not 0 <= distortion_scale <= 1:
            raise OptionError(f"distortion_scale must be from 0 to 1, got {distortion_scale!r}")
        self.distortion_scale = distortion_scale
        self.p = to_probability(p)
        self.interpolation = interpolation
        self.fill = fill
        self._filter = to_filter(interpolation)
        to_colour(fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """1 where an image is changed; where its corners go, (x, y) clockwise from the upper left."""
        numbers = draws.uniform(self.width)
        last = sizes[:, ::-1] - 1
        moves = integers(
            numbers[:, 1:],
            np.tile(np.floor(self.distortion_scale * (sizes[:, ::-1] // 2)) + 1, 4).astype(int),
        )
        rows = np.empty((len(sizes), self.width))
        rows[:, 0] = numbers[:, 0] < self.p
        is_far = np.array([0, 0, 1, 0, 1, 1, 0, 1], bool)
        rows[:, 1:] = np.where(is_far, np.tile(last, 4) - moves, moves)
        return rows

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Moves the corners."""
        if not parameters[0]:
            return image
        grid = _perspective_grid(np.array(parameters[1:]).reshape(4, 2), image.shape[0], image.shape[1])
        return sampled(image, grid, self._filter, self.fill)


class ElasticTransform(Transform):
    """Moves each pixel by a random amount, of which those nearby are alike.

    Args:
        alpha: How far, or (along x, along y).
        sigma: The deviation of the blur that makes neighbours alike, in pixels, or (along x, along y).
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around the image: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 1

    def __init__(
        self,
        alpha: float | Sequence[float] = 50.0,
        sigma: float | Sequence[float] = 5.0,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        self.alpha = _to_two(alpha, "alpha")
        self.sigma = _to_two(sigma, "sigma")
        self.interpolation = interpolation
        self.fill = fill
        self._filter = to_filter(interpolation)
        to_colour(fill)
        if min(self.sigma) < 0 or (min(self.sigma) == 0 and max(self.sigma) > 0):
            raise OptionError(f"sigma must be above 0 along both sides, or 0 along both, got {sigma!r}")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Seeds of the displacements."""
        return np.floor(draws.uniform(1) * SEEDS)

    def displacement(self, seed: float, height: int, width: int) -> torch.Tensor:
        """How far pixels move: (1, height, width, 2), along x and y, as shares of half a side."""
        bits = np.random.Philox(key=int(seed)).random_raw(2 * height * width)
        moves = ((bits >> np.uint64(40)) * (2.0 / (1 << 24)) - 1).astype(np.float32).reshape(2, height, width)
        shares = []
        for move, deviation, alpha, side in zip(moves, self.sigma, self.alpha, (width, height), strict=True):
            if deviation > 0:
                reach = int(8 * deviation + 1) | 1
                move[:] = cv2.GaussianBlur(
                    move,
                    (reach, reach),
                    self.sigma[0],
                    sigmaY=self.sigma[1],
                    borderType=cv2.BORDER_REFLECT_101,
                )
            shares.append(move.reshape(height, width) * (alpha / side))
        return torch.from_numpy(np.stack(shares, axis=2)[None].astype(np.float32))

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Moves pixels."""
        height, width = image.shape[:2]
        places = torch.empty(1, height, width, 2)
        places[..., 0] = torch.linspace((1 - width) / width, (width - 1) / width, width)
        places[..., 1] = torch.linspace((1 - height) / height, (height - 1) / height, height)[:, None]
        grid = places + self.displacement(parameters[0], height, width)
        return sampled(image, grid, self._filter, self.fill)


def _perspective_grid(corners: Any, height: int, width: int) -> torch.Tensor:
    """Where pixels come from when an image's corners go to others, by torchvision's steps; see `sampled`."""
    before = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    rows = []
    for (x, y), (old_x, old_y) in zip(corners.tolist(), before, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -old_x * x, -old_x * y])
        rows.append([0, 0, 0, x, y, 1, -old_y * x, -old_y * y])
    equations = torch.tensor(rows, dtype=torch.float64)
    wanted = torch.tensor(before, dtype=torch.float64).view(8)
    found = torch.linalg.lstsq(equations, wanted, driver="gels").solution.float()
    above = found[:6].view(1, 2, 3).transpose(1, 2) / torch.tensor([0.5 * width, 0.5 * height])
    below = torch.cat((found[6:], torch.ones(1))).expand(1, 2, 3).transpose(1, 2)
    places = torch.ones(1, height, width, 3)
    places[..., 0] = torch.linspace(0.5, width - 0.5, width)
    places[..., 1] = torch.linspace(0.5, height - 0.5, height)[:, None]
    places = places.view(1, -1, 3)
    return places.bmm(above).div_(places.bmm(below)).sub_(1.0).view(1, height, width, 2)


def _to_two(value: Any, name: str) -> tuple[float, float]:
    numbers = list(value) if isinstance(value, (tuple, list)) else [value]
    if len(numbers) not in (1, 2) or not all(isinstance(number, (int, float)) for number in numbers):
        raise OptionError(f"{name} must be a number, or one along x and one along y, got {value!r}")
    return float(numbers[0]), float(numbers[-1])
