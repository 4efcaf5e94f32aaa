"""Pipelines of torchvision's common steps that draw the random parameters of an entire batch at once.

The parameters are those that torchvision would draw, image by image and step by step. If every image needs
the same number of the generator's words, as for flips and crops of one size, there is no loop over images:
torchvision draws one number at a time, each call takes microseconds and consumes one 32-bit word of the
generator's sequence, and drawing a thousand words in one call takes as long.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.compiled.recognition import Foreign, is_v2
from fastload.datasets.compiled.steps import CompiledStep
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
from fastload.transforms.options import require
from fastload.transforms.pipeline import Pipeline
from fastload.transforms.transform import Parameters, Sizes, Transform, common_size

_NONE: Parameters = np.empty((0, 0))

# torch.rand makes a float32 of the lower 24 bits of a word.
_FRACTION = np.uint32((1 << 24) - 1)
_UNIT = np.float32(1 / (1 << 24))

_ATTEMPTS = 10  # of torchvision's RandomResizedCrop

# Words drawn ahead. Most images need two for the area and shape of a crop, two for its place, one to flip.
_WORDS_AN_IMAGE = 6

Number: TypeAlias = "float | np.generic | NDArray[np.generic]"
Ahead: TypeAlias = "Callable[[int], Sequence[float]]"
"""Returns the next random numbers of one kind, given their count; each uses one word of torch's generator."""


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

    Each word of the generator is converted ahead to a float and to an integer; a draw reads the one it needs.
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


class _Region(NamedTuple):
    """A crop, resize or flip.

    Attributes:
        ours: fastload's equivalent transform.
        row: Draws the parameters of one image, given its size, or of all images at once if each needs the
            same number of words; None if the transform is not random.
        words: Returns the number of words that each image needs, or None if it is not the same for all. Its
            argument is the size that all images have, or None if their sizes differ.
    """

    ours: Transform
    row: Callable[[_Numbers, Size], Sequence[Number]] | None = None
    words: Callable[[Size | None], int | None] = lambda size: None


def _flip(kind: type[RandomHorizontalFlip | RandomVerticalFlip], theirs: Foreign) -> _Region:
    # torch compares in single precision.
    p = np.float32(theirs.p)
    return _Region(kind(theirs.p), lambda numbers, size: (numbers.unit() < p,), lambda size: 1)


def _crop(theirs: Foreign) -> _Region:
    padding = theirs.padding
    if padding is not None and is_v2(theirs):
        left, right, top, bottom = padding
        padding = left, top, right, bottom
    require(not theirs.pad_if_needed, "pad_if_needed must be False", theirs.pad_if_needed)
    fill = 0 if theirs.fill is None else theirs.fill
    ours = RandomCrop(theirs.size, padding, False, fill, theirs.padding_mode)
    left, top, right, bottom = Pad(padding or 0).sides

    def ends(size: Size) -> tuple[int | None, int | None]:
        """Return the numbers of rows and of columns at which a crop may begin; None for one not drawn."""
        padded = size[0] + top + bottom, size[1] + left + right
        rows, columns = (side - wanted + 1 for side, wanted in zip(padded, ours.size, strict=True))
        if min(rows, columns) < 1:
            raise OptionError(
                f"RandomCrop of {ours.size} must fit into the padded image, got one of {padded}: "
                "choose a smaller size or more padding"
            )
        if is_v2(theirs):
            return rows if rows > 1 else None, columns if columns > 1 else None
        return (rows, columns) if rows > 1 or columns > 1 else (None, None)

    def row(numbers: _Numbers, size: Size) -> Sequence[Number]:
        first, second = (0 if end is None else numbers.below(end) for end in ends(size))
        return first - top, second - left, *ours.size

    def count(size: Size | None) -> int | None:
        return None if size is None else sum(end is not None for end in ends(size))

    return _Region(ours, row, count)


