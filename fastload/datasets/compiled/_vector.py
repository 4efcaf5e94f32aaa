"""Pipelines of torchvision's common steps that draw the random parameters of an entire batch at once.

The parameters are those that torchvision would draw, image by image and step by step. If every image needs
the same number of the generator's words, as for flips and crops of one size, there is no loop over images.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.compiled._steps import CompiledStep, is_v2
from fastload.datasets.compiled._words import WordColumns, WordReader, are_words_as_expected, next_words
from fastload.errors import OptionError
from fastload.transforms import (
    CenterCrop,
    Compose,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from fastload.transforms.draws import fresh_draws
from fastload.transforms.geometry import Sizes, common_size
from fastload.transforms.options import require
from fastload.transforms.pipeline import Pipeline
from fastload.transforms.transform import Parameters, Transform

# The number of words that is enough for most images: two for the area and shape of a crop, two for its
# position, one for a flip, one to spare.
_WORDS_AN_IMAGE = 6

_NONE: Parameters = np.empty((0, 0))

WordSource = WordReader | WordColumns

DrawnNumbers = float | np.bool_ | NDArray[np.generic]
"""A parameter of one image, or of all images of a batch."""


class _Drawer(ABC):
    """Drawer of the parameters of a torchvision transform; `ours` is fastload's equivalent transform."""

    ours: Transform

    def count(self, size: tuple[int, int]) -> int | None:
        """Return how many words an image of this size needs; None if that depends on the words."""
        return None

    @abstractmethod
    def row(self, numbers: WordSource, size: tuple[int, int]) -> Sequence[DrawnNumbers]:
        """Return the parameters of the next image, or of all images as arrays if there is a count."""


class _Flip(_Drawer):
    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        kind = RandomHorizontalFlip if type(theirs).__name__ == "RandomHorizontalFlip" else RandomVerticalFlip
        self.ours = kind(theirs.p)

    def count(self, size: tuple[int, int]) -> int:
        return 1

    def row(self, numbers: WordSource, size: tuple[int, int]) -> Sequence[DrawnNumbers]:
        # torch compares in single precision.
        return (numbers.uniform(0.0, 1.0) < np.float32(self._theirs.p),)


class _Crop(_Drawer):
    ours: RandomCrop

    def __init__(self, theirs: Any) -> None:
        padding = theirs.padding
        if padding is not None and is_v2(theirs):
            left, right, top, bottom = padding
            padding = left, top, right, bottom
        fill = 0 if theirs.fill is None else theirs.fill
        require(not theirs.pad_if_needed, "pad_if_needed must be False", theirs.pad_if_needed)
        self.ours = RandomCrop(theirs.size, padding, False, fill, theirs.padding_mode)
        self._size = self.ours.size
        self._sides = Pad(padding or 0).sides
        self._skips_each_side = is_v2(theirs)

    def count(self, size: tuple[int, int]) -> int:
        return sum(self._is_drawn(self._ranges(size)))

    def row(self, numbers: WordSource, size: tuple[int, int]) -> Sequence[DrawnNumbers]:
        left, top, _, _ = self._sides
        ranges = self._ranges(size)
        is_drawn = self._is_drawn(ranges)
        row, column = (numbers.below(ranges[side]) if is_drawn[side] else 0 for side in (0, 1))
        return row - top, column - left, *self._size

    def _is_drawn(self, ranges: tuple[int, int]) -> tuple[bool, bool]:
        rows, columns = ranges
        if self._skips_each_side:
            return rows > 1, columns > 1
        return (rows > 1 or columns > 1,) * 2

    def _ranges(self, size: tuple[int, int]) -> tuple[int, int]:
        left, top, right, bottom = self._sides
        padded = size[0] + top + bottom, size[1] + left + right
        rows, columns = (side - wanted + 1 for side, wanted in zip(padded, self._size, strict=True))
        if min(rows, columns) < 1:
            raise OptionError(
                f"RandomCrop of {self._size} must fit into the padded image, got one of {padded}: "
                "choose a smaller size or more padding"
            )
        return rows, columns


class _ResizedCrop(_Drawer):
    ours: RandomResizedCrop

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.ours = RandomResizedCrop(theirs.size, theirs.scale, theirs.ratio, theirs.interpolation)
        self._log_ratio = torch.log(torch.tensor(theirs.ratio)).tolist()

    def row(self, numbers: WordSource, size: tuple[int, int]) -> Sequence[DrawnNumbers]:
        assert isinstance(numbers, WordReader)
        height, width = size
        for _ in range(10):
            area = height * width * numbers.uniform(*self._theirs.scale)
            ratio = numbers.exp_uniform(*self._log_ratio)
            crop_width = round(math.sqrt(area * ratio))
            crop_height = round(math.sqrt(area / ratio))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                top = numbers.below(height - crop_height + 1)
                left = numbers.below(width - crop_width + 1)
                return top, left, crop_height, crop_width
        return self.ours.middle(height, width)


