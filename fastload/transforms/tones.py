"""Changes of levels that some images get: RandomInvert, RandomPosterize, RandomEqualize and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.transforms import adjusting
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.layout import contiguous
from fastload.transforms.transform import Parameters, Pixels, Transform, is_whole, to_probability


class _RandomChange(Transform):
    """Changes some images.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    width = 1

    def __init__(self, p: float = 0.5) -> None:
        self.p = to_probability(p)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """1 where an image is changed."""
        return (draws.uniform(1) < self.p).astype(np.float64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Changes it, or not."""
        return self._changed(image) if parameters[0] else image

    def _changed(self, image: Pixels) -> Pixels:
        raise NotImplementedError


class RandomInvert(_RandomChange):
    """Inverts the levels of some images.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    def _changed(self, image: Pixels) -> Pixels:
        return cv2.bitwise_not(contiguous(image)).reshape(image.shape)


class RandomPosterize(_RandomChange):
    """Keeps only the highest bits of the levels of some images.

    Args:
        bits: How many, 0 to 8.
        p: The share of images that are.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        if not is_whole(bits) or not 0 <= bits <= 8:
            raise OptionError(f"bits must be a whole number from 0 to 8, got {bits!r}")
        self.bits = bits
        super().__init__(p)

    def _changed(self, image: Pixels) -> Pixels:
        return adjusting.posterize(image, self.bits)


class RandomSolarize(_RandomChange):
    """Inverts the levels of some images from a threshold on.

    Args:
        threshold: The lowest level that is, up to 255.
        p: The share of images that are.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        if not isinstance(threshold, (int, float)) or not threshold <= 255:
            raise OptionError(f"threshold must be a level, at most 255, got {threshold!r}")
        self.threshold = threshold
        super().__init__(p)

    def _changed(self, image: Pixels) -> Pixels:
        return adjusting.solarize(image, self.threshold)


class RandomAdjustSharpness(_RandomChange):
    """Sharpens, or blurs, some images.

    Args:
        sharpness_factor: 0 for blurred, 1 for no change, 2 for twice as sharp.
        p: The share of images that are.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self.sharpness_factor = _to_factor(sharpness_factor)
        super().__init__(p)

    def _changed(self, image: Pixels) -> Pixels:
        adjusting.require_channels(image)
        return adjusting.sharpness(image, self.sharpness_factor)


class RandomAutocontrast(_RandomChange):
    """Stretches each channel of some images over all levels.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    def _changed(self, image: Pixels) -> Pixels:
        adjusting.require_channels(image)
        return adjusting.autocontrast(image)


class RandomEqualize(_RandomChange):
    """Spreads the levels of each channel of some images so that each is about as frequent.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    def _changed(self, image: Pixels) -> Pixels:
        return adjusting.equalize(image)


def _to_factor(value: Any) -> float:
    if isinstance(value, (int, float)) and value >= 0:
        return float(value)
    raise OptionError(f"sharpness_factor must be a number of at least 0, got {value!r}")
