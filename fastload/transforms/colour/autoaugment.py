"""Automatic augmentation: AutoAugment, RandAugment, TrivialAugmentWide and AugMix.

AutoAugment: Cubuk et al., https://arxiv.org/abs/1805.09501; its policies are those of the appendix.
RandAugment: Cubuk et al., https://arxiv.org/abs/1909.13719. TrivialAugment: Müller and Hutter,
https://arxiv.org/abs/2103.10158. AugMix: Hendrycks et al., https://arxiv.org/abs/1912.02781.

Operations, policies, their order, names and strengths are torchvision's. As there, strengths are computed in
single precision: its rounding decides whether an image is shifted by 31 pixels or by 32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from enum import Enum
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.transforms import options
from fastload.transforms.colour import adjusting
from fastload.transforms.draws import Draws, integers, seeds
from fastload.transforms.options import Fill, FillLevels, Filter
from fastload.transforms.shapes.distorting import Distortion
from fastload.transforms.shapes.warping import inverse_matrix, rotated, warped
from fastload.transforms.transform import Annotations, Ints, Parameters, Row, Sizes

_STRENGTHS = 10  # of each operation, in AutoAugment and AugMix
_DEEPEST = 3  # of AugMix: longest chain if the depth is random


class Strengths(NamedTuple):
    """Range of the strength of an operation."""

    weakest: float = 0.0
    strongest: float = 0.0
    is_signed: bool = False  # True to negate it for half of the images
    side: int | None = None  # to which it is relative: 0 for the height, 1 for the width
    is_whole: bool = False


Space = dict[str, Strengths]  # the operations of a policy, in torchvision's order


def _space_of(
    shear: float = 0.3,
    shift: float = 150 / 331,
    is_relative: bool = True,
    angle: float = 30,
    factor: float = 0.9,
    fewest_bits: int = 4,
) -> Space:
    """Return the operations that all policies have.

    Strengths are the largest tangent of a shear, shift (relative to the side, or in pixels), angle in
    degrees, and difference of a factor from 1, and the fewest bits of a level that are kept.
    """
    factors = Strengths(0, factor, is_signed=True)
    return {
        "Identity": Strengths(),
        "ShearX": Strengths(0, shear, is_signed=True),
        "ShearY": Strengths(0, shear, is_signed=True),
        "TranslateX": Strengths(0, shift, is_signed=True, side=1 if is_relative else None),
        "TranslateY": Strengths(0, shift, is_signed=True, side=0 if is_relative else None),
        "Rotate": Strengths(0, angle, is_signed=True),
        "Brightness": factors,
        "Color": factors,
        "Contrast": factors,
        "Sharpness": factors,
        "Posterize": Strengths(8, fewest_bits, is_whole=True),
        "Solarize": Strengths(1, 0),
        "AutoContrast": Strengths(),
        "Equalize": Strengths(),
    }


def _sheared(image: Pixels, x: float, y: float, interpolation: str, fill: FillLevels) -> Pixels:
    angles = math.degrees(math.atan(x)), math.degrees(math.atan(y))
    corner = -image.shape[1] / 2, -image.shape[0] / 2
    return warped(image, inverse_matrix(0.0, shear=angles, center=corner), interpolation, fill)


#: Each operation as a function of an image, a strength, an interpolation and a fill colour.
_OPERATIONS: dict[str, Callable[[Pixels, float, str, FillLevels], Pixels]] = {
    "Identity": lambda image, strength, *edges: image,
    "ShearX": lambda image, strength, *edges: _sheared(image, strength, 0, *edges),
    "ShearY": lambda image, strength, *edges: _sheared(image, 0, strength, *edges),
    "TranslateX": lambda image, x, *edges: warped(image, inverse_matrix(0.0, (int(x), 0)), *edges),
    "TranslateY": lambda image, y, *edges: warped(image, inverse_matrix(0.0, (0, int(y))), *edges),
    "Rotate": lambda image, strength, *edges: rotated(image, strength, *edges),
    "Brightness": lambda image, strength, *edges: adjusting.brightness(image, 1 + strength),
    "Color": lambda image, strength, *edges: adjusting.saturation(image, 1 + strength),
    "Contrast": lambda image, strength, *edges: adjusting.contrast(image, 1 + strength),
    "Sharpness": lambda image, strength, *edges: adjusting.sharpness(image, 1 + strength),
    "Posterize": lambda image, strength, *edges: adjusting.posterize(image, int(strength)),
    "Solarize": lambda image, strength, *edges: adjusting.solarize(image, 255 * strength),
    "AutoContrast": lambda image, strength, *edges: adjusting.autocontrast(image),
    "Equalize": lambda image, strength, *edges: adjusting.equalize(image),
    "Invert": lambda image, strength, *edges: adjusting.invert(image),
}


class Policy(Distortion):
    """Base class of all policies; the parameters are indices of operations, each with its strength."""

    takes_any_dtype = False

    _space: ClassVar[Space]

    def __init__(self, interpolation: Filter, fill: Fill) -> None:
        super().__init__(interpolation, fill)
        self._names = list(self._space)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        adjusting.require_channels(image)
        for number, strength in zip(map(int, parameters[::2]), parameters[1::2], strict=True):
            image = _OPERATIONS[self._names[number]](image, strength, self._filter, self._fill)
        return image

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        raise OptionError(
            f"{type(self).__name__} must be given images without objects or a mask, as torchvision's: it is "
            "for classification; RandomAffine and ColorJitter are for images with boxes, too"
        )

    def _rows(
        self, chosen: Ints, bins: Ints | int, count: int, signs: NDArray[np.float64], sizes: Sizes
    ) -> Parameters:
        """Return the parameters of operations, all arrays (images, …, turns).

        `chosen` are indices of operations, `bins` indices of strengths out of `count`; `signs` are numbers in
        [0, 1), and those below 0.5 negate the strength.
        """
        operations = list(self._space.values())
        bins = np.broadcast_to(bins, chosen.shape)
        rows = np.empty((*chosen.shape, 2))
        rows[..., 0] = chosen
        for place, number in np.ndenumerate(chosen):
            operation = operations[number]
            side = 1 if operation.side is None else int(sizes[place[0], operation.side])
            strength = _scale(operation, count, side)[bins[place]]
            rows[(*place, 1)] = -strength if operation.is_signed and signs[place] < 0.5 else strength
        return rows.reshape(*chosen.shape[:-1], 2 * chosen.shape[-1])


class RandAugment(Policy):
    """Applies some random operations of one strength; parameters as in torchvision."""

    _space = _space_of()

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Filter = "nearest",
        fill: Fill = None,
    ) -> None:
        self.num_ops = options.to_whole(num_ops, "num_ops", 0)
        self.num_magnitude_bins = options.to_whole(num_magnitude_bins, "num_magnitude_bins", 2)
        self.magnitude = options.to_whole(magnitude, "magnitude", 0, num_magnitude_bins - 1)
        super().__init__(interpolation, fill)
        self.width = 2 * num_ops

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw indices of operations, each followed by its strength."""
        numbers = draws.uniform(self.width)
        chosen = integers(numbers[:, ::2], len(self._space))
        return self._rows(chosen, self.magnitude, self.num_magnitude_bins, numbers[:, 1::2], sizes)


