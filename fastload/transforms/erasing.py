"""RandomErasing: a rectangle of an image is painted over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.layout import own
from fastload.transforms.noise import SEEDS, converted, normal_noise
from fastload.transforms.transform import Parameters, Pixels, Transform, to_pair, to_probability

_ATTEMPTS = 10  # to find a rectangle that fits, as torchvision's


class RandomErasing(Transform):
    """Paints over a rectangle of random place, area and proportions.

    Args:
        p: The share of images that it is done to.
        scale: The rectangle's area, as shares of the image's.
        ratio: Its proportions, height over width.
        value: The colour: a number, one for each channel, or `random` for noise of mean 0 and deviation 1.
        inplace: Taken for torchvision's sake; the image given is never changed.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 5
    takes_any_dtype = True
    works_in_place = True

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0.0,
        inplace: bool = False,
    ) -> None:
        self.p = to_probability(p)
        self.scale = to_pair(scale, "scale")
        self.ratio = to_pair(ratio, "ratio")
        self.value = value
        self.inplace = inplace
        if not 0 <= self.scale[0] <= self.scale[1] <= 1:
            raise OptionError(f"scale must be shares from 0 to 1, the smaller first, got {scale!r}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise OptionError(f"ratio must be positive, the smaller first, got {ratio!r}")
        self._colour = None if value == "random" else _to_numbers(value)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Rectangles (top, left, height, width), and seeds of noise; height 0 where nothing is done."""
        numbers = draws.uniform(2 * _ATTEMPTS + 4)
        shares = self.scale[0] + (self.scale[1] - self.scale[0]) * numbers[:, :_ATTEMPTS]
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratios = np.exp(low + (high - low) * numbers[:, _ATTEMPTS : 2 * _ATTEMPTS])
        areas = shares * sizes.prod(axis=1, keepdims=True)
        heights, widths = np.rint(np.sqrt(areas * ratios)), np.rint(np.sqrt(areas / ratios))
        fits = (heights < sizes[:, :1]) & (widths < sizes[:, 1:])
        each, first = np.arange(len(sizes)), fits.argmax(axis=1)
        rows = np.empty((len(sizes), self.width))
        rows[:, 2], rows[:, 3] = heights[each, first], widths[each, first]
        rows[:, :2] = integers(numbers[:, -4:-2], np.maximum(sizes - rows[:, 2:4].astype(np.int64) + 1, 1))
        rows[:, 4] = np.floor(numbers[:, -2] * SEEDS)
        rows[~fits[each, first] | (numbers[:, -1] >= self.p), :4] = 0
        return rows

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Paints over."""
        if not parameters[2] or not parameters[3]:
            return image
        erased = own(image)
        self._erase(erased, parameters)
        return erased

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Paints over, in place."""
        for image, row in zip(images, parameters.tolist(), strict=True):
            self._erase(image, row)
        return images

    def _erase(self, image: Pixels, parameters: Sequence[float]) -> None:
        top, left, height, width, seed = map(int, parameters)
        channels = image.shape[2]
        if self._colour is None:
            colour = normal_noise(seed, (height, width, channels), image.dtype)
        elif len(self._colour) in (1, channels):
            colour = converted(self._colour, image.dtype)
        else:
            raise OptionError(
                f"value must be one number, or one for each of {channels} channels, got {self.value!r}"
            )
        image[top : top + height, left : left + width] = colour


def _to_numbers(value: Any) -> NDArray[Any]:
    numbers = list(value) if isinstance(value, (tuple, list)) else [value]
    if not numbers or not all(isinstance(number, (int, float)) for number in numbers):
        raise OptionError(f"value must be a number, one for each channel, or 'random', got {value!r}")
    return np.array(numbers, np.float32)
