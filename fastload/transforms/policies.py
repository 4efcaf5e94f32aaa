"""RandAugment and TrivialAugmentWide: a few changes out of a list, each of some strength.

RandAugment: Cubuk et al., https://arxiv.org/abs/1909.13719. TrivialAugment: Müller and Hutter,
https://arxiv.org/abs/2103.10158. Lists and strengths are torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms import adjusting
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.operations import CHANGES, Edges, Space, Strengths, space, strengths_of
from fastload.transforms.transform import Parameters, Pixels, Transform, to_colour
from fastload.transforms.warping import to_filter


class Policy(Transform):
    """What all policies have in common: parameters are numbers of changes in a list, and their strengths.

    Args:
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around what is moved.
    """

    _space: ClassVar[Space]

    def __init__(self, interpolation: Any, fill: Any) -> None:
        self.interpolation = interpolation
        self.fill = fill
        self._edges = Edges(to_filter(interpolation), fill)
        self._names = list(self._space)
        to_colour(fill)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Makes the changes, one after the other."""
        adjusting.require_channels(image)
        for number, strength in zip(parameters[::2], parameters[1::2], strict=True):
            image = CHANGES[self._names[int(number)]](image, strength, self._edges)
        return image

    def _strengths(
        self,
        chosen: NDArray[np.int64],
        bins: NDArray[np.int64] | int,
        count: int,
        signs: NDArray[np.float64],
        sizes: Sizes,
    ) -> NDArray[np.float64]:
        """See `strengths_of`."""
        return strengths_of(list(self._space.values()), chosen, bins, count, signs, sizes)


def _require_bins(num_magnitude_bins: int) -> None:
    if not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 2:
        raise OptionError(
            f"num_magnitude_bins must be a whole number of at least 2, got {num_magnitude_bins!r}"
        )


class RandAugment(Policy):
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

    _space: ClassVar[Space] = {
        "Identity": Strengths(),
        **space(shear=0.3, shift=150 / 331, is_share=True, angle=30, factor=0.9, bits=4),
    }

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
        self.num_magnitude_bins = num_magnitude_bins
        super().__init__(interpolation, fill)
        _require_bins(num_magnitude_bins)
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
            chosen = integers(numbers[:, first], len(self._space))
            rows[:, first] = chosen
            rows[:, first + 1] = self._strengths(
                chosen, self.magnitude, self.num_magnitude_bins, numbers[:, first + 1], sizes
            )
        return rows


class TrivialAugmentWide(Policy):
    """Makes one random change of random strength.

    Args:
        num_magnitude_bins: How many strengths there are.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around what is moved: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 2

    _space: ClassVar[Space] = {
        "Identity": Strengths(),
        **space(shear=0.99, shift=32, is_share=False, angle=135, factor=0.99, bits=2),
    }

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        self.num_magnitude_bins = num_magnitude_bins
        super().__init__(interpolation, fill)
        _require_bins(num_magnitude_bins)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The number of the change, and its strength."""
        numbers = draws.uniform(3)
        chosen = integers(numbers[:, 0], len(self._space))
        bins = integers(numbers[:, 1], self.num_magnitude_bins)
        strengths = self._strengths(chosen, bins, self.num_magnitude_bins, numbers[:, 2], sizes)
        return np.stack((chosen, strengths), axis=1)
