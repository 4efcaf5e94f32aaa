"""AutoAugment and AugMix: operations chosen by learned policies, and mixtures of chains of operations.

Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", https://arxiv.org/abs/1805.09501. The
policies are those of its appendix, in torchvision's order and with torchvision's strengths.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty",
https://arxiv.org/abs/1912.02781.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.transforms import options
from fastload.transforms.colour.policies import Policy, Strengths, space
from fastload.transforms.draws import Draws, integers, seeds
from fastload.transforms.options import Fill, Filter
from fastload.transforms.transform import Parameters, Row, Sizes

_STRENGTHS = 10  # of each operation, in both papers
_DEEPEST = 3  # of AugMix: longest chain if the depth is random


class AutoAugmentPolicy(Enum):
    """The data that AutoAugment's policies were learned on; torchvision's names and values."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"

    def __repr__(self) -> str:
        return str(self)


# Each policy: two operations, each with its probability and the index of its strength.
_POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
        Posterize 0.4 8 + Rotate 0.6 9, Solarize 0.6 5 + AutoContrast 0.6, Equalize 0.8 + Equalize 0.6,
        Posterize 0.6 7 + Posterize 0.6 6, Equalize 0.4 + Solarize 0.2 4, Equalize 0.4 + Rotate 0.8 8,
        Solarize 0.6 3 + Equalize 0.6, Posterize 0.8 5 + Equalize 1, Rotate 0.2 3 + Solarize 0.6 8,
        Equalize 0.6 + Posterize 0.4 6, Rotate 0.8 8 + Color 0.4 0, Rotate 0.4 9 + Equalize 0.6,
        Equalize 0 + Equalize 0.8, Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8,
        Rotate 0.8 8 + Color 1 2, Color 0.8 8 + Solarize 0.8 7, Sharpness 0.4 7 + Invert 0.6,
        ShearX 0.6 5 + Equalize 1, Color 0.4 0 + Equalize 0.6, Equalize 0.4 + Solarize 0.2 4,
        Solarize 0.6 5 + AutoContrast 0.6, Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8,
        Equalize 0.8 + Equalize 0.6
    """,
    AutoAugmentPolicy.CIFAR10: """
        Invert 0.1 + Contrast 0.2 6, Rotate 0.7 2 + TranslateX 0.3 9, Sharpness 0.8 1 + Sharpness 0.9 3,
        ShearY 0.5 8 + TranslateY 0.7 9, AutoContrast 0.5 + Equalize 0.9, ShearY 0.2 7 + Posterize 0.3 7,
        Color 0.4 3 + Brightness 0.6 7, Sharpness 0.3 9 + Brightness 0.7 9, Equalize 0.6 + Equalize 0.5,
        Contrast 0.6 7 + Sharpness 0.6 5, Color 0.7 7 + TranslateX 0.5 8, Equalize 0.3 + AutoContrast 0.4,
        TranslateY 0.4 3 + Sharpness 0.2 6, Brightness 0.9 6 + Color 0.2 8, Solarize 0.5 2 + Invert 0,
        Equalize 0.2 + AutoContrast 0.6, Equalize 0.2 + Equalize 0.6, Color 0.9 9 + Equalize 0.6,
        AutoContrast 0.8 + Solarize 0.2 8, Brightness 0.1 3 + Color 0.7 0, Solarize 0.4 5 + AutoContrast 0.9,
        TranslateY 0.9 9 + TranslateY 0.7 9, AutoContrast 0.9 + Solarize 0.8 3, Equalize 0.8 + Invert 0.1,
        TranslateY 0.7 9 + AutoContrast 0.9
    """,
    AutoAugmentPolicy.SVHN: """
        ShearX 0.9 4 + Invert 0.2, ShearY 0.9 8 + Invert 0.7, Equalize 0.6 + Solarize 0.6 6,
        Invert 0.9 + Equalize 0.6, Equalize 0.6 + Rotate 0.9 3, ShearX 0.9 4 + AutoContrast 0.8,
        ShearY 0.9 8 + Invert 0.4, ShearY 0.9 5 + Solarize 0.2 6, Invert 0.9 + AutoContrast 0.8,
        Equalize 0.6 + Rotate 0.9 3, ShearX 0.9 4 + Solarize 0.3 3, ShearY 0.8 8 + Invert 0.7,
        Equalize 0.9 + TranslateY 0.6 6, Invert 0.9 + Equalize 0.6, Contrast 0.3 3 + Rotate 0.8 4,
        Invert 0.8 + TranslateY 0 2, ShearY 0.7 6 + Solarize 0.4 8, Invert 0.6 + Rotate 0.8 4,
        ShearY 0.3 7 + TranslateX 0.9 3, ShearX 0.1 6 + Invert 0.6, Solarize 0.7 2 + TranslateY 0.6 7,
        ShearY 0.8 4 + Invert 0.8, ShearX 0.7 9 + TranslateY 0.8 3, ShearY 0.8 5 + AutoContrast 0.7,
        ShearX 0.7 2 + Invert 0.1
    """,
}


class AutoAugment(Policy):
    """Applies the operations of one learned policy, chosen at random; parameters as in torchvision."""

    width = 4

    _space = {**space(), "Invert": Strengths()}  # noqa: RUF012 - typed as a class variable by the base class

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Filter = "nearest",
        fill: Fill = None,
    ) -> None:
        try:
            # torchvision's own enumeration has the same values.
            self.policy = AutoAugmentPolicy(getattr(policy, "value", policy))
        except ValueError as error:
            raise OptionError(
                f"policy must be one of {', '.join(map(str, AutoAugmentPolicy))}, got {policy!r}"
            ) from error
        super().__init__(interpolation, fill)
        rows = []
        for operation in _POLICIES[self.policy].replace("+", ",").split(","):
            name, probability, *strength = operation.split()
            rows.append([self._names.index(name), float(probability), int(strength[0]) if strength else 0])
        # The index, the probability and the strength's index of each operation.
        self._policies = np.array(rows, np.float64).reshape(-1, 2, 3)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the indices of two operations, each followed by its strength; Identity for none."""
        numbers = draws.uniform(5)
        policies = self._policies[integers(numbers[:, 0], len(self._policies))]
        operations, probabilities, bins = np.moveaxis(policies, 2, 0)
        chosen = np.where(numbers[:, 1::2] < probabilities, operations, 0).astype(np.int64)
        return self._rows(chosen, bins.astype(np.int64), _STRENGTHS, numbers[:, 2::2], sizes)


