"""Resize: every image to one size, or to one shorter side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import OptionError
from fastload.images.resize import resize
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.transform import Parameters, Pixels, Transform, to_resampling, to_size


class Resizing(Transform):
    """What all resizes have in common: parameters are the heights and widths that images get.

    Args:
        interpolation: See `Resize`.
        antialias: See `Resize`.
    """

    width = 2
    takes_any_dtype = True

    def __init__(self, interpolation: Any, antialias: bool | None) -> None:
        self.interpolation = interpolation
        self.antialias = antialias
        self._resampling = to_resampling(interpolation, antialias)

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Requires pixels of a type that can be resized.

        Raises:
            OptionError: They are not.
        """
        require_resizable(dtype, type(self).__name__)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes that images get."""
        return parameters.astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """A resize."""
        return geometry.resize(parameters.astype(np.int64), self._resampling)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Resizes."""
        height, width = map(int, parameters)
        return image if image.shape[:2] == (height, width) else resize(image, height, width, self._resampling)


class Resize(Resizing):
    """Resizes.

    Args:
        size: (height, width); or one number, the shorter side, and proportions are kept; or None, and
            the longer side becomes `max_size`.
        interpolation: `bilinear`, `bicubic`, `nearest`, `nearest-exact` or `area`, or torchvision's name
            of it.
        max_size: The most that the longer side may become.
        antialias: Whether every source pixel counts when shrinking. False is faster, and OpenCV's.

    Raises:
        OptionError: A parameter is none of these.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        sides: list[Any] = list(size) if isinstance(size, (tuple, list)) else [size]
        if size is None and max_size is None:
            raise OptionError("Resize must have a size or a max_size, got neither")
        if size is not None:
            to_size(size)
        if max_size is not None and not (isinstance(max_size, int) and max_size >= 1):
            raise OptionError(f"max_size must be a whole number of pixels, got {max_size!r}")
        if max_size is not None and (len(sides) == 2 or (sides[0] is not None and max_size <= sides[0])):
            raise OptionError(
                f"max_size must be above size, which must be one number, got {max_size!r} and {size!r}"
            )
        self.size = size
        self.max_size = max_size
        super().__init__(interpolation, antialias)
        self._sides = sides

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The sizes that images get."""
        if len(self._sides) == 2:
            return np.tile(np.array([self._sides], np.float64), (len(sizes), 1))
        return sizes_by_shorter(sizes, self._sides[0], self.max_size)


def sizes_by_shorter(sizes: Sizes, side: Any, max_size: int | None) -> Parameters:
    """The sizes that images get from their shorter side's; proportions are kept.

    Args:
        sizes: The images'.
        side: The shorter side's length, or that of each image; None for as long as `max_size` allows.
        max_size: The most that the longer side may become.
    """
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
    drawn: Parameters = np.maximum(np.stack((heights, widths), axis=1), 1).astype(np.float64)
    return drawn


def require_resizable(dtype: np.dtype[Any], name: str) -> None:
    """Requires a type that PyTorch and OpenCV both resize.

    Raises:
        OptionError: It is another.
    """
    if dtype not in (np.uint8, np.float32, np.float64):
        raise OptionError(
            f"{name} takes pixels of uint8, float32 or float64, got {dtype}: convert them after it"
        )
