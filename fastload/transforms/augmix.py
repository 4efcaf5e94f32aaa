"""AugMix: an image is mixed with the results of chains of operations.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty",
https://arxiv.org/abs/1912.02781.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.options import is_number, is_whole, require
from fastload.transforms.policies import Policy, Strengths, space
from fastload.transforms.transform import Parameters, Pixels

_STRENGTHS = 10  # of which the first `severity` are used
_DEEPEST = 3  # longest chain if the depth is random

# Drawing a gamma number fails at most once in twenty attempts.
_ATTEMPTS = 16


class AugMix(Policy):
    """Mixes an image with the results of chains of random operations.

    Args:
        severity: The number of strengths to draw from, the weakest first, 1 to 10.
        mixture_width: The number of chains, at least 1.
        chain_depth: The number of operations in a chain; below 1 for 1 to 3 at random.
        alpha: The parameter of the distributions of the mixing shares, above 0.
        all_ops: Whether brightness, colour, contrast and sharpness are changed too.
        interpolation: `nearest` or `bilinear`, or torchvision's constant.
        fill: The colour around moved pixels: a number, or one for each channel; None is 0.
    """

    # Here levels keep 4 bits and fewer, down to none.
    _space = {**space(shift=1 / 3), "Posterize": Strengths(4, 0, is_whole=True)}  # noqa: RUF012

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        is_severity = is_whole(severity) and 1 <= severity <= _STRENGTHS
        require(is_severity, f"severity must be a whole number from 1 to {_STRENGTHS}", severity)
        is_count = is_whole(mixture_width) and mixture_width >= 1
        require(is_count, "mixture_width must be a whole number of at least 1", mixture_width)
        require(is_whole(chain_depth), "chain_depth must be a whole number", chain_depth)
        require(is_number(alpha) and alpha > 0, "alpha must be a number above 0", alpha)
        self.severity = severity
        self.mixture_width = mixture_width
        self.chain_depth = chain_depth
        self.alpha = alpha
        self.all_ops = all_ops
        super().__init__(interpolation, fill)
        self._depth = chain_depth if chain_depth > 0 else _DEEPEST
        self.width = 1 + mixture_width * (1 + 2 * self._depth)
        partial = ("Identity", "Brightness", "Color", "Contrast", "Sharpness")
        skipped = partial[:1] if all_ops else partial
        self._choice = np.array([n for n, name in enumerate(self._names) if name not in skipped])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the image's own share; then each chain's share, and its operations with their strengths."""
        rows = np.zeros((len(sizes), self.width))
        own = _shares(draws.at(0), 2, self.alpha)
        rows[:, 0] = own[:, 0]
        shares = _shares(draws.at(1), self.mixture_width, self.alpha) * own[:, 1:]
        numbers = draws.at(2).uniform(self.mixture_width * (1 + 3 * self._depth))
        column = 1
        for chain, choice in enumerate(np.split(numbers, self.mixture_width, axis=1)):
            depths = np.full(len(sizes), self._depth)
            if self.chain_depth < 1:
                depths = 1 + integers(choice[:, 0], _DEEPEST)
            rows[:, column] = shares[:, chain]
            for turn in range(self._depth):
                which, strength, sign = choice[:, 1 + 3 * turn : 4 + 3 * turn].T
                chosen = np.where(turn < depths, self._choice[integers(which, len(self._choice))], 0)
                bins = integers(strength, self.severity)
                rows[:, column + 1 + 2 * turn] = chosen
                rows[:, column + 2 + 2 * turn] = self._strengths(chosen, bins, _STRENGTHS, sign, sizes)
            column += 1 + 2 * self._depth
        return rows

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Mix the image."""
        mixed = image * np.float32(parameters[0])
        length = 1 + 2 * self._depth
        for first in range(1, self.width, length):
            share, *operations = parameters[first : first + length]
            mixed += super().apply(image, operations) * np.float32(share)
        levels: Pixels = mixed.astype(np.uint8)
        return levels


def _shares(draws: Draws, count: int, alpha: float) -> NDArray[np.float64]:
    """Return shares that add up to 1, (images, count), of the symmetric Dirichlet distribution."""
    gammas = np.stack([_gammas(draws.at(place), alpha) for place in range(count)], axis=1)
    shares: NDArray[np.float64] = gammas / gammas.sum(axis=1, keepdims=True)
    return shares


def _gammas(draws: Draws, alpha: float) -> NDArray[np.float64]:
    """Return a gamma-distributed number for each image.

    Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000; several attempts at once.
    """
    numbers = draws.uniform(3 * _ATTEMPTS + 1)
    boost, first, second, third = numbers[:, 0], *np.split(numbers[:, 1:], 3, axis=1)
    normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    shape = (alpha if alpha >= 1 else alpha + 1) - 1 / 3
    cubes = (1 + normal / np.sqrt(9 * shape)) ** 3
    with np.errstate(invalid="ignore", divide="ignore"):
        is_accepted = np.log1p(-third) < normal**2 / 2 + shape * (1 - cubes + np.log(cubes))
    chosen = (is_accepted & (cubes > 0)).argmax(axis=1)
    found: NDArray[np.float64] = shape * np.maximum(cubes[np.arange(len(chosen)), chosen], 1e-300)
    return found if alpha >= 1 else found * np.maximum(1 - boost, 1e-300) ** (1 / alpha)