_DRAWERS: dict[str, Callable[[Any], _Drawer]] = {
    "RandomCrop": _Crop,
    "RandomHorizontalFlip": _Flip,
    "RandomResizedCrop": _ResizedCrop,
    "RandomVerticalFlip": _Flip,
}
_UNDRAWN: dict[str, Callable[[Any], Transform]] = {
    "CenterCrop": lambda theirs: CenterCrop(theirs.size),
    "Resize": lambda theirs: Resize(theirs.size, theirs.interpolation, theirs.max_size),
}


class VectorPipeline(Pipeline):
    """A pipeline of fastload's transforms whose parameters are those that torchvision would draw."""

    def __init__(
        self, regions: Sequence[tuple[Transform, _Drawer | None]], rest: Sequence[Transform]
    ) -> None:
        super().__init__(Compose([*(ours for ours, _ in regions), *rest]))
        self._regions = regions

    def makes_one_size(self, sizes: Sizes) -> bool:
        """Return True if images of these sizes all end up with one size."""
        return common_size(self._sizes_before(sizes)[-1]) is not None

    def _drawn_at_once(self, sizes: Sizes) -> Mapping[int, Parameters]:
        """Return parameters from torch's generator, as torchvision would draw them."""
        drawers = {place: drawer for place, (_, drawer) in enumerate(self._regions) if drawer is not None}
        before = self._sizes_before(sizes)
        common = {place: common_size(before[place]) for place in drawers}
        counts = {place: size and drawers[place].count(size) for place, size in common.items()}
        known = {place: count for place, count in counts.items() if count is not None}
        if len(known) < len(counts):
            return _draw_in_turn(drawers, before)
        return _draw_at_once(drawers, before, known)

    def _sizes_before(self, sizes: Sizes) -> list[Sizes]:
        """Return the sizes of all images before each step, and after the last."""
        found = [sizes]
        for ours, drawer in self._regions:
            before = found[-1]
            # Sizes do not depend on random parameters.
            parameters = _NONE if drawer else ours.draw(fresh_draws(len(before)), before)
            found.append(ours.sizes_after(before, parameters))
        return found


def _draw_in_turn(drawers: Mapping[int, _Drawer], before: Sequence[Sizes]) -> dict[int, Parameters]:
    """Draw image by image and step by step."""
    sizes = {place: before[place].tolist() for place in drawers}
    rows: dict[int, list[Sequence[DrawnNumbers]]] = {place: [] for place in drawers}
    reader = WordReader(_WORDS_AN_IMAGE * len(before[0]))
    for image in range(len(before[0])):
        for place, drawer in drawers.items():
            rows[place].append(drawer.row(reader, sizes[place][image]))
    reader.close()
    return {place: np.array(drawn, np.float64) for place, drawn in rows.items()}


def _draw_at_once(
    drawers: Mapping[int, _Drawer], before: Sequence[Sizes], counts: Mapping[int, int]
) -> dict[int, Parameters]:
    """Draw for all images at once; each step needs the same number of words for every image."""
    count = len(before[0])
    words = WordColumns(next_words(count * sum(counts.values())).reshape(count, -1))
    drawn = {}
    for place, drawer in drawers.items():
        drawn[place] = np.empty((count, drawer.ours.width))
        row = drawer.row(words, (int(before[place][0, 0]), int(before[place][0, 1])))
        for column, values in enumerate(row):
            drawn[place][:, column] = values
    return drawn


def vectorized(steps: Sequence[CompiledStep]) -> VectorPipeline | None:
    """Return known steps as a pipeline that draws for entire batches; None if a step does not allow it.

    Arithmetic on levels comes last: its order with crops, resizes and flips does not matter.
    """
    regions: list[tuple[Transform, _Drawer | None]] = []
    for step in steps:
        if step.kind == "region" and _has_kernel(step.theirs) and _draws_by_torchvision(step.theirs):
            try:
                drawer = _DRAWERS[step.name](step.theirs) if step.name in _DRAWERS else None
                if drawer is None and step.name not in _UNDRAWN:
                    return None
                regions.append((_UNDRAWN[step.name](step.theirs) if drawer is None else drawer.ours, drawer))
            except OptionError:
                return None
        elif step.kind not in ("rescale", "conversion"):
            return None
    rescalings = [step.rescaling for step in steps if step.rescaling is not None]
    return VectorPipeline(regions, rescalings) if are_words_as_expected() else None


def _draws_by_torchvision(theirs: object) -> bool:
    """Return True unless the function that draws a transform's parameters was replaced."""
    name = "make_params" if is_v2(theirs) else "get_params"
    draws = getattr(type(theirs), name, None)
    home = getattr(draws, "__qualname__", f"{type(theirs).__name__}.").partition(".")[0]
    bases = {kind.__name__ for kind in type(theirs).__mro__}
    return name not in vars(theirs) and (draws is None or home in bases)


def _has_kernel(theirs: object) -> bool:
    """Return True unless a transform resizes with a filter that only PIL has."""
    interpolation = getattr(theirs, "interpolation", None)
    return interpolation is None or getattr(interpolation, "value", "") in ("bilinear", "bicubic")
