"""AutoAugment: two operations, chosen by learned policies.

Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", https://arxiv.org/abs/1805.09501. The
policies are those of its appendix, in torchvision's order and with torchvision's strengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.policies import Policy, Strengths, space
from fastload.transforms.transform import Parameters

_BINS = 10  # of strengths, in the paper


class AutoAugmentPolicy(Enum):
    """The data that AutoAugment's policies were learned on; torchvision's names and values."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# Each policy: two operations, each with its probability and the number of its strength.
_POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
        Posterize 0.4 8 + Rotate 0.6 9, Solarize 0.6 5 + AutoContrast 0.6,
        Equalize 0.8 + Equalize 0.6, Posterize 0.6 7 + Posterize 0.6 6,
        Equalize 0.4 + Solarize 0.2 4, Equalize 0.4 + Rotate 0.8 8,
        Solarize 0.6 3 + Equalize 0.6, Posterize 0.8 5 + Equalize 1,
        Rotate 0.2 3 + Solarize 0.6 8, Equalize 0.6 + Posterize 0.4 6,
        Rotate 0.8 8 + Color 0.4 0, Rotate 0.4 9 + Equalize 0.6,
        Equalize 0 + Equalize 0.8, Invert 0.6 + Equalize 1,
        Color 0.6 4 + Contrast 1 8, Rotate 0.8 8 + Color 1 2,
        Color 0.8 8 + Solarize 0.8 7, Sharpness 0.4 7 + Invert 0.6,
        ShearX 0.6 5 + Equalize 1, Color 0.4 0 + Equalize 0.6,
        Equalize 0.4 + Solarize 0.2 4, Solarize 0.6 5 + AutoContrast 0.6,
        Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8,
        Equalize 0.8 + Equalize 0.6
    """,
    AutoAugmentPolicy.CIFAR10: """
        Invert 0.1 + Contrast 0.2 6, Rotate 0.7 2 + TranslateX 0.3 9,
        Sharpness 0.8 1 + Sharpness 0.9 3, ShearY 0.5 8 + TranslateY 0.7 9,
        AutoContrast 0.5 + Equalize 0.9, ShearY 0.2 7 + Posterize 0.3 7,
        Color 0.4 3 + Brightness 0.6 7, Sharpness 0.3 9 + Brightness 0.7 9,
        Equalize 0.6 + Equalize 0.5, Contrast 0.6 7 + Sharpness 0.6 5,
        Color 0.7 7 + TranslateX 0.5 8, Equalize 0.3 + AutoContrast 0.4,
        TranslateY 0.4 3 + Sharpness 0.2 6, Brightness 0.9 6 + Color 0.2 8,
        Solarize 0.5 2 + Invert 0, Equalize 0.2 + AutoContrast 0.6,
        Equalize 0.2 + Equalize 0.6, Color 0.9 9 + Equalize 0.6,
        AutoContrast 0.8 + Solarize 0.2 8, Brightness 0.1 3 + Color 0.7 0,
        Solarize 0.4 5 + AutoContrast 0.9, TranslateY 0.9 9 + TranslateY 0.7 9,
        AutoContrast 0.9 + Solarize 0.8 3, Equalize 0.8 + Invert 0.1,
        TranslateY 0.7 9 + AutoContrast 0.9
    """,
    AutoAugmentPolicy.SVHN: """
        ShearX 0.9 4 + Invert 0.2, ShearY 0.9 8 + Invert 0.7,
        Equalize 0.6 + Solarize 0.6 6, Invert 0.9 + Equalize 0.6,
        Equalize 0.6 + Rotate 0.9 3, ShearX 0.9 4 + AutoContrast 0.8,
        ShearY 0.9 8 + Invert 0.4, ShearY 0.9 5 + Solarize 0.2 6,
        Invert 0.9 + AutoContrast 0.8, Equalize 0.6 + Rotate 0.9 3,
        ShearX 0.9 4 + Solarize 0.3 3, ShearY 0.8 8 + Invert 0.7,
        Equalize 0.9 + TranslateY 0.6 6, Invert 0.9 + Equalize 0.6,
        Contrast 0.3 3 + Rotate 0.8 4, Invert 0.8 + TranslateY 0 2,
        ShearY 0.7 6 + Solarize 0.4 8, Invert 0.6 + Rotate 0.8 4,
        ShearY 0.3 7 + TranslateX 0.9 3, ShearX 0.1 6 + Invert 0.6,
        Solarize 0.7 2 + TranslateY 0.6 7, ShearY 0.8 4 + Invert 0.8,
        ShearX 0.7 9 + TranslateY 0.8 3, ShearY 0.8 5 + AutoContrast 0.7,
        ShearX 0.7 2 + Invert 0.1
    """,
}


class _Policies(NamedTuple):
    """Policies of one kind, each of two operations: (policies, 2)."""

    operations: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    bins: NDArray[np.int64]


class AutoAugment(Policy):
    """Applies the operations of one learned policy, chosen at random.

    Args:
        policy: The data that the policies were learned on.
        interpolation: `nearest` or `bilinear`, or torchvision's constant.
        fill: The colour around moved pixels: a number, or one for each channel; None is 0.
    """

    width = 4

    _space = {**space(), "Invert": Strengths()}  # noqa: RUF012 - typed as a class variable by the base class

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        try:
            # torchvision's own enumeration has the same values.
            self.policy = AutoAugmentPolicy(getattr(policy, "value", policy))
        except ValueError as error:
            raise OptionError(
                f"policy must be one of {', '.join(map(str, AutoAugmentPolicy))}, got {policy!r}"
            ) from error
        super().__init__(interpolation, fill)
        self._policies = self._parse(_POLICIES[self.policy])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the numbers of two operations, each followed by its strength; Identity for none."""
        numbers = draws.uniform(5)
        policies = integers(numbers[:, 0], len(self._policies.operations))
        rows = np.empty((len(sizes), self.width))
        for turn in (0, 1):
            is_applied = numbers[:, 1 + 2 * turn] < self._policies.probabilities[policies, turn]
            chosen = np.where(is_applied, self._policies.operations[policies, turn], 0)
            bins, signs = self._policies.bins[policies, turn], numbers[:, 2 + 2 * turn]
            rows[:, 2 * turn] = chosen
            rows[:, 2 * turn + 1] = self._strengths(chosen, bins, _BINS, signs, sizes)
        return rows

    def __repr__(self) -> str:
        return f"AutoAugment(policy={self.policy}, interpolation={self.interpolation!r}, fill={self.fill!r})"

    def _parse(self, text: str) -> _Policies:
        words = [[operation.split() for operation in pair.split(" + ")] for pair in text.split(",")]
        return _Policies(
            np.array([[self._names.index(operation[0]) for operation in pair] for pair in words]),
            np.array([[float(operation[1]) for operation in pair] for pair in words]),
            np.array([[int([*operation, "0"][2]) for operation in pair] for pair in words]),
        )
