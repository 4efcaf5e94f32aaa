"""Resizes: Resize, RandomResizedCrop, RandomResize, RandomShortestSize, ScaleJitter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels
from fastload.images.encoding_names import DTYPES
from fastload.images.resize import resize
from fastload.transforms import options
from fastload.transforms.draws import Draws, integers, random_sides
from fastload.transforms.options import Filter, SizeOption
from fastload.transforms.transform import (
    Annotations,
    Geometry,
    Parameters,
    Row,
    Sizes,
    Transform,
    equal_sizes,
)

_ATTEMPTS = 10  # of RandomResizedCrop, as in torchvision


class Resizing(Transform):
    """Base class of all resizes; the parameters are the new height and width."""

    width = 2
    takes_any_dtype = True

    def __init__(self, interpolation: Filter, antialias: bool | None) -> None:
        self.interpolation = interpolation
        self.antialias = antialias
        self._resampling = options.to_resampling(interpolation, antialias)

    def require_dtype(self, dtype: DType) -> None:
        if dtype.name not in (*DTYPES, "float64"):
            raise OptionError(
                f"{type(self).__name__} takes pixels of {', '.join(DTYPES)} or float64, got {dtype}: "
                "convert them after it"
            )

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return parameters.astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        return geometry.resize(parameters.astype(np.int64), self._resampling)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        height, width = map(int, parameters)
        return image if image.shape[:2] == (height, width) else self._resampled(image, height, width)

    def _resampled(self, image: Pixels, height: int, width: int) -> Pixels:
        return resize(image, height, width, self._resampling)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        return self._resized(annotations, int(parameters[0]), int(parameters[1]))

    def _resized(self, annotations: Annotations, height: int, width: int) -> Annotations:
        name = self._resampling.filter
        return annotations.resized(height, width, name if name == "nearest-exact" else "nearest")


class Resize(Resizing):
    """Resizes images; parameters as in torchvision.

    `interpolation` may also be `area`, which is OpenCV's. With `antialias=False`, bilinear is OpenCV's too:
    faster, but it skips source pixels when an image shrinks.
    """

    def __init__(
        self,
        size: SizeOption | None,
        interpolation: Filter = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if size is None and max_size is None:
            raise OptionError("Resize must have a size or a max_size, got neither")
        self.size = size
        self.max_size = None if max_size is None else options.to_whole(max_size, "max_size", 1)
        self._sides = sides = [] if size is None else options.to_list(size)
        if size is not None:
            options.to_size(size)
        if max_size is not None and (len(sides) == 2 or max_size <= max(sides, default=0)):
            rule = "max_size must be above size, which must be one number"
            raise OptionError(f"{rule}, got {max_size!r} and {size!r}")
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        if len(self._sides) == 2:
            return np.tile(np.array([self._sides], np.float64), (len(sizes), 1))
        return _sizes_by_shorter(sizes, max(self._sides, default=None), self.max_size)


class RandomResizedCrop(Resizing):
    """Crops a region of random area and aspect ratio, and resizes it; parameters as in torchvision.

    The numbers of `scale` and `ratio` are above 0; for `interpolation` and `antialias`, see `Resize`.
    """

    width = 4

    def __init__(
        self,
        size: SizeOption,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Filter = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = options.to_size(size)
        self.scale = options.to_range(scale, "scale")
        self.ratio = options.to_range(ratio, "ratio")
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw boxes (top, left, height, width): the first of ten attempts that fits, else the middle."""
        numbers = draws.uniform(2 * _ATTEMPTS + 2)
        sides, fits = random_sides(numbers[:, :-2], sizes, self.scale, self.ratio, 1, sizes[:, ::-1])
        boxes = np.empty((len(sizes), 4))
        boxes[:, 2:] = sides[:, ::-1]
        boxes[:, :2] = integers(numbers[:, -2:], sizes - boxes[:, 2:].astype(np.int64) + 1)
        for image in np.flatnonzero(~fits).tolist():
            boxes[image] = self.middle(*sizes[image].tolist())
        return boxes

    def middle(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the box (top, left, height, width) that is taken if no attempt fits."""
        proportions = width / height
        crop_height, crop_width = height, width
        if proportions < self.ratio[0]:
            crop_height = max(1, round(width / self.ratio[0]))
        elif proportions > self.ratio[1]:
            crop_width = max(1, round(height * self.ratio[1]))
        return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return equal_sizes(self.size, len(sizes))

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        sizes = self.sizes_after(geometry.sizes, parameters)
        boxes = parameters.astype(np.int64)
        is_resized = geometry.resampling is not None
        return not is_resized and geometry.crop(boxes) and geometry.resize(sizes, self._resampling)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        top, left, height, width = map(int, parameters)
        return self._resampled(image[top : top + height, left : left + width], *self.size)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        top, left, height, width = map(int, parameters)
        return self._resized(annotations.cropped(top, left, height, width), *self.size)


class RandomResize(Resizing):
    """Resizes the shorter side to a random length, keeping the aspect ratio; parameters as in torchvision."""

    def __init__(
        self,
        min_size: int,
        max_size: int,
        interpolation: Filter = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.min_size = options.to_whole(min_size, "min_size", 1)
        self.max_size = options.to_whole(max_size, "max_size", min_size + 1)
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        sides = self.min_size + integers(draws.uniform(1)[:, 0], self.max_size - self.min_size)
        return _sizes_by_shorter(sizes, sides, None)


class RandomShortestSize(Resizing):
    """Resizes the shorter side to one of a list, keeping the aspect ratio; parameters as in torchvision."""

    def __init__(
        self,
        min_size: list[int] | tuple[int] | int,
        max_size: int | None = None,
        interpolation: Filter = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        rule = "min_size must be a whole number of pixels, or several"
        self.min_size = options.to_numbers(min_size, rule, options.SEVERAL, 1, kind=options.is_whole)
        self.max_size = None if max_size is None else options.to_whole(max_size, "max_size", 1)
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        chosen = np.array(self.min_size)[integers(draws.uniform(1)[:, 0], len(self.min_size))]
        factors = chosen / sizes.min(axis=1)
        if self.max_size is not None:
            factors = np.minimum(factors, self.max_size / sizes.max(axis=1))
        return _scaled(sizes, factors)


class ScaleJitter(Resizing):
    """Resizes images by a random factor relative to `target_size`; parameters as in torchvision.

    As there, the first number of `target_size` belongs to the width. Ghiasi et al., "Simple Copy-Paste",
    https://arxiv.org/abs/2012.07177.
    """

    def __init__(
        self,
        target_size: tuple[int, int],
        scale_range: tuple[float, float] = (0.1, 2.0),
        interpolation: Filter = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.target_size = options.to_size(target_size, "target_size")
        self.scale_range = options.to_range(scale_range, "scale_range")
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
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
    return np.asarray(np.maximum(np.stack((heights, widths), axis=1), 1), np.float64)


def _scaled(sizes: Sizes, factors: NDArray[np.float64]) -> Parameters:
    return np.maximum(np.floor(sizes * factors[:, None]), 1)
