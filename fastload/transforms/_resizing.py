"""Resizes: Resize, RandomResize, RandomShortestSize, ScaleJitter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.resize import resize
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.options import Size, is_whole, require, to_list, to_range, to_resampling, to_size
from fastload.transforms.transform import Parameters, Pixels, Transform


class Resizing(Transform):
    """Base class of all resizes; the parameters are the new height and width."""

    width = 2
    takes_any_dtype = True

    def __init__(self, interpolation: Any, antialias: bool | None) -> None:
        self.interpolation = interpolation
        self.antialias = antialias
        self._resampling = to_resampling(interpolation, antialias)

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Raise OptionError unless both PyTorch and OpenCV can resize this dtype."""
        if dtype not in (np.uint8, np.float32, np.float64):
            raise OptionError(
                f"{type(self).__name__} takes pixels of uint8, float32 or float64, got {dtype}: "
                "convert them after it"
            )

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the new sizes."""
        return parameters.astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """Add the resize to a geometry."""
        return geometry.resize(parameters.astype(np.int64), self._resampling)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Resize the image."""
        height, width = map(int, parameters)
        return image if image.shape[:2] == (height, width) else resize(image, height, width, self._resampling)


class Resize(Resizing):
    """Resizes images.

    Args:
        size: (height, width); or one number, the length of the shorter side, which keeps proportions; or
            None, for a longer side of `max_size`.
        interpolation: `bilinear`, `bicubic`, `nearest`, `nearest-exact`, `area`, or torchvision's constant.
        max_size: The largest length of the longer side.
        antialias: Whether every source pixel counts when an image shrinks. False is faster, by OpenCV.
    """

    def __init__(
        self,
        size: Size | None,
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        sides = to_list(size)
        if size is None and max_size is None:
            raise OptionError("Resize must have a size or a max_size, got neither")
        if size is not None:
            to_size(size)
        if max_size is not None:
            is_valid = isinstance(max_size, int) and max_size >= 1
            require(is_valid, "max_size must be a whole number of pixels", max_size)
            if len(sides) == 2 or (sides[0] is not None and max_size <= sides[0]):
                raise OptionError(
                    f"max_size must be above size, which must be one number, got {max_size!r} and {size!r}"
                )
        self.size = size
        self.max_size = max_size
        super().__init__(interpolation, antialias)
        self._sides = sides

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Return the new sizes."""
        if len(self._sides) == 2:
            return np.tile(np.array([self._sides], np.float64), (len(sizes), 1))
        return _sizes_by_shorter(sizes, self._sides[0], self.max_size)


class RandomResize(Resizing):
    """Resizes images to a random shorter side, keeping proportions.

    Args:
        min_size: The smallest length of the shorter side in pixels.
        max_size: The bound that the length stays below.
        interpolation, antialias: See `Resize`.
    """

    def __init__(
        self, min_size: int, max_size: int, interpolation: Any = "bilinear", antialias: bool | None = True
    ) -> None:
        is_valid = is_whole(min_size) and is_whole(max_size) and 1 <= min_size < max_size
        rule = "min_size and max_size must be whole numbers of pixels, the first below the second"
        require(is_valid, rule, (min_size, max_size))
        self.min_size = min_size
        self.max_size = max_size
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the new sizes."""
        sides = self.min_size + integers(draws.uniform(1)[:, 0], self.max_size - self.min_size)
        return _sizes_by_shorter(sizes, sides, None)


class RandomShortestSize(Resizing):
    """Resizes images to a shorter side drawn from a list, keeping proportions.

    Args:
        min_size: The shorter side in pixels, or a list to draw from.
        max_size: The largest length of the longer side.
        interpolation, antialias: See `Resize`.
    """

    def __init__(
        self,
        min_size: list[int] | tuple[int] | int,
        max_size: int | None = None,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.min_size = to_list(min_size)
        self.max_size = max_size
        lengths = [*self.min_size, *([] if max_size is None else [max_size])]
        is_valid = bool(self.min_size) and all(is_whole(length) and length >= 1 for length in lengths)
        rule = "min_size must be a whole number of pixels or several, and max_size one or None"
        require(is_valid, rule, (min_size, max_size))
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the new sizes."""
        chosen = np.array(self.min_size)[integers(draws.uniform(1)[:, 0], len(self.min_size))]
        factors = chosen / sizes.min(axis=1)
        if self.max_size is not None:
            factors = np.minimum(factors, self.max_size / sizes.max(axis=1))
        return _scaled(sizes, factors)


class ScaleJitter(Resizing):
    """Resizes images by a random factor relative to the size that they fit into, keeping proportions.

    Ghiasi et al., "Simple Copy-Paste", https://arxiv.org/abs/2012.07177.

    Args:
        target_size: Two numbers of pixels; as in torchvision, the first belongs to the width.
        scale_range: Range of the factor.
        interpolation, antialias: See `Resize`.
    """

    def __init__(
        self,
        target_size: tuple[int, int],
        scale_range: tuple[float, float] = (0.1, 2.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.target_size = to_size(target_size, "target_size")
        self.scale_range = to_range(scale_range, "scale_range")
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the new sizes."""
        fitting = (np.array(self.target_size[::-1]) / sizes).min(axis=1)
        return _scaled(sizes, fitting * draws.between(*self.scale_range))


def _sizes_by_shorter(sizes: Sizes, side: NDArray[np.int64] | int | None, max_size: int | None) -> Parameters:
    """Return new sizes, given the shorter side (None: as long as `max_size` allows) and the longest side."""
    shorter, longer = sizes.min(axis=1), sizes.max(axis=1)
    if side is None:
        assert max_size is not None
        new_shorter, new_longer = max_size * shorter // longer, np.full_like(longer, max_size)
    else:
        new_shorter, new_longer = np.broadcast_to(side, shorter.shape), side * longer // shorter
        if max_size is not None:
            is_over = new_longer > max_size
            new_shorter = np.where(is_over, max_size * new_shorter // new_longer, new_shorter)
            new_longer = np.minimum(new_longer, max_size)
    is_tall = sizes[:, 0] > sizes[:, 1]
    heights = np.where(is_tall, new_longer, new_shorter)
    widths = np.where(is_tall, new_shorter, new_longer)
    new_sizes: Parameters = np.maximum(np.stack((heights, widths), axis=1), 1).astype(np.float64)
    return new_sizes


def _scaled(sizes: Sizes, factors: NDArray[np.float64]) -> Parameters:
    scaled: Parameters = np.maximum(np.floor(sizes * factors[:, None]), 1)
    return scaled
