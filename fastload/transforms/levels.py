"""Adjustments at random: RandomInvert, RandomPosterize, RandomSolarize, RandomEqualize and others."""

from __future__ import annotations

from fastload.transforms import adjusting
from fastload.transforms.options import is_number, is_whole, require
from fastload.transforms.pixels import Pixels
from fastload.transforms.transform import BernoulliTransform


class RandomInvert(BernoulliTransform):
    """Inverts the levels of images at random.

    Args:
        p: The probability that an image is changed.
    """

    def changed(self, image: Pixels) -> Pixels:
        """Return the inverted image."""
        return adjusting.invert(image)


class RandomPosterize(BernoulliTransform):
    """Keeps only the highest bits of the levels of images, at random.

    Args:
        bits: The number of bits, 0 to 8.
        p: The probability that an image is changed.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        require(is_whole(bits) and 0 <= bits <= 8, "bits must be a whole number from 0 to 8", bits)
        self.bits = bits
        super().__init__(p)

    def changed(self, image: Pixels) -> Pixels:
        """Return the posterized image."""
        return adjusting.posterize(image, self.bits)


class RandomSolarize(BernoulliTransform):
    """Inverts the levels of images that reach a threshold, at random.

    Args:
        threshold: The lowest level that is inverted, at most 255.
        p: The probability that an image is changed.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        is_valid = is_number(threshold) and threshold <= 255
        require(is_valid, "threshold must be a level, at most 255", threshold)
        self.threshold = threshold
        super().__init__(p)

    def changed(self, image: Pixels) -> Pixels:
        """Return the solarized image."""
        return adjusting.solarize(image, self.threshold)


class RandomAdjustSharpness(BernoulliTransform):
    """Sharpens or blurs images at random.

    Args:
        sharpness_factor: 0 for blurred, 1 for no change, 2 for twice as sharp.
        p: The probability that an image is changed.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        is_valid = is_number(sharpness_factor) and sharpness_factor >= 0
        require(is_valid, "sharpness_factor must be a number of at least 0", sharpness_factor)
        self.sharpness_factor = float(sharpness_factor)
        super().__init__(p)

    def changed(self, image: Pixels) -> Pixels:
        """Return the sharpened or blurred image."""
        adjusting.require_channels(image)
        return adjusting.sharpness(image, self.sharpness_factor)


class RandomAutocontrast(BernoulliTransform):
    """Stretches each channel of images over all levels, at random.

    Args:
        p: The probability that an image is changed.
    """

    def changed(self, image: Pixels) -> Pixels:
        """Return the stretched image."""
        adjusting.require_channels(image)
        return adjusting.autocontrast(image)


class RandomEqualize(BernoulliTransform):
    """Spreads the levels of each channel of images so that each is about as frequent, at random.

    Args:
        p: The probability that an image is changed.
    """

    def changed(self, image: Pixels) -> Pixels:
        """Return the equalized image."""
        return adjusting.equalize(image)
