"""Random changes of colour: ColorJitter, Grayscale, RandomGrayscale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.transforms import adjusting
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.layout import with_channels
from fastload.transforms.transform import Parameters, Pixels, Transform, to_probability

_Range = tuple[float, float]

# What ColorJitter does, by torchvision's numbers.
_ADJUSTMENTS = (adjusting.brightness, adjusting.contrast, adjusting.saturation, adjusting.hue)


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts, in random order.

    Args:
        brightness: The range of factors, or how far they may be from 1; None for no change.
        contrast: The same.
        saturation: The same.
        hue: The range of turns around the circle of hues, within -0.5 and 0.5, or the most to either side.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 8

    def __init__(
        self,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
    ) -> None:
        self.brightness = _to_factors(brightness, "brightness")
        self.contrast = _to_factors(contrast, "contrast")
        self.saturation = _to_factors(saturation, "saturation")
        self.hue = _to_turns(hue)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The order, as numbers of what is done; factors of brightness, contrast and saturation; turns."""
        numbers = draws.uniform(self.width)
        order = numbers[:, :4].argsort(axis=1)
        low, high = np.array([chosen or (0.0, 0.0) for chosen in self._ranges()]).T
        return np.concatenate((order, low + (high - low) * numbers[:, 4:]), axis=1)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Changes colours."""
        adjusting.require_channels(image)
        ranges = self._ranges()
        for number in map(int, parameters[:4]):
            if ranges[number] is not None:
                image = _ADJUSTMENTS[number](image, parameters[4 + number])
        return image

    def _ranges(self) -> tuple[_Range | None, ...]:
        return self.brightness, self.contrast, self.saturation, self.hue


class Grayscale(Transform):
    """Turns colours into grey.

    Args:
        num_output_channels: 1, or 3 alike.

    Raises:
        OptionError: It is neither.
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise OptionError(f"num_output_channels must be 1 or 3, got {num_output_channels!r}")
        self.num_output_channels = num_output_channels

    def channels_after(self, channels: int) -> int:
        """As many as were asked for."""
        return self.num_output_channels

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Turns into grey."""
        adjusting.require_channels(image)
        greys = adjusting.grey(image)
        if self.num_output_channels > greys.shape[2]:
            greys = cv2.merge((greys[:, :, 0],) * 3)
        elif self.num_output_channels < greys.shape[2]:
            greys = with_channels(cv2.extractChannel(greys, 0), 1)
        return greys

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Turns all into grey at once, as one tall picture."""
        greys = self.apply(_tall(images), ())
        return greys.reshape(*images.shape[:3], self.num_output_channels)


class RandomGrayscale(Transform):
    """Turns the colours of some images into grey, in as many channels.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    width = 1
    works_in_place = True

    def __init__(self, p: float = 0.1) -> None:
        self.p = to_probability(p)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """1 where an image becomes grey."""
        return (draws.uniform(1) < self.p).astype(np.float64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Turns into grey."""
        adjusting.require_channels(image)
        return adjusting.grey(image) if parameters[0] else image

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Turns those that are chosen into grey at once."""
        adjusting.require_channels(images)
        chosen = np.flatnonzero(parameters[:, 0])
        if chosen.size:
            coloured = images[chosen]
            images[chosen] = adjusting.grey(_tall(coloured)).reshape(coloured.shape)
        return images


def _tall(images: Pixels) -> Pixels:
    """Images of a batch, one under the other."""
    return images.reshape(-1, *images.shape[2:])


def _to_factors(value: Any, name: str) -> _Range | None:
    if value is None:
        return None
    if _is_number(value) and value >= 0:
        chosen = max(0.0, 1.0 - value), 1.0 + value
    elif _is_range(value) and 0 <= value[0] <= value[1]:
        chosen = float(value[0]), float(value[1])
    else:
        raise OptionError(
            f"{name} must be a number of at least 0, or a range (low, high) of such, got {value!r}"
        )
    return None if chosen == (1.0, 1.0) else chosen


def _to_turns(value: Any) -> _Range | None:
    if value is None:
        return None
    if _is_number(value) and 0 <= value <= 0.5:
        chosen = -float(value), float(value)
    elif _is_range(value) and -0.5 <= value[0] <= value[1] <= 0.5:
        chosen = float(value[0]), float(value[1])
    else:
        raise OptionError(
            f"hue must be a number from 0 to 0.5, or a range (low, high) from -0.5 to 0.5, got {value!r}"
        )
    return None if chosen == (0.0, 0.0) else chosen


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _is_range(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_number, value))
