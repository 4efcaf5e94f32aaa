"""Noise: GaussianNoise, and the numbers that it and RandomErasing take."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.transform import Parameters, Pixels, Transform

#: How many seeds of noise there are: what a float64 can hold.
SEEDS = 1 << 53


class GaussianNoise(Transform):
    """Adds normally distributed noise.

    Args:
        mean: Of the noise, as a share of white.
        sigma: Its standard deviation, as a share of white.
        clip: Whether what is below black or above white becomes that; bytes wrap around otherwise.

    Raises:
        OptionError: A parameter is none of these; on use, pixels are neither bytes nor floating-point.
    """

    width = 1
    takes_any_dtype = True

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        if not isinstance(sigma, (int, float)) or not sigma >= 0:
            raise OptionError(f"sigma must be a number of at least 0, got {sigma!r}")
        self.mean = mean
        self.sigma = sigma
        self.clip = clip

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Requires bytes or floating-point numbers.

        Raises:
            OptionError: They are neither.
        """
        if dtype != np.uint8 and not np.issubdtype(dtype, np.floating):
            raise OptionError(f"GaussianNoise takes uint8 or floating-point pixels, got {dtype}")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Seeds of noise."""
        return np.floor(draws.uniform(1) * SEEDS)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Adds noise."""
        self.require_dtype(image.dtype)
        noise = normal_noise(int(parameters[0]), image.shape, np.dtype(np.float32))
        if image.dtype != np.uint8:
            noisy: Pixels = image + (self.mean + noise * np.float32(self.sigma)).astype(image.dtype)
            return noisy.clip(0, 1) if self.clip else noisy
        levels = (self.mean * 255 + noise * np.float32(self.sigma * 255)).astype(np.int16) + image
        bounded: Pixels = (levels.clip(0, 255) if self.clip else levels).astype(np.uint8)
        return bounded


def normal_noise(seed: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Normally distributed numbers of mean 0 and deviation 1, converted to a type."""
    count = math.prod(shape)
    bits = np.random.Philox(key=seed).random_raw(-(-count // 4)).astype("<u8", copy=False).view("<u2")
    return np.take(_quantiles(dtype), bits[:count]).reshape(shape)


@functools.lru_cache(maxsize=8)
def _quantiles(dtype: np.dtype[Any]) -> NDArray[Any]:
    """The normal distribution as 65536 numbers that are equally frequent.

    To look them up takes a tenth of the time that NumPy takes to make as many; the largest are 4.2.
    """
    import torch

    shares = (torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16)
    return converted(torch.special.ndtri(shares).float().numpy(), dtype)


def converted(numbers: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers as a type; what whole numbers cannot hold wraps around, as torch's conversions do."""
    if not np.issubdtype(dtype, np.floating):
        return numbers.astype(np.int64).astype(dtype)
    return numbers.astype(dtype)
