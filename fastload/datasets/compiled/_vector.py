"""Pipelines of torchvision's common steps that draw the random parameters of an entire batch at once.

The parameters are those that torchvision would draw, image by image and step by step. If every image needs
the same number of the generator's words, as for flips and crops of one size, there is no loop over images:
torchvision draws one number at a time, each call takes microseconds and consumes one 32-bit word of the
generator's sequence, and drawing a thousand words in one call takes as long.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.compiled._steps import CompiledStep, is_v2
from fastload.errors import OptionError
from fastload.images.arrays import Size
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

_NONE: Parameters = np.empty((0, 0))

# torch.rand makes a float32 of the lower 24 bits of a word.
_FRACTION = np.uint32((1 << 24) - 1)
_UNIT = np.float32(1 / (1 << 24))

_ATTEMPTS = 10  # of torchvision's RandomResizedCrop

# Words drawn ahead. Most images need two for the area and shape of a crop, two for its place, one to flip.
_WORDS_AN_IMAGE = 6

Number: TypeAlias = "float | np.generic | NDArray[np.generic]"
Ahead: TypeAlias = "Callable[[int], Sequence[float]]"
"""Makes the next numbers of one kind from as many words of torch's generator."""


class _AtOnce:
    """Random numbers of all images, as arrays, from their words, (images, words)."""

    def __init__(self, words: NDArray[np.uint32]) -> None:
        self._columns = iter(words.T)

    def below(self, end: int) -> NDArray[np.int64]:
        """Return the results of `torch.randint(0, end, (1,))`."""
        return np.asarray(next(self._columns) % np.uint32(end), np.int64)

    def unit(self) -> NDArray[np.float32]:
        """Return the results of `torch.rand(1)`."""
        return np.asarray((next(self._columns) & _FRACTION) * _UNIT)


class _InTurn:
    """Random numbers of one image after the other; `close` advances torch's generator by what was read.

    Every kind of number is made ahead from all words; of each word, the kind that is needed is read.
    """

    def __init__(self, count: int) -> None:
        self._state = torch.get_rng_state()
        self._count = count
        self._read = 0
        self._ahead: dict[Ahead, Sequence[float]] = {}

    def below(self, end: int) -> int:
        return int(self.next(_words)) % end

    def unit(self) -> float:
        return self.next(_units)

    def next(self, make: Ahead) -> float:
        """Return the next number of a kind."""
        ahead = self._ahead.get(make, ())
        if self._read >= len(ahead):
            self._count = max(self._count, 2 * self._read)
            torch.set_rng_state(self._state)
            ahead = self._ahead[make] = make(self._count)
        self._read += 1
        return ahead[self._read - 1]

    def close(self) -> None:
        torch.set_rng_state(self._state)
        _units(self._read)


_Numbers = _AtOnce | _InTurn


class _Drawer(ABC):
    """Drawer of the parameters of a torchvision transform; `ours` is fastload's equivalent transform."""

    ours: Transform

    def count(self, size: Size | None) -> int | None:
        """Return how many words each image needs, of this size if all have one; None if they differ."""
        return None

    @abstractmethod
    def row(self, numbers: _Numbers, size: Size) -> Sequence[Number]:
        """Return the parameters of the next image, or of all images as arrays if there is a count."""


class _Flip(_Drawer):
    def __init__(self, theirs: Any) -> None:
        kind = RandomHorizontalFlip if type(theirs).__name__ == "RandomHorizontalFlip" else RandomVerticalFlip
        self.ours, self._p = kind(theirs.p), np.float32(theirs.p)

    def count(self, size: Size | None) -> int:
        return 1

    def row(self, numbers: _Numbers, size: Size) -> Sequence[Number]:
        # torch compares in single precision.
        return (numbers.unit() < self._p,)


class _Crop(_Drawer):
    def __init__(self, theirs: Any) -> None:
        padding = theirs.padding
        if padding is not None and is_v2(theirs):
            left, right, top, bottom = padding
            padding = left, top, right, bottom
        fill = 0 if theirs.fill is None else theirs.fill
        require(not theirs.pad_if_needed, "pad_if_needed must be False", theirs.pad_if_needed)
        ours = RandomCrop(theirs.size, padding, False, fill, theirs.padding_mode)
        self.ours, self._size = ours, ours.size
        self._sides = Pad(padding or 0).sides
        self._skips_each_side = is_v2(theirs)

    def count(self, size: Size | None) -> int | None:
        return None if size is None else sum(end is not None for end in self._ends(size))

    def row(self, numbers: _Numbers, size: Size) -> Sequence[Number]:
        row, column = (0 if end is None else numbers.below(end) for end in self._ends(size))
        left, top, _, _ = self._sides
        return row - top, column - left, *self._size

    def _ends(self, size: Size) -> tuple[int | None, int | None]:
        """Return the numbers of rows and of columns at which a crop may begin; None for one not drawn."""
        left, top, right, bottom = self._sides
        padded = size[0] + top + bottom, size[1] + left + right
        rows, columns = (side - wanted + 1 for side, wanted in zip(padded, self._size, strict=True))
        if min(rows, columns) < 1:
            raise OptionError(
                f"RandomCrop of {self._size} must fit into the padded image, got one of {padded}: "
                "choose a smaller size or more padding"
            )
        if self._skips_each_side:
            return rows if rows > 1 else None, columns if columns > 1 else None
        return (rows, columns) if rows > 1 or columns > 1 else (None, None)


