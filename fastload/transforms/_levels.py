"""Adjustments at random: RandomInvert, RandomPosterize, RandomSolarize, RandomEqualize and others."""

from __future__ import annotations

from fastload.transforms import _adjusting
from fastload.transforms._pixels import Pixels
from fastload.transforms.options import is_number, require, to_number, to_whole
from fastload.transforms.transform import BernoulliTransform


class RandomInvert(BernoulliTransform):
    """Inverts levels, in each image with probability `p`."""

    def changed(self, image: Pixels) -> Pixels:
        """Return the inverted image."""
        return _adjusting.invert(image)


class RandomPosterize(BernoulliTransform):
    """Keeps only the highest bits of levels.

    Args:
        bits: The number of bits, 0 to 8.
        p: The probability that an image is changed.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = to_whole(bits, "bits", 0, 8)

    def changed(self, image: Pixels) -> Pixels:
        """Return the posterized image."""
        return _adjusting.posterize(image, self.bits)


class RandomSolarize(BernoulliTransform):
    """Inverts levels from a threshold up.

    Args:
        threshold: The lowest level that is inverted, at most 255.
        p: The probability that an image is changed.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        require(is_number(threshold) and threshold <= 255, "threshold must be at most 255", threshold)
        self.threshold = threshold

    def changed(self, image: Pixels) -> Pixels:
        """Return the solarized image."""
        return _adjusting.solarize(image, self.threshold)


class RandomAdjustSharpness(BernoulliTransform):
    """Sharpens or blurs.

    Args:
        sharpness_factor: 0 for blurred, 1 for no change, 2 for twice as sharp.
        p: The probability that an image is changed.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = to_number(sharpness_factor, "sharpness_factor")

    def changed(self, image: Pixels) -> Pixels:
        """Return the sharpened or blurred image."""
        _adjusting.require_channels(image)
        return _adjusting.sharpness(image, self.sharpness_factor)


class RandomAutocontrast(BernoulliTransform):
    """Stretches each channel over all levels, in each image with probability `p`."""

    def changed(self, image: Pixels) -> Pixels:
        """Return the stretched image."""
        _adjusting.require_channels(image)
        return _adjusting.autocontrast(image)


class RandomEqualize(BernoulliTransform):
    """Spreads levels so that each is about as frequent, in each image with probability `p`."""

    def changed(self, image: Pixels) -> Pixels:
        """Return the equalized image."""
        return _adjusting.equalize(image)
