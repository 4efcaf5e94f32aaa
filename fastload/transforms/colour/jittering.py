"""Changes of colours, levels and channels: ColorJitter, Grayscale, RandomPosterize and others."""

from __future__ import annotations

import math

import numpy as np

from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.transforms import options
from fastload.transforms.colour import adjusting
from fastload.transforms.draws import Draws, between
from fastload.transforms.options import Amount
from fastload.transforms.transform import BernoulliTransform, ColourTransform, Parameters, Row, Sizes

_Range = tuple[float, float]

# The adjustments of ColorJitter, by torchvision's numbers.
_ADJUSTMENTS = (adjusting.brightness, adjusting.contrast, adjusting.saturation, adjusting.hue)


class ColorJitter(ColourTransform):
    """Changes brightness, contrast, saturation and hue by random amounts, in random order.

    Parameters are as in torchvision; None, the default, changes nothing. Brightness and contrast may change
    in images of any dtype and number of channels, saturation and hue in those of 8 bits with 1 or 3.
    """

    width = 8

    def __init__(
        self,
        brightness: Amount | None = None,
        contrast: Amount | None = None,
        saturation: Amount | None = None,
        hue: Amount | None = None,
    ) -> None:
        self.brightness = _to_amounts(brightness, "brightness")
        self.contrast = _to_amounts(contrast, "contrast")
        self.saturation = _to_amounts(saturation, "saturation")
        self.hue = _to_amounts(hue, "hue", 0.0, -0.5, 0.5)
        self._ranges = self.brightness, self.contrast, self.saturation, self.hue

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the order, as indices of adjustments, then the amount of each."""
        numbers = draws.uniform(self.width)
        order = numbers[:, :4].argsort(axis=1)
        low, high = np.array([bounds or (0.0, 0.0) for bounds in self._ranges]).T
        return np.concatenate((order, between(numbers[:, 4:], low, high)), axis=1)

    @property
    def takes_any_dtype(self) -> bool:  # type: ignore[override]
        return self.saturation is None and self.hue is None

    def require_dtype(self, dtype: DType) -> None:
        if dtype != np.uint8 and not self.takes_any_dtype:
            raise OptionError(
                f"ColorJitter takes uint8 pixels, got {dtype}: put it before ToTensor, ToDtype and "
                "Normalize, or leave out saturation and hue, which only pictures of 8 bits have here"
            )

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        if not self.takes_any_dtype:
            adjusting.require_channels(image)
        for number in map(int, parameters[:4]):
            if self._ranges[number] is not None:
                image = _ADJUSTMENTS[number](image, parameters[4 + number])
        return image


class RandomPhotometricDistort(ColourTransform):
    """Changes brightness, contrast, saturation and hue, and the order of channels, each at random.

    Parameters are as in torchvision. Liu et al., "SSD: Single Shot MultiBox Detector",
    https://arxiv.org/abs/1512.02325.
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
        self.brightness = options.to_range(brightness, "brightness", 0)
        self.contrast = options.to_range(contrast, "contrast", 0)
        self.saturation = options.to_range(saturation, "saturation", 0)
        self.hue = options.to_range(hue, "hue", -0.5, 0.5)
        self.p = options.to_probability(p)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw which adjustments are made, their amounts, contrast first or not, and the channel order."""
        numbers = draws.uniform(self.width)
        low, high = np.array([self.brightness, self.contrast, self.saturation, self.hue]).T
        numbers[:, :4] = numbers[:, :4] < self.p
        numbers[:, 4:8] = between(numbers[:, 4:8], low, high)
        numbers[:, 8] = numbers[:, 8] < 0.5
        numbers[:, 9] = numbers[:, 9] < self.p
        return numbers

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        adjusting.require_channels(image)
        is_made, amounts, is_contrast_first = parameters[:4], parameters[4:8], parameters[8]
        for number in (0, 1, 2, 3) if is_contrast_first else (0, 2, 3, 1):
            if is_made[number]:
                image = _ADJUSTMENTS[number](image, amounts[number])
        return _permuted(image, parameters[10]) if parameters[9] else image


class Grayscale(ColourTransform):
    """Turns colours into grey, in 1 channel or in 3 equal ones; parameters as in torchvision."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = channels = num_output_channels
        options.require(channels in (1, 3), "num_output_channels must be 1 or 3", channels)

    def channels_after(self, channels: int) -> int:
        return self.num_output_channels

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        greys = adjusting.grey(image)
        if self.num_output_channels > greys.shape[2]:
            return cv2.merge((greys[:, :, 0],) * 3)
        if self.num_output_channels < greys.shape[2]:
            return with_last_axis(cv2.extractChannel(greys, 0))
        return greys


class RandomGrayscale(BernoulliTransform):
    """Turns colours into grey in each image with probability `p`, keeping the number of channels."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.grey(image)


class RGB(ColourTransform):
    """Gives grey images three channels; others are returned unchanged."""

    takes_any_dtype = True

    def channels_after(self, channels: int) -> int:
        return 3 if channels == 1 else channels

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


class RandomChannelPermutation(ColourTransform):
    """Puts the channels in random order."""

    width = 1
    takes_any_dtype = True

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw a number in [0, 1) that determines the order for any number of channels."""
        return draws.uniform(1)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        return _permuted(image, parameters[0])


class RandomInvert(BernoulliTransform):
    """Inverts levels, in each image with probability `p`."""

    takes_any_dtype = True

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.invert(image)


class RandomPosterize(BernoulliTransform):
    """Keeps only the highest `bits` (0 to 8) of each level, in each image with probability `p`."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = options.to_whole(bits, "bits", 0, 8)

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.posterize(image, self.bits)


class RandomSolarize(BernoulliTransform):
    """Inverts levels of at least `threshold`, which is at most 255, in each image with probability `p`."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        is_valid = options.is_number(threshold) and threshold <= 255
        options.require(is_valid, "threshold must be at most 255", threshold)
        self.threshold = threshold

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.solarize(image, self.threshold)


class RandomAdjustSharpness(BernoulliTransform):
    """Sharpens or blurs each image with probability `p`; parameters as in torchvision."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = options.to_number(sharpness_factor, "sharpness_factor")

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.sharpness(image, self.sharpness_factor)


class RandomAutocontrast(BernoulliTransform):
    """Stretches each channel over all levels, in each image with probability `p`."""

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.autocontrast(image)


class RandomEqualize(BernoulliTransform):
    """Equalizes the histogram of each channel, in each image with probability `p`."""

    def changed(self, image: Pixels) -> Pixels:
        return adjusting.equalize(image)


def _permuted(image: Pixels, number: float) -> Pixels:
    """Permute channels by a number in [0, 1); all orders are equally likely."""
    left, order = list(range(image.shape[2])), []
    while left:
        number *= len(left)
        order.append(left.pop(int(number)))
        number %= 1
    return image.take(order, axis=2)


def _to_amounts(
    value: Amount | None, name: str, neutral: float = 1.0, least: float = 0.0, most: float = math.inf
) -> _Range | None:
    """Return a range of amounts; None for no change."""
    bounds = (neutral, neutral) if value is None else options.to_span(value, name, neutral, least, most)
    return None if bounds == (neutral, neutral) else bounds
