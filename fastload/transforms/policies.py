"""RandAugment and TrivialAugmentWide: a few changes out of a list, each of some strength.

RandAugment: Cubuk et al., https://arxiv.org/abs/1909.13719. TrivialAugment: Müller and Hutter,
https://arxiv.org/abs/2103.10158. Lists and strengths are torchvision's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms import adjusting
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.transform import Parameters, Pixels, Transform, to_colour
from fastload.transforms.warping import inverse_matrix, rotated, to_filter, warped


class _Edges(NamedTuple):
    """What is done about pixels that are moved.

    Attributes:
        interpolation: `nearest` or `bilinear`.
        fill: The colour around them.
    """

    interpolation: str
    fill: Any


class _Op(NamedTuple):
    """A change and its strengths.

    Attributes:
        change: What is done to an image, by a strength.
        weakest: The first of its strengths.
        strongest: The last of them.
        is_signed: Whether half of the images have the strength's negative.
        of_side: The side that strengths are shares of: 0 for the height, 1 for the width; None for neither.
    """

    change: Callable[[Pixels, float, _Edges], Pixels]
    weakest: float = 0.0
    strongest: float = 0.0
    is_signed: bool = False
    of_side: int | None = None


def _ops(
    shear: float, shift: float, is_share: bool, angle: float, factor: float, bits: int
) -> tuple[_Op, ...]:
    """The list of changes.

    Args:
        shear: The largest tangent.
        shift: The longest, in pixels or as a share of the side.
        is_share: Which of the two.
        angle: The largest, in degrees.
        factor: The most that factors are away from 1.
        bits: The fewest that levels keep.
    """

    def move(image: Pixels, x: float, y: float, edges: _Edges) -> Pixels:
        return warped(image, inverse_matrix(0.0, (int(x), int(y))), *edges)

    def lean(image: Pixels, x: float, y: float, edges: _Edges) -> Pixels:
        angles = math.degrees(math.atan(x)), math.degrees(math.atan(y))
        corner = -image.shape[1] / 2, -image.shape[0] / 2
        return warped(image, inverse_matrix(0.0, shear=angles, center=corner), *edges)

    return (
        _Op(lambda image, strength, edges: image),
        _Op(lambda image, strength, edges: lean(image, strength, 0, edges), 0, shear, True),
        _Op(lambda image, strength, edges: lean(image, 0, strength, edges), 0, shear, True),
        _Op(
            lambda image, strength, edges: move(image, strength, 0, edges),
            0,
            shift,
            True,
            1 if is_share else None,
        ),
        _Op(
            lambda image, strength, edges: move(image, 0, strength, edges),
            0,
            shift,
            True,
            0 if is_share else None,
        ),
        _Op(lambda image, strength, edges: rotated(image, strength, *edges), 0, angle, True),
        _Op(lambda image, strength, edges: adjusting.brightness(image, 1 + strength), 0, factor, True),
        _Op(lambda image, strength, edges: adjusting.saturation(image, 1 + strength), 0, factor, True),
        _Op(lambda image, strength, edges: adjusting.contrast(image, 1 + strength), 0, factor, True),
        _Op(lambda image, strength, edges: adjusting.sharpness(image, 1 + strength), 0, factor, True),
        _Op(lambda image, strength, edges: adjusting.posterize(image, round(strength)), 8, bits),
        _Op(lambda image, strength, edges: adjusting.solarize(image, 255 * strength), 1, 0),
        _Op(lambda image, strength, edges: adjusting.autocontrast(image)),
        _Op(lambda image, strength, edges: adjusting.equalize(image)),
    )


class _Policy(Transform):
    """What both have in common: parameters are the numbers of changes in the list, and their strengths."""

    _ops: ClassVar[tuple[_Op, ...]]

    def __init__(self, num_magnitude_bins: int, interpolation: Any, fill: Any) -> None:
        if not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 2:
            raise OptionError(
                f"num_magnitude_bins must be a whole number of at least 2, got {num_magnitude_bins!r}"
            )
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation = interpolation
        self.fill = fill
        self._edges = _Edges(to_filter(interpolation), fill)
        to_colour(fill)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Makes the changes, one after the other."""
        adjusting.require_channels(image)
        for number, strength in zip(parameters[::2], parameters[1::2], strict=True):
            image = self._ops[int(number)].change(image, strength, self._edges)
        return image

    def _strengths(
        self, chosen: NDArray[np.int64], bins: Any, signs: NDArray[np.float64], sizes: Sizes
    ) -> NDArray[np.float64]:
        """The strengths of changes, one for each image.

        Args:
            chosen: The changes' numbers.
            bins: Which of their strengths.
            signs: Numbers in [0, 1).
            sizes: Of the images.
        """
        ranges = np.array([(op.weakest, op.strongest) for op in self._ops])[chosen]
        is_signed = np.array([op.is_signed for op in self._ops])[chosen]
        for side in (0, 1):
            is_share = np.array([op.of_side == side for op in self._ops])[chosen]
            ranges[is_share] *= sizes[is_share, side, None]
        strengths = ranges[:, 0] + (ranges[:, 1] - ranges[:, 0]) * bins / (self.num_magnitude_bins - 1)
        signed: NDArray[np.float64] = np.where(is_signed & (signs < 0.5), -strengths, strengths)
        return signed


class RandAugment(_Policy):
    """Makes some random changes of one strength.

    Args:
        num_ops: How many.
        magnitude: Their strength, from 0 up to but without `num_magnitude_bins`.
        num_magnitude_bins: How many strengths there are.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around what is moved: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    _ops = _ops(shear=0.3, shift=150 / 331, is_share=True, angle=30, factor=0.9, bits=4)

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        if not isinstance(num_ops, int) or num_ops < 0:
            raise OptionError(f"num_ops must be a whole number of at least 0, got {num_ops!r}")
        self.num_ops = num_ops
        self.magnitude = magnitude
        super().__init__(num_magnitude_bins, interpolation, fill)
        if not isinstance(magnitude, int) or not 0 <= magnitude < num_magnitude_bins:
            raise OptionError(
                f"magnitude must be a whole number from 0 to {num_magnitude_bins - 1}, got {magnitude!r}"
            )
        self.width = 2 * num_ops

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Numbers of changes and their strengths, in turns."""
        numbers = draws.uniform(self.width)
        rows = np.empty((len(sizes), self.width))
        for first in range(0, self.width, 2):
            chosen = integers(numbers[:, first], len(self._ops))
            rows[:, first] = chosen
            rows[:, first + 1] = self._strengths(chosen, self.magnitude, numbers[:, first + 1], sizes)
        return rows


class TrivialAugmentWide(_Policy):
    """Makes one random change of random strength.

    Args:
        num_magnitude_bins: How many strengths there are.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around what is moved: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 2

    _ops = _ops(shear=0.99, shift=32, is_share=False, angle=135, factor=0.99, bits=2)

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The number of the change, and its strength."""
        numbers = draws.uniform(3)
        chosen = integers(numbers[:, 0], len(self._ops))
        bins = integers(numbers[:, 1], self.num_magnitude_bins)
        return np.stack((chosen, self._strengths(chosen, bins, numbers[:, 2], sizes)), axis=1)
