"""Changes of channels: RGB, RandomChannelPermutation, and with colours RandomPhotometricDistort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastload.errors import OptionError
from fastload.transforms import adjusting
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.transform import Parameters, Pixels, Transform, to_pair, to_probability


class RGB(Transform):
    """Gives grey images three channels; others stay as they are."""

    takes_any_dtype = True

    def channels_after(self, channels: int) -> int:
        """Three for one."""
        return 3 if channels == 1 else channels

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Repeats the one channel."""
        return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


class RandomChannelPermutation(Transform):
    """Puts the channels in random order."""

    width = 1
    takes_any_dtype = True

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """A number in [0, 1), which says the order of however many channels there are."""
        return draws.uniform(1)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Puts them in order."""
        return _permuted(image, parameters[0])


class RandomPhotometricDistort(Transform):
    """Changes brightness, contrast, saturation and hue of some images, and the order of their channels.

    Liu et al., "SSD: Single Shot MultiBox Detector", https://arxiv.org/abs/1512.02325.

    Args:
        brightness: The range of factors.
        contrast: The same; done before saturation and hue, or after.
        saturation: The same.
        hue: The range of turns around the circle of hues, within -0.5 and 0.5.
        p: The share of images that each of the five is done to.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 11

    def __init__(
        self,
        brightness: tuple[float, float] = (0.875, 1.125),
        contrast: tuple[float, float] = (0.5, 1.5),
        saturation: tuple[float, float] = (0.5, 1.5),
        hue: tuple[float, float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        self.brightness = to_pair(brightness, "brightness")
        self.contrast = to_pair(contrast, "contrast")
        self.saturation = to_pair(saturation, "saturation")
        self.hue = to_pair(hue, "hue")
        self.p = to_probability(p)
        for low, high in (self.brightness, self.contrast, self.saturation):
            if not 0 <= low <= high:
                raise OptionError(f"a range of factors must be (low, high) from 0 on, got {(low, high)}")
        if not -0.5 <= self.hue[0] <= self.hue[1] <= 0.5:
            raise OptionError(f"hue must be a range (low, high) from -0.5 to 0.5, got {hue!r}")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Which of the four are done; factors, turns; whether contrast is first, channels move, and how."""
        numbers = draws.uniform(self.width)
        low, high = np.array([self.brightness, self.contrast, self.saturation, self.hue]).T
        numbers[:, :4] = numbers[:, :4] < self.p
        numbers[:, 4:8] = low + (high - low) * numbers[:, 4:8]
        numbers[:, 8] = numbers[:, 8] < 0.5
        numbers[:, 9] = numbers[:, 9] < self.p
        return numbers

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Changes colours, then the order of channels."""
        adjusting.require_channels(image)
        is_done, amounts, is_first = parameters[:4], parameters[4:8], parameters[8]
        steps = [(0, adjusting.brightness), (2, adjusting.saturation), (3, adjusting.hue)]
        steps.insert(1 if is_first else 3, (1, adjusting.contrast))
        for number, change in steps:
            if is_done[number]:
                image = change(image, amounts[number])
        return _permuted(image, parameters[10]) if parameters[9] else image


def _permuted(image: Pixels, number: float) -> Pixels:
    """Puts channels in the order that a number in [0, 1) says; all orders are as likely."""
    left, order = list(range(image.shape[2])), []
    while left:
        number *= len(left)
        order.append(left.pop(int(number)))
        number %= 1
    return image.take(order, axis=2)