class AugMix(Policy):
    """Mixes an image with the results of chains of random operations; parameters as in torchvision."""

    # AugMix keeps 4 bits of a level at the weakest, none at the strongest.
    _space = {**space(shift=1 / 3), "Posterize": Strengths(4, 0, is_whole=True)}  # noqa: RUF012

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Filter = "bilinear",
        fill: Fill = None,
    ) -> None:
        options.require(options.is_whole(chain_depth), "chain_depth must be a whole number", chain_depth)
        self.severity = options.to_whole(severity, "severity", 1, _STRENGTHS)
        self.mixture_width = options.to_whole(mixture_width, "mixture_width", 1)
        self.chain_depth = chain_depth
        self.alpha = options.to_number(alpha, "alpha", options.ABOVE_0)
        self.all_ops = all_ops
        super().__init__(interpolation, fill)
        self._depth = chain_depth if chain_depth > 0 else _DEEPEST
        self.width = 1 + mixture_width * (1 + 2 * self._depth)
        partial = ("Identity", "Brightness", "Color", "Contrast", "Sharpness")
        skipped = partial[:1] if all_ops else partial
        self._choice = np.array([n for n, name in enumerate(self._names) if name not in skipped])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the weight of the image itself; then each chain's weight, operations and strengths."""
        own = _shares(draws.at(0), 2, self.alpha)
        shares = _shares(draws.at(1), self.mixture_width, self.alpha) * own[:, 1:]
        shape = len(sizes), self.mixture_width, 1 + 3 * self._depth
        numbers = draws.at(2).uniform(shape[1] * shape[2]).reshape(shape)
        depths = self._depth if self.chain_depth > 0 else 1 + integers(numbers[..., :1], _DEEPEST)
        chosen = self._choice[integers(numbers[..., 1::3], len(self._choice))]
        chosen = np.where(np.arange(self._depth) < depths, chosen, 0)
        bins = integers(numbers[..., 2::3], self.severity)
        operations = self._rows(chosen, bins, _STRENGTHS, numbers[..., 3::3], sizes)
        chains = np.concatenate((shares[..., None], operations), axis=2)
        return np.concatenate((own[:, :1], chains.reshape(len(sizes), self.width - 1)), axis=1)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        mixed = image * np.float32(parameters[0])
        length = 1 + 2 * self._depth
        for first in range(1, self.width, length):
            share, *operations = parameters[first : first + length]
            mixed += super().apply(image, operations) * np.float32(share)
        return mixed.astype(np.uint8)


def _shares(draws: Draws, count: int, alpha: float) -> NDArray[np.float64]:
    """Return shares that add up to 1, (images, count), of the symmetric Dirichlet distribution."""
    shares = np.empty((len(draws), count))
    for row, seed in zip(shares, seeds(draws.uniform(1)[:, 0]), strict=True):
        row[:] = np.random.default_rng(int(seed)).dirichlet([alpha] * count)
    return shares
