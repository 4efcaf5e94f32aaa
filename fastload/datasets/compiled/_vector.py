"""Random parameters of a whole batch at once, equal to those that torchvision draws image by image.

torchvision asks torch's CPU generator for one number after the other: `torch.rand(1)` for a flip, a
`torch.randint` for each side of a crop. Each takes one word of 32 bits of the generator's sequence, so the
words of a batch can be drawn in one call, if every image needs equally many. That takes 0.1 µs an image
instead of 10.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.compiled._steps import Step, is_v2
from fastload.errors import OptionError
from fastload.transforms import Compose, Pad, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.options import require
from fastload.transforms.pipeline import Drawn, Pipeline
from fastload.transforms.transform import Parameters, Transform

Words = NDArray[np.uint32]  # (images, words of each)

# torch.rand makes a float32 of the lower 24 bits of a word.
_FRACTION = np.uint32((1 << 24) - 1)
_UNIT = np.float32(1 / (1 << 24))


class _Flip:
    """Draws of RandomHorizontalFlip and RandomVerticalFlip."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        kind = RandomHorizontalFlip if type(theirs).__name__ == "RandomHorizontalFlip" else RandomVerticalFlip
        self.ours: Transform = kind(theirs.p)

    def count(self, size: tuple[int, int]) -> int:
        return 1

    def parameters(self, words: Words, size: tuple[int, int]) -> Parameters:
        # torch compares in single precision.
        is_flipped = (words & _FRACTION) * _UNIT < np.float32(self._theirs.p)
        return is_flipped.astype(np.float64)


class _Crop:
    """Draws of RandomCrop."""

    def __init__(self, theirs: Any) -> None:
        padding = theirs.padding
        if padding is not None and is_v2(theirs):
            left, right, top, bottom = padding
            padding = left, top, right, bottom
        fill = 0 if theirs.fill is None else theirs.fill
        require(not theirs.pad_if_needed, "pad_if_needed must be False", theirs.pad_if_needed)
        self.ours: Transform = RandomCrop(theirs.size, padding, False, fill, theirs.padding_mode)
        self._pad = Pad(padding or 0)
        self.size = self.ours.size
        self._skips_each_side = is_v2(theirs)

    def count(self, size: tuple[int, int]) -> int:
        return sum(self._is_drawn(size))

    def parameters(self, words: Words, size: tuple[int, int]) -> Parameters:
        left, top, _, _ = self._pad.sides
        rows = np.zeros((len(words), 4))
        ranges = self._ranges(size)
        column = 0
        for side, is_drawn in enumerate(self._is_drawn(size)):
            if is_drawn:
                rows[:, side] = words[:, column] % np.uint32(ranges[side])
                column += 1
        rows[:, :2] -= (top, left)
        rows[:, 2:] = self.size
        return rows

    def _is_drawn(self, size: tuple[int, int]) -> tuple[bool, bool]:
        rows, columns = self._ranges(size)
        if self._skips_each_side:
            return rows > 1, columns > 1
        return (rows > 1 or columns > 1,) * 2

    def _ranges(self, size: tuple[int, int]) -> tuple[int, int]:
        left, top, right, bottom = self._pad.sides
        padded = size[0] + top + bottom, size[1] + left + right
        rows, columns = (side - wanted + 1 for side, wanted in zip(padded, self.size, strict=True))
        if min(rows, columns) < 1:
            raise OptionError(
                f"RandomCrop of {self.size} must fit into the padded image, got one of {padded}: "
                "choose a smaller size or more padding"
            )
        return rows, columns


_DRAWERS: dict[str, Callable[[Any], _Flip | _Crop]] = {
    "RandomCrop": _Crop,
    "RandomHorizontalFlip": _Flip,
    "RandomVerticalFlip": _Flip,
}


class VectorPipeline(Pipeline):
    """A pipeline of fastload's transforms whose parameters are those that torchvision would draw.

    It is for images that have one size before each step.
    """

    def __init__(self, steps: Sequence[tuple[Transform, _Flip | _Crop | None]]) -> None:
        super().__init__(Compose([ours for ours, _ in steps]))
        self._drawers = {place: drawer for place, (_, drawer) in enumerate(steps) if drawer is not None}

    def draw(self, draws: Draws, sizes: Sizes, channels: int = 3) -> Drawn:
        """Draw all parameters from torch's generator; `draws` only tell how many images there are."""
        size = (int(sizes[0, 0]), int(sizes[0, 1]))
        counts = {}
        for place, drawer in self._drawers.items():
            counts[place] = size, drawer.count(size)
            if isinstance(drawer, _Crop):
                size = drawer.size
        words = torch_words(len(sizes) * sum(count for _, count in counts.values())).reshape(len(sizes), -1)
        self._drawn, first = {}, 0
        for place, (before, count) in counts.items():
            drawn = words[:, first : first + count]
            self._drawn[place] = self._drawers[place].parameters(drawn, before)
            first += count
        return super().draw(draws, sizes, channels)

    def _parameters(self, place: int, step: Transform, draws: Draws, sizes: Sizes) -> Parameters:
        drawn = self._drawn.get(place)
        return super()._parameters(place, step, draws, sizes) if drawn is None else drawn


def vectorized(steps: Sequence[Step]) -> VectorPipeline | None:
    """Return known steps as a pipeline that draws for whole batches; None unless each of them can do so."""
    if not _are_words_as_expected():
        return None
    pairs: list[tuple[Transform, _Flip | _Crop | None]] = []
    for step in steps:
        if step.kind == "region" and step.name in _DRAWERS:
            try:
                drawer = _DRAWERS[step.name](step.theirs)
            except OptionError:
                return None
            pairs.append((drawer.ours, drawer))
        elif step.kind == "rescale" and step.rescaling is not None:
            pairs.append((step.rescaling, None))
        elif step.kind != "conversion":
            return None
    return VectorPipeline(pairs)


def torch_words(count: int, generator: torch.Generator | None = None) -> Words:
    """Return the next words of torch's CPU generator, (count,), and advance it by as many."""
    generator = torch.default_generator if generator is None else generator
    if count % 2 == 0:
        return _pairs(count // 2, generator)
    # Only pairs can be asked for: the last one is looked at in a copy, and its first half taken.
    copied = torch.Generator()
    copied.set_state(generator.get_state())
    torch.empty(count - 1).uniform_(generator=generator)
    torch.rand(1, generator=generator)
    return _pairs(count // 2 + 1, copied)[:count]


def _pairs(count: int, generator: torch.Generator) -> Words:
    # Full 64 bits: two words each, the upper half first.
    drawn = torch.empty(count, dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    halves = drawn.numpy().view(np.uint64)
    words = np.empty((count, 2), np.uint32)
    words[:, 0] = halves >> np.uint64(32)
    words[:, 1] = halves & np.uint64((1 << 32) - 1)
    return words.reshape(-1)


@functools.cache
def _are_words_as_expected() -> bool:
    """Return True if this torch turns its generator's words into numbers as described above."""
    ours, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    words = torch_words(9, ours)
    for word in words[:-1].tolist():
        if torch.rand(1, generator=theirs).item() != float((np.uint32(word) & _FRACTION) * _UNIT):
            return False
    return torch.randint(0, 1000, (1,), generator=theirs).item() == int(words[-1]) % 1000
