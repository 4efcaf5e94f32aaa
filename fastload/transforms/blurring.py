"""GaussianBlur: each pixel becomes a weighted mean of those around it."""

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
from fastload.transforms.transform import Parameters, Pixels, Transform, to_size

# How many deviations away weights are a millionth of the middle's: hardly a level depends on what is farther.
_REACH = math.sqrt(2 * math.log(1e6))


class GaussianBlur(Transform):
    """Blurs by a Gaussian of random width; edges are mirrored.

    Args:
        kernel_size: How many pixels count, an odd number, or (along x, along y).
        sigma: The standard deviation in pixels, or its range.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 1

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        self.kernel_size = to_size(kernel_size, "kernel_size")
        if not all(side % 2 for side in self.kernel_size):
            raise OptionError(f"kernel_size must be an odd number of pixels, got {kernel_size!r}")
        self.sigma = _to_deviations(sigma)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Standard deviations in pixels."""
        return draws.between(*self.sigma)[:, None]

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Blurs."""
        along_x, along_y = (_weights(side, parameters[0]) for side in self.kernel_size)
        # With uint8 results OpenCV would round the weights to 8 bits.
        blurred = cv2.sepFilter2D(contiguous(image), cv2.CV_32F, along_x, along_y)
        return with_channels(cv2.convertScaleAbs(blurred), image.shape[2])


def _weights(size: int, sigma: float) -> NDArray[np.float32]:
    reach = min(size // 2, math.ceil(sigma * _REACH))
    places = np.arange(-reach, reach + 1) / sigma
    weights = np.exp(places * places / -2)
    normalised: NDArray[np.float32] = (weights / weights.sum()).astype(np.float32)
    return normalised


def _to_deviations(sigma: Any) -> tuple[float, float]:
    numbers = list(sigma) if isinstance(sigma, (tuple, list)) else [sigma]
    if len(numbers) in (1, 2) and all(isinstance(number, (int, float)) for number in numbers):
        low, high = float(numbers[0]), float(numbers[-1])
        if 0 < low <= high:
            return low, high
    raise OptionError(f"sigma must be a number above 0, or a range (low, high) of such, got {sigma!r}")
