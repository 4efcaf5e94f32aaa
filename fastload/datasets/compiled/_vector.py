"""Pipelines of torchvision's common steps that draw the random parameters of an entire batch at once.

The parameters are those that torchvision would draw, image by image and step by step. If every image needs
the same number of the generator's words, as for flips and crops of one size, there is no loop over images:
torchvision draws one number at a time, each call takes microseconds and consumes one 32-bit word of the
generator's sequence, and drawing a thousand words in one call takes as long.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.compiled._steps import CompiledStep, is_v2
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
from fastload.transforms.options import require
from fastload.transforms.pipeline import Pipeline
from fastload.transforms.transform import Parameters, Sizes, Transform, common_size

_NONE: Parameters = np.empty((0, 0))

# torch.rand makes a float32 of the lower 24 bits of a word.
_FRACTION = np.uint32((1 << 24) - 1)
_UNIT = np.float32(1 / (1 << 24))


class _Numbers(Protocol):
    """Random numbers of the next image; or of all images, as arrays."""

    def below(self, end: int) -> Any:
        """Return the result of `torch.randint(0, end, (1,))`."""

    def unit(self) -> Any:
        """Return the result of `torch.rand(1)`."""


class _OneByOne:
    """Random numbers from torch's generator."""

    def below(self, end: int) -> int:
        return int(torch.randint(0, end, (1,)))

    def unit(self) -> float:
        return torch.rand(1, dtype=torch.float32).item()


class _AtOnce:
    """The same random numbers for each image, from the words of all images, (images, words)."""

    def __init__(self, words: NDArray[np.uint32]) -> None:
        self._columns = iter(words.T)

    def below(self, end: int) -> NDArray[np.int64]:
        return np.asarray(next(self._columns) % np.uint32(end), np.int64)

    def unit(self) -> NDArray[np.float32]:
        return np.asarray((next(self._columns) & _FRACTION) * _UNIT)


DrawnRow = Sequence[float | NDArray[np.generic]]


class _Drawer(ABC):
    """Drawer of the parameters of a torchvision transform; `ours` is fastload's equivalent transform."""

    ours: Transform

    def count(self, size: tuple[int, int]) -> int | None:
        """Return how many words an image of this size needs; None if that depends on the words."""
        return None

    @abstractmethod
    def row(self, numbers: _Numbers, size: tuple[int, int]) -> DrawnRow:
        """Return the parameters of the next image, or of all images as arrays if there is a count."""


class _Flip(_Drawer):
    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        kind = RandomHorizontalFlip if type(theirs).__name__ == "RandomHorizontalFlip" else RandomVerticalFlip
        self.ours = kind(theirs.p)

    def count(self, size: tuple[int, int]) -> int:
        return 1

    def row(self, numbers: _Numbers, size: tuple[int, int]) -> DrawnRow:
        # torch compares in single precision.
        return (numbers.unit() < np.float32(self._theirs.p),)


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

    def count(self, size: tuple[int, int]) -> int:
        return sum(self._is_drawn(self._ranges(size)))

    def row(self, numbers: _Numbers, size: tuple[int, int]) -> DrawnRow:
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
    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.ours = RandomResizedCrop(theirs.size, theirs.scale, theirs.ratio, theirs.interpolation)

    def row(self, numbers: _Numbers, size: tuple[int, int]) -> Sequence[int]:
        theirs = self._theirs
        image = torch.empty((1, *size), device="meta")  # it only tells its size
        if is_v2(theirs):
            return tuple(theirs.make_params([image]).values())
        return theirs.get_params(image, theirs.scale, theirs.ratio)  # type: ignore[no-any-return]


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
        drawers = {place: drawer for place, (_, drawer) in enumerate(self._regions) if drawer is not None}
        before = self._sizes_before(sizes)
        drawn = {place: np.empty((len(sizes), drawer.ours.width)) for place, drawer in drawers.items()}
        common = {place: common_size(before[place]) for place in drawers}
        known = {place: size for place, size in common.items() if size is not None}
        counts = [drawers[place].count(size) for place, size in known.items()]
        if len(known) == len(drawers) and None not in counts:
            numbers = _AtOnce(next_words((len(sizes), sum(filter(None, counts)))))
            for place, size in known.items():
                for column, values in enumerate(drawers[place].row(numbers, size)):
                    drawn[place][:, column] = values
            return drawn
        for image in range(len(sizes)):
            for place, drawer in drawers.items():
                height, width = before[place][image].tolist()
                drawn[place][image] = drawer.row(_OneByOne(), (height, width))
        return drawn

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


@functools.cache
def _are_words_as_expected() -> bool:
    """Return True if this torch turns its generator's words into numbers as described above."""
    with torch.random.fork_rng(devices=()):
        at_once = _tried(_AtOnce(next_words((1, 9))))
    with torch.random.fork_rng(devices=()):
        return at_once == _tried(_OneByOne())


def _tried(numbers: _Numbers) -> list[float]:
    drawn = [numbers.unit() for _ in range(8)] + [numbers.below(1000)]
    return [np.asarray(number).item() for number in drawn]
