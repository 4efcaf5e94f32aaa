"""Resizes to a random size: RandomResize, RandomShortestSize, ScaleJitter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.resizing import Resizing, sizes_by_shorter
from fastload.transforms.transform import Parameters, is_whole, to_pair, to_size


class RandomResize(Resizing):
    """Resizes to a random shorter side; proportions are kept.

    Args:
        min_size: The least, in pixels.
        max_size: What the shorter side is less than.
        interpolation: See `Resize`.
        antialias: See `Resize`.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(
        self, min_size: int, max_size: int, interpolation: Any = "bilinear", antialias: bool | None = True
    ) -> None:
        if not is_whole(min_size) or not is_whole(max_size) or not 1 <= min_size < max_size:
            raise OptionError(
                "min_size and max_size must be whole numbers of pixels, the first below the second, got "
                f"{min_size!r} and {max_size!r}"
            )
        self.min_size = min_size
        self.max_size = max_size
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The sizes that images get."""
        sides = self.min_size + integers(draws.uniform(1)[:, 0], self.max_size - self.min_size)
        return sizes_by_shorter(sizes, sides, None)


class RandomShortestSize(Resizing):
    """Resizes to a shorter side out of a list; proportions are kept.

    Args:
        min_size: The shorter side in pixels, or those to choose from.
        max_size: The most that the longer side may become.
        interpolation: See `Resize`.
        antialias: See `Resize`.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(
        self,
        min_size: list[int] | tuple[int] | int,
        max_size: int | None = None,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.min_size = list(min_size) if isinstance(min_size, (tuple, list)) else [min_size]
        self.max_size = max_size
        given = [*self.min_size, *([] if max_size is None else [max_size])]
        if not self.min_size or not all(is_whole(side) and side >= 1 for side in given):
            raise OptionError(
                "min_size must be a whole number of pixels or several, and max_size one or None, got "
                f"{min_size!r} and {max_size!r}"
            )
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The sizes that images get."""
        chosen = np.array(self.min_size)[integers(draws.uniform(1)[:, 0], len(self.min_size))]
        factors = chosen / sizes.min(axis=1)
        if self.max_size is not None:
            factors = np.minimum(factors, self.max_size / sizes.max(axis=1))
        return _scaled(sizes, factors)


class ScaleJitter(Resizing):
    """Resizes by a random factor of what makes an image fit into a size; proportions are kept.

    Ghiasi et al., "Simple Copy-Paste", https://arxiv.org/abs/2012.07177.

    Args:
        target_size: Two numbers of pixels; torchvision divides the second by the height, the first by the
            width, and so it is done here.
        scale_range: The range of factors.
        interpolation: See `Resize`.
        antialias: See `Resize`.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(
        self,
        target_size: tuple[int, int],
        scale_range: tuple[float, float] = (0.1, 2.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.target_size = to_size(target_size, "target_size")
        self.scale_range = to_pair(scale_range, "scale_range")
        if not 0 < self.scale_range[0] <= self.scale_range[1]:
            raise OptionError(f"scale_range must be (low, high) factors above 0, got {scale_range!r}")
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The sizes that images get."""
        fitting = (np.array(self.target_size[::-1]) / sizes).min(axis=1)
        return _scaled(sizes, fitting * draws.between(*self.scale_range))


def _scaled(sizes: Sizes, factors: NDArray[np.float64]) -> Parameters:
    scaled: Parameters = np.maximum(np.floor(sizes * factors[:, None]), 1)
    return scaled