def _resized_crop(theirs: Foreign) -> _Region:
    ours = RandomResizedCrop(theirs.size, theirs.scale, theirs.ratio, theirs.interpolation)
    low, high = torch.log(torch.tensor(theirs.ratio)).tolist()

    def shares(count: int) -> Sequence[float]:
        return torch.empty(count).uniform_(*theirs.scale).tolist()

    def ratios(count: int) -> Sequence[float]:
        return torch.empty(count).uniform_(low, high).exp_().tolist()

    def row(numbers: _Numbers, size: Size) -> Sequence[int]:
        assert isinstance(numbers, _InTurn)
        height, width = size
        for _ in range(_ATTEMPTS):
            area, ratio = height * width * numbers.next(shares), numbers.next(ratios)
            crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                top = numbers.below(height - crop_height + 1)
                return top, numbers.below(width - crop_width + 1), crop_height, crop_width
        return ours.middle(height, width)

    return _Region(ours, row)


_REGIONS: dict[str, Callable[[Foreign], _Region]] = {
    "CenterCrop": lambda theirs: _Region(CenterCrop(theirs.size)),
    "RandomCrop": _crop,
    "RandomHorizontalFlip": functools.partial(_flip, RandomHorizontalFlip),
    "RandomResizedCrop": _resized_crop,
    "RandomVerticalFlip": functools.partial(_flip, RandomVerticalFlip),
    "Resize": lambda theirs: _Region(Resize(theirs.size, theirs.interpolation, theirs.max_size)),
}


class VectorPipeline(Pipeline):
    """A pipeline of fastload's transforms whose parameters are those that torchvision would draw."""

    def __init__(self, regions: Sequence[_Region], rest: Sequence[Transform]) -> None:
        super().__init__(Compose([*(region.ours for region in regions), *rest]))
        self._regions = regions

    def makes_one_size(self, sizes: Sizes) -> bool:
        """Return True if images of these sizes all end up with one size."""
        return common_size(self._sizes_before(sizes)[-1]) is not None

    def _drawn_at_once(self, sizes: Sizes) -> Mapping[int, Parameters]:
        """Return parameters from torch's generator, as torchvision would draw them."""
        steps = [
            (place, region.row, region.words(common_size(before)), before)
            for place, (region, before) in enumerate(
                zip(self._regions, self._sizes_before(sizes)[:-1], strict=True)
            )
            if region.row is not None
        ]
        counts = [count for _, _, count, _ in steps if count is not None]
        if len(counts) == len(steps):
            words = _AtOnce(next_words((len(sizes), sum(counts))))
            return {
                place: _columns(row(words, before[0].tolist()), len(sizes)) for place, row, _, before in steps
            }
        numbers = _InTurn(_WORDS_AN_IMAGE * len(sizes))
        drawers = [(row, before.tolist()) for _, row, _, before in steps]
        rows = [[row(numbers, before[image]) for row, before in drawers] for image in range(len(sizes))]
        numbers.close()
        return {
            place: np.array(drawn, np.float64)
            for (place, *_), drawn in zip(steps, zip(*rows, strict=True), strict=True)
        }

    def _sizes_before(self, sizes: Sizes) -> list[Sizes]:
        """Return the sizes of all images before each step, and after the last."""
        found = [sizes]
        for region in self._regions:
            # Sizes do not depend on random parameters.
            parameters = _NONE if region.row else region.ours.draw(fresh_draws(len(sizes)), found[-1])
            found.append(region.ours.sizes_after(found[-1], parameters))
        return found


def _columns(values: Sequence[Number], count: int) -> Parameters:
    """Return values, some of which are the same for all images, as the parameters of each."""
    columns = np.empty((count, len(values)))
    for column, each in enumerate(values):
        columns[:, column] = each
    return columns


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
    """Return fastload's equivalent of a step; raise KeyError or OptionError if there is none."""
    draws = getattr(step.theirs, "make_params" if is_v2(step.theirs) else "get_params", None)
    require(draws is None or draws.__module__.startswith("torchvision."), "they were replaced", draws)
    interpolation = getattr(step.theirs, "interpolation", None)
    kernel = getattr(interpolation, "value", interpolation)
    require(kernel in (None, "bilinear", "bicubic"), "only PIL has the other filters", kernel)
    return _REGIONS[step.name](step.theirs)


def next_words(shape: tuple[int, int]) -> NDArray[np.uint32]:
    """Return the next words of torch's CPU generator, which goes on after them."""
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