class _ResizedCrop(_Drawer):
    ours: RandomResizedCrop

    def __init__(self, theirs: Any) -> None:
        self.ours = RandomResizedCrop(theirs.size, theirs.scale, theirs.ratio, theirs.interpolation)
        self._scale = theirs.scale
        self._log_ratio: list[float] = torch.log(torch.tensor(theirs.ratio)).tolist()

    def row(self, numbers: _Numbers, size: Size) -> Sequence[int]:
        assert isinstance(numbers, _InTurn)
        height, width = size
        for _ in range(_ATTEMPTS):
            area = height * width * numbers.next(self._shares)
            ratio = numbers.next(self._ratios)
            crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                top = numbers.below(height - crop_height + 1)
                return top, numbers.below(width - crop_width + 1), crop_height, crop_width
        return self.ours.middle(height, width)

    def _shares(self, count: int) -> Sequence[float]:
        return torch.empty(count).uniform_(*self._scale).tolist()

    def _ratios(self, count: int) -> Sequence[float]:
        return torch.empty(count).uniform_(*self._log_ratio).exp_().tolist()


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

_Region: TypeAlias = tuple[Transform, _Drawer | None]


class VectorPipeline(Pipeline):
    """A pipeline of fastload's transforms whose parameters are those that torchvision would draw."""

    def __init__(self, regions: Sequence[_Region], rest: Sequence[Transform]) -> None:
        super().__init__(Compose([*(ours for ours, _ in regions), *rest]))
        self._regions = regions

    def makes_one_size(self, sizes: Sizes) -> bool:
        """Return True if images of these sizes all end up with one size."""
        return common_size(self._sizes_before(sizes)[-1]) is not None

    def _drawn_at_once(self, sizes: Sizes) -> Mapping[int, Parameters]:
        """Return parameters from torch's generator, as torchvision would draw them."""
        before = self._sizes_before(sizes)
        drawers = {place: drawer for place, (_, drawer) in enumerate(self._regions) if drawer is not None}
        counts = [drawer.count(common_size(before[place])) for place, drawer in drawers.items()]
        each = {place: before[place].tolist() for place in drawers}
        if None not in counts:
            words = _AtOnce(next_words((len(sizes), sum(filter(None, counts)))))
            drawn = {place: np.empty((len(sizes), drawer.ours.width)) for place, drawer in drawers.items()}
            for place, drawer in drawers.items():
                for column, values in enumerate(drawer.row(words, each[place][0])):
                    drawn[place][:, column] = values
            return drawn
        numbers = _InTurn(_WORDS_AN_IMAGE * len(sizes))
        rows: dict[int, list[Sequence[Number]]] = {place: [] for place in drawers}
        for image in range(len(sizes)):
            for place, drawer in drawers.items():
                rows[place].append(drawer.row(numbers, each[place][image]))
        numbers.close()
        return {place: np.array(drawn, np.float64) for place, drawn in rows.items()}

    def _sizes_before(self, sizes: Sizes) -> list[Sizes]:
        """Return the sizes of all images before each step, and after the last."""
        found = [sizes]
        for ours, drawer in self._regions:
            before = found[-1]
            # Sizes do not depend on random parameters.
            parameters = _NONE if drawer else ours.draw(fresh_draws(len(before)), before)
            found.append(ours.sizes_after(before, parameters))
        return found


def vectorized(steps: Sequence[CompiledStep]) -> VectorPipeline | None:
    """Return known steps as a pipeline that draws for entire batches; None if a step does not allow it.

    Arithmetic on levels comes last: its order with crops, resizes and flips does not matter.
    """
    try:
        regions = [_region_of(step) for step in steps if step.kind not in ("rescale", "conversion")]
    except (KeyError, OptionError):
        return None
    rescalings = [step.rescaling for step in steps if step.rescaling is not None]
    return VectorPipeline(regions, rescalings) if _are_words_as_expected() else None


def _region_of(step: CompiledStep) -> _Region:
    """Return fastload's equivalent of a step, and its drawer; raise KeyError if there is none."""
    draws = getattr(step.theirs, "make_params" if is_v2(step.theirs) else "get_params", None)
    require(draws is None or draws.__module__.startswith("torchvision."), "they were replaced", draws)
    interpolation = getattr(step.theirs, "interpolation", None)
    kernel = getattr(interpolation, "value", interpolation)
    require(kernel in (None, "bilinear", "bicubic"), "only PIL has the other filters", kernel)
    if step.name in _DRAWERS:
        drawer = _DRAWERS[step.name](step.theirs)
        return drawer.ours, drawer
    return _UNDRAWN[step.name](step.theirs), None


def next_words(shape: tuple[int, int]) -> NDArray[np.uint32]:
    """Return the next words of torch's CPU generator, and advance it by as many."""
    count = shape[0] * shape[1]
    state = torch.get_rng_state()
    # Each number of 64 bits takes two words, the upper half first.
    drawn = torch.empty(-(-count // 2), dtype=torch.int64).random_(-(1 << 63), None)
    if count % 2:
        torch.set_rng_state(state)
        torch.rand(count, dtype=torch.float32)
    halves = drawn.numpy().view(np.uint64)
    words = np.stack([halves >> np.uint64(32), halves], axis=1).astype(np.uint32)
    return words.reshape(-1)[:count].reshape(shape)


def _words(count: int) -> Sequence[float]:
    words: list[int] = next_words((count, 1))[:, 0].tolist()
    return words


def _units(count: int) -> Sequence[float]:
    return torch.rand(count, dtype=torch.float32).tolist()


@functools.cache
def _are_words_as_expected() -> bool:
    """Return True if this torch turns its generator's words into numbers as described above."""
    with torch.random.fork_rng(devices=()):
        numbers = _AtOnce(next_words((1, 9)))
        ours = [*(numbers.unit().item() for _ in range(8)), numbers.below(1000).item()]
    with torch.random.fork_rng(devices=()):
        return ours == [*(_units(1)[0] for _ in range(8)), torch.randint(0, 1000, (1,)).item()]
