"""Degradations: GaussianBlur, GaussianNoise, JPEG."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.decode import decode, encode
from fastload.images.opencv import cv2
from fastload.transforms import options
from fastload.transforms._adjusting import require_channels
from fastload.transforms._pixels import contiguous, with_last_axis
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.options import Amount, Size
from fastload.transforms.transform import Parameters, Pixels, Transform

#: The number of different seeds of noise: as many integers as a float64 holds exactly.
NOISE_SEEDS = 1 << 53

# At so many deviations weights are a millionth of the middle's; hardly any level depends on pixels beyond.
_REACH = math.sqrt(2 * math.log(1e6))


class GaussianBlur(Transform):
    """Blurs images by a Gaussian of random width; edges are mirrored.

    Args:
        kernel_size: Size of the kernel in pixels, an odd number, or (along x, along y).
        sigma: The standard deviation in pixels, or its range, above 0.
    """

    width = 1

    def __init__(self, kernel_size: Size, sigma: Amount = (0.1, 2.0)) -> None:
        self.kernel_size = options.to_size(kernel_size, "kernel_size")
        is_odd = all(side % 2 for side in self.kernel_size)
        options.require(is_odd, "kernel_size must be an odd number of pixels", kernel_size)
        self.sigma = _to_deviations(sigma)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw standard deviations in pixels."""
        return draws.between(*self.sigma)[:, None]

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Blur the image."""
        along_x, along_y = (_weights(side, parameters[0]) for side in self.kernel_size)
        # With uint8 results OpenCV would round the weights to 8 bits.
        blurred = cv2.sepFilter2D(contiguous(image), cv2.CV_32F, along_x, along_y)
        return with_last_axis(cv2.convertScaleAbs(blurred))


class GaussianNoise(Transform):
    """Adds normally distributed noise.

    Args:
        mean: Mean of the noise relative to white.
        sigma: Its standard deviation relative to white, from 0 up.
        clip: Whether results are limited to black and white; otherwise uint8 wraps around.

    Raises:
        OptionError: Also when used, if pixels are neither uint8 nor floating-point numbers.
    """

    width = 1
    takes_any_dtype = True

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        self.mean = mean
        self.sigma = options.to_number(sigma, "sigma")
        self.clip = clip

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Raise OptionError unless pixels are uint8 or floating-point numbers."""
        if dtype != np.uint8 and not np.issubdtype(dtype, np.floating):
            raise OptionError(f"GaussianNoise takes uint8 or floating-point pixels, got {dtype}")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw seeds of the noise."""
        return np.floor(draws.uniform(1) * NOISE_SEEDS)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Add noise to the image."""
        self.require_dtype(image.dtype)
        noise = normal_noise(int(parameters[0]), image.shape, np.dtype(np.float32))
        if image.dtype != np.uint8:
            noisy: Pixels = image + (self.mean + noise * np.float32(self.sigma)).astype(image.dtype)
            return noisy.clip(0, 1) if self.clip else noisy
        levels = (self.mean * 255 + noise * np.float32(self.sigma * 255)).astype(np.int16) + image
        bounded: Pixels = (levels.clip(0, 255) if self.clip else levels).astype(np.uint8)
        return bounded


class JPEG(Transform):
    """Compresses images as JPEG and decompresses them.

    Args:
        quality: From 1 to 100, or the range (low, high), both included.
    """

    width = 1

    def __init__(self, quality: Size) -> None:
        low_high: list[Any] = list(quality) if isinstance(quality, (tuple, list)) else [quality, quality]
        is_valid = (
            len(low_high) == 2
            and all(map(options.is_whole, low_high))
            and 1 <= low_high[0] <= low_high[1] <= 100
        )
        options.require(
            is_valid, "quality must be a whole number from 1 to 100, or a range (low, high)", quality
        )
        self.quality: tuple[int, int] = (low_high[0], low_high[1])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw qualities."""
        low, high = self.quality
        return (low + integers(draws.uniform(1), high - low + 1)).astype(np.float64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Compress and decompress the image."""
        require_channels(image)
        pixels = contiguous(image)
        plane = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
        data = encode(plane, ".jpg", (cv2.IMWRITE_JPEG_QUALITY, int(parameters[0])))
        return decode(data)[:, :, : image.shape[2]]


def normal_noise(seed: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return normally distributed numbers of mean 0 and deviation 1, converted to a dtype."""
    count = math.prod(shape)
    bits = np.random.Philox(key=seed).random_raw(-(-count // 4)).astype("<u8", copy=False).view("<u2")
    return np.take(_quantiles(dtype), bits[:count]).reshape(shape)


def converted(numbers: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert numbers to a dtype; integers that do not fit wrap around, as in torch's conversions."""
    if not np.issubdtype(dtype, np.floating):
        return numbers.astype(np.int64).astype(dtype)
    return numbers.astype(dtype)


@functools.lru_cache(maxsize=8)
def _quantiles(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the normal distribution as 65536 equally frequent numbers, the largest 4.2.

    Looking them up takes a tenth of the time that NumPy takes to draw as many.
    """
    shares = (torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16)
    return converted(torch.special.ndtri(shares).float().numpy(), dtype)


def _weights(size: int, sigma: float) -> NDArray[np.float32]:
    reach = min(size // 2, math.ceil(sigma * _REACH))
    places = np.arange(-reach, reach + 1) / sigma
    weights = np.exp(places * places / -2)
    normalised: NDArray[np.float32] = (weights / weights.sum()).astype(np.float32)
    return normalised


def _to_deviations(sigma: Any) -> tuple[float, float]:
    values = options.to_list(sigma)
    is_valid = len(values) in (1, 2) and all(map(options.is_number, values)) and 0 < values[0] <= values[-1]
    options.require(is_valid, "sigma must be a number above 0, or a range (low, high) of such", sigma)
    return float(values[0]), float(values[-1])
