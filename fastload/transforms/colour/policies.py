"""Automatic augmentation: the table of operations, RandAugment and TrivialAugmentWide.

RandAugment: Cubuk et al., https://arxiv.org/abs/1909.13719. TrivialAugment: Müller and Hutter,
https://arxiv.org/abs/2103.10158.

Operations, names and strengths are torchvision's. As there, strengths are computed in single precision: its
rounding decides whether an image is shifted by 31 pixels or by 32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.transforms import options
from fastload.transforms.colour import adjusting
from fastload.transforms.draws import Draws, integers
from fastload.transforms.options import Fill, FillColour, Filter
from fastload.transforms.shapes.distorting import Distortion
from fastload.transforms.shapes.warping import inverse_matrix, rotated, warped
from fastload.transforms.transform import Annotations, Parameters, Row, Sizes


class Strengths(NamedTuple):
    """Range of the strength of an operation."""

    weakest: float = 0.0
    strongest: float = 0.0
    is_signed: bool = False  # True to negate it for half of the images
    side: int | None = None  # to which it is relative: 0 for the height, 1 for the width
    is_whole: bool = False


Space = dict[str, Strengths]  # the operations of a policy, in torchvision's order


def space(
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


def _translated(image: Pixels, x: float, y: float, interpolation: str, fill: FillColour) -> Pixels:
    return warped(image, inverse_matrix(0.0, (int(x), int(y))), interpolation, fill)


def _sheared(image: Pixels, x: float, y: float, interpolation: str, fill: FillColour) -> Pixels:
    angles = math.degrees(math.atan(x)), math.degrees(math.atan(y))
    corner = -image.shape[1] / 2, -image.shape[0] / 2
    return warped(image, inverse_matrix(0.0, shear=angles, center=corner), interpolation, fill)


#: Each operation as a function of an image, a strength, an interpolation and a fill colour.
_OPERATIONS: dict[str, Callable[[Pixels, float, str, FillColour], Pixels]] = {
    "Identity": lambda image, strength, *edges: image,
    "ShearX": lambda image, strength, *edges: _sheared(image, strength, 0, *edges),
    "ShearY": lambda image, strength, *edges: _sheared(image, 0, strength, *edges),
    "TranslateX": lambda image, strength, *edges: _translated(image, strength, 0, *edges),
    "TranslateY": lambda image, strength, *edges: _translated(image, 0, strength, *edges),
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

    _space: ClassVar[Space]

    def __init__(self, interpolation: Filter, fill: Fill) -> None:
        super().__init__(interpolation, fill)
        self._names = list(self._space)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        adjusting.require_channels(image)
        for number, strength in zip(parameters[::2], parameters[1::2], strict=True):
            operation = _OPERATIONS[self._names[int(number)]]
            image = operation(image, strength, self._filter, self._fill)
        return image

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        raise OptionError(
            f"{type(self).__name__} must be given images without objects or a mask, as torchvision's: it is "
            "for classification; RandomAffine and ColorJitter are for images with boxes, too"
        )

    def _rows(
        self,
        chosen: NDArray[np.int64],
        bins: NDArray[np.int64] | int,
        count: int,
        signs: NDArray[np.float64],
        sizes: Sizes,
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

    _space = space()

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

    _space = space(shear=0.99, shift=32, is_relative=False, angle=135, factor=0.99, fewest_bits=2)

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


@functools.lru_cache(maxsize=4096)
def _scale(strengths: Strengths, count: int, side: int) -> NDArray[np.float64]:
    """Return all strengths of an operation for images with a side of this length."""
    weakest, strongest = strengths.weakest, strengths.strongest
    if strengths.is_whole:
        step = (count - 1) / (weakest - strongest)
        return (weakest - torch.arange(count) / step).round().double().numpy()
    return torch.linspace(weakest, strongest * side, count).double().numpy()
