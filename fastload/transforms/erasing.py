"""RandomErasing: a random rectangle of an image is painted over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms._degradation import NOISE_SEEDS, converted, normal_noise
from fastload.transforms._pixels import own
from fastload.transforms.draws import Draws, integers, random_sides
from fastload.transforms.geometry import Sizes
from fastload.transforms.options import Amount, is_number, require, to_list, to_probability, to_range
from fastload.transforms.transform import Parameters, Pixels, Transform

_ATTEMPTS = 10  # to find a rectangle that fits, as in torchvision


class RandomErasing(Transform):
    """Paints over a rectangle of random place, area and proportions.

    Args:
        p: The probability that an image is changed.
        scale: Range of the rectangle's area relative to the image's, from 0 to 1.
        ratio: Range of its height divided by its width, above 0.
        value: The colour: a number, one for each channel, or `random` for noise of mean 0 and deviation 1.
        inplace: Accepted for compatibility with torchvision; the image given is never changed.
    """

    width = 5
    takes_any_dtype = True
    works_in_place = True

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Amount | str = 0.0,
        inplace: bool = False,
    ) -> None:
        self.p = to_probability(p)
        self.scale = to_range(scale, "scale", 0, 1)
        self.ratio = to_range(ratio, "ratio")
        self.value = value
        self.inplace = inplace
        self._colour = None if value == "random" else _to_numbers(value)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw rectangles (top, left, height, width) and seeds of noise; height 0 for unchanged images."""
        numbers = draws.uniform(2 * _ATTEMPTS + 4)
        heights, widths = random_sides(numbers[:, :-4], sizes, self.scale, self.ratio)
        fits = (heights < sizes[:, :1]) & (widths < sizes[:, 1:])
        each, first = np.arange(len(sizes)), fits.argmax(axis=1)
        rows = np.empty((len(sizes), self.width))
        rows[:, 2], rows[:, 3] = heights[each, first], widths[each, first]
        rows[:, :2] = integers(numbers[:, -4:-2], np.maximum(sizes - rows[:, 2:4].astype(np.int64) + 1, 1))
        rows[:, 4] = np.floor(numbers[:, -2] * NOISE_SEEDS)
        rows[~fits[each, first] | (numbers[:, -1] >= self.p), :4] = 0
        return rows

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Paint over a copy of the image, or return the image as it is."""
        if not parameters[2] or not parameters[3]:
            return image
        erased = own(image)
        self._erase(erased, parameters)
        return erased

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Paint over in place."""
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


def _to_numbers(value: Any) -> NDArray[np.float32]:
    values = to_list(value)
    is_valid = bool(values) and all(map(is_number, values))
    require(is_valid, "value must be a number, one for each channel, or 'random'", value)
    return np.array(values, np.float32)