class TrivialAugmentWide(Policy):
    """Applies one random operation of random strength; parameters as in torchvision."""

    width = 2

    _space = _space_of(shear=0.99, shift=32, is_relative=False, angle=135, factor=0.99, fewest_bits=2)

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Filter = "nearest", fill: Fill = None
    ) -> None:
        self.num_magnitude_bins = options.to_whole(num_magnitude_bins, "num_magnitude_bins", 2)
        super().__init__(interpolation, fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the index of the operation, and its strength."""
        numbers = draws.uniform(3)
        chosen = integers(numbers[:, :1], len(self._space))
        bins = integers(numbers[:, 1:2], self.num_magnitude_bins)
        return self._rows(chosen, bins, self.num_magnitude_bins, numbers[:, 2:], sizes)


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

    _space = {**_space_of(), "Invert": Strengths()}  # noqa: RUF012 - typed as a class variable by the base class

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Filter = "nearest",
        fill: Fill = None,
    ) -> None:
        value = getattr(policy, "value", policy)  # torchvision's own enumeration has the same
        rule = f"policy must be one of {', '.join(map(str, AutoAugmentPolicy))}"
        options.require(value in [each.value for each in AutoAugmentPolicy], rule, policy)
        self.policy = AutoAugmentPolicy(value)
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
    _space = {**_space_of(shift=1 / 3), "Posterize": Strengths(4, 0, is_whole=True)}  # noqa: RUF012

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


@functools.lru_cache(maxsize=4096)
def _scale(strengths: Strengths, count: int, side: int) -> NDArray[np.float64]:
    """Return all strengths of an operation for images with a side of this length."""
    weakest, strongest = strengths.weakest, strengths.strongest
    if strengths.is_whole:
        step = (count - 1) / (weakest - strongest)
        return (weakest - torch.arange(count) / step).round().double().numpy()
    return torch.linspace(weakest, strongest * side, count).double().numpy()


def _shares(draws: Draws, count: int, alpha: float) -> NDArray[np.float64]:
    """Return shares that add up to 1, (images, count), of the symmetric Dirichlet distribution."""
    shares = np.empty((len(draws), count))
    for row, seed in zip(shares, seeds(draws.uniform(1)[:, 0]), strict=True):
        row[:] = np.random.default_rng(int(seed)).dirichlet([alpha] * count)
    return shares
