"""AutoAugment: two changes each, of which policies that were learned say how likely and how strong they are.

Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", https://arxiv.org/abs/1805.09501. The
policies below are those of its appendix, in torchvision's order and with torchvision's strengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.modes import AutoAugmentPolicy
from fastload.transforms.operations import Space, Strengths, space
from fastload.transforms.policies import Policy
from fastload.transforms.transform import Parameters

_BINS = 10  # of strengths, in the paper

# A line a policy: each change, how likely it is, and which of its strengths.
_POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
        Posterize 0.4 8 + Rotate 0.6 9
        Solarize 0.6 5 + AutoContrast 0.6
        Equalize 0.8 + Equalize 0.6
        Posterize 0.6 7 + Posterize 0.6 6
        Equalize 0.4 + Solarize 0.2 4
        Equalize 0.4 + Rotate 0.8 8
        Solarize 0.6 3 + Equalize 0.6
        Posterize 0.8 5 + Equalize 1
        Rotate 0.2 3 + Solarize 0.6 8
        Equalize 0.6 + Posterize 0.4 6
        Rotate 0.8 8 + Color 0.4 0
        Rotate 0.4 9 + Equalize 0.6
        Equalize 0 + Equalize 0.8
        Invert 0.6 + Equalize 1
        Color 0.6 4 + Contrast 1 8
        Rotate 0.8 8 + Color 1 2
        Color 0.8 8 + Solarize 0.8 7
        Sharpness 0.4 7 + Invert 0.6
        ShearX 0.6 5 + Equalize 1
        Color 0.4 0 + Equalize 0.6
        Equalize 0.4 + Solarize 0.2 4
        Solarize 0.6 5 + AutoContrast 0.6
        Invert 0.6 + Equalize 1
        Color 0.6 4 + Contrast 1 8
        Equalize 0.8 + Equalize 0.6
    """,
    AutoAugmentPolicy.CIFAR10: """
        Invert 0.1 + Contrast 0.2 6
        Rotate 0.7 2 + TranslateX 0.3 9
        Sharpness 0.8 1 + Sharpness 0.9 3
        ShearY 0.5 8 + TranslateY 0.7 9
        AutoContrast 0.5 + Equalize 0.9
        ShearY 0.2 7 + Posterize 0.3 7
        Color 0.4 3 + Brightness 0.6 7
        Sharpness 0.3 9 + Brightness 0.7 9
        Equalize 0.6 + Equalize 0.5
        Contrast 0.6 7 + Sharpness 0.6 5
        Color 0.7 7 + TranslateX 0.5 8
        Equalize 0.3 + AutoContrast 0.4
        TranslateY 0.4 3 + Sharpness 0.2 6
        Brightness 0.9 6 + Color 0.2 8
        Solarize 0.5 2 + Invert 0
        Equalize 0.2 + AutoContrast 0.6
        Equalize 0.2 + Equalize 0.6
        Color 0.9 9 + Equalize 0.6
        AutoContrast 0.8 + Solarize 0.2 8
        Brightness 0.1 3 + Color 0.7 0
        Solarize 0.4 5 + AutoContrast 0.9
        TranslateY 0.9 9 + TranslateY 0.7 9
        AutoContrast 0.9 + Solarize 0.8 3
        Equalize 0.8 + Invert 0.1
        TranslateY 0.7 9 + AutoContrast 0.9
    """,
    AutoAugmentPolicy.SVHN: """
        ShearX 0.9 4 + Invert 0.2
        ShearY 0.9 8 + Invert 0.7
        Equalize 0.6 + Solarize 0.6 6
        Invert 0.9 + Equalize 0.6
        Equalize 0.6 + Rotate 0.9 3
        ShearX 0.9 4 + AutoContrast 0.8
        ShearY 0.9 8 + Invert 0.4
        ShearY 0.9 5 + Solarize 0.2 6
        Invert 0.9 + AutoContrast 0.8
        Equalize 0.6 + Rotate 0.9 3
        ShearX 0.9 4 + Solarize 0.3 3
        ShearY 0.8 8 + Invert 0.7
        Equalize 0.9 + TranslateY 0.6 6
        Invert 0.9 + Equalize 0.6
        Contrast 0.3 3 + Rotate 0.8 4
        Invert 0.8 + TranslateY 0 2
        ShearY 0.7 6 + Solarize 0.4 8
        Invert 0.6 + Rotate 0.8 4
        ShearY 0.3 7 + TranslateX 0.9 3
        ShearX 0.1 6 + Invert 0.6
        Solarize 0.7 2 + TranslateY 0.6 7
        ShearY 0.8 4 + Invert 0.8
        ShearX 0.7 9 + TranslateY 0.8 3
        ShearY 0.8 5 + AutoContrast 0.7
        ShearX 0.7 2 + Invert 0.1
    """,
}


class _Pairs(NamedTuple):
    """The policies of one kind: for each, two changes."""

    changes: NDArray[np.int64]  # (policies, 2)
    shares: NDArray[np.float64]
    bins: NDArray[np.int64]


class AutoAugment(Policy):
    """Makes the changes of one of some learned policies.

    Args:
        policy: Which data they were learned on.
        interpolation: `nearest` or `bilinear`, or torchvision's name of it.
        fill: The colour around what is moved: a number, or one for each channel; None is 0.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 4

    _space: ClassVar[Space] = {
        "Identity": Strengths(),
        **space(shear=0.3, shift=150 / 331, is_share=True, angle=30, factor=0.9, bits=4),
        "Invert": Strengths(),
    }

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        try:
            # torchvision's own has the same values.
            self.policy = AutoAugmentPolicy(getattr(policy, "value", policy))
        except ValueError as error:
            raise OptionError(
                f"policy must be one of {', '.join(map(str, AutoAugmentPolicy))}, got {policy!r}"
            ) from error
        super().__init__(interpolation, fill)
        self._pairs = self._read(_POLICIES[self.policy])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Two numbers of changes and their strengths, in turns; what is not done is the Identity."""
        numbers = draws.uniform(5)
        policies = integers(numbers[:, 0], len(self._pairs.changes))
        rows = np.empty((len(sizes), self.width))
        for turn in (0, 1):
            is_done = numbers[:, 1 + 2 * turn] < self._pairs.shares[policies, turn]
            chosen = np.where(is_done, self._pairs.changes[policies, turn], 0)
            bins, signs = self._pairs.bins[policies, turn], numbers[:, 2 + 2 * turn]
            rows[:, 2 * turn] = chosen
            rows[:, 2 * turn + 1] = self._strengths(chosen, bins, _BINS, signs, sizes)
        return rows

    def __repr__(self) -> str:
        return f"AutoAugment(policy={self.policy}, interpolation={self.interpolation!r}, fill={self.fill!r})"

    def _read(self, text: str) -> _Pairs:
        words = [[change.split() for change in line.split(" + ")] for line in text.strip().splitlines()]
        return _Pairs(
            np.array([[self._names.index(change[0]) for change in pair] for pair in words]),
            np.array([[float(change[1]) for change in pair] for pair in words]),
            np.array([[int([*change, "0"][2]) for change in pair] for pair in words]),
        )
