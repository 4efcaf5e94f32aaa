"""Words of torch's CPU generator, drawn many at once, and the numbers that torch makes from each.

torchvision draws one number at a time: `torch.rand(1)` for a flip, `torch.randint` for each side of a crop.
Each call takes microseconds, and consumes one 32-bit word of the generator's sequence. Drawing a thousand
words in one call takes as long.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray

Words = NDArray[np.uint32]

# torch.rand makes a float32 of the lower 24 bits of a word.
_FRACTION = np.uint32((1 << 24) - 1)
_UNIT = np.float32(1 / (1 << 24))


def next_words(count: int) -> Words:
    """Return the next words of torch's CPU generator, (count,), and advance it by as many."""
    if count % 2 == 0:
        return _words(torch.default_generator, count)
    words = _words(_copy_of(torch.default_generator), count)
    _advance(torch.default_generator, count)
    return words


def units(words: Words) -> NDArray[np.float32]:
    """Return the numbers in [0, 1) that `torch.rand` makes from words."""
    return (words & _FRACTION) * _UNIT


class WordColumns:
    """Reader of one word of each image at a time, from the words of all images, (images, words)."""

    def __init__(self, words: Words) -> None:
        self._columns = iter(words.T)

    def below(self, end: int) -> NDArray[np.int64]:
        """Return the results of `torch.randint(0, end, (1,))` for each image."""
        return np.asarray(next(self._columns) % np.uint32(end), np.int64)

    def uniform(self, low: float, high: float) -> NDArray[np.float32]:
        """Return the results of `torch.empty(1).uniform_(low, high)` for each image."""
        return _uniform(next(self._columns), low, high)


class WordReader:
    """Reader of the next words of torch's CPU generator, one by one; `close` advances the generator.

    The next `count` words are drawn in advance, and further ones when they are needed.
    """

    def __init__(self, count: int) -> None:
        self._generator = _copy_of(torch.default_generator)
        self._count = count
        self._position = 0
        self._read: dict[tuple[str, float, float], list[float]] = {}

    def below(self, end: int) -> int:
        """Return the result of `torch.randint(0, end, (1,))`."""
        return int(self._next("word", 0.0, 1.0)) % end

    def uniform(self, low: float, high: float) -> float:
        """Return the result of `torch.empty(1).uniform_(low, high)`."""
        return self._next("uniform", low, high)

    def exp_uniform(self, low: float, high: float) -> float:
        """Return the result of `torch.empty(1).uniform_(low, high).exp()`."""
        return self._next("exp", low, high)

    def close(self) -> None:
        """Advance torch's generator by the words that were read."""
        _advance(torch.default_generator, self._position)

    def _next(self, kind: str, low: float, high: float) -> float:
        read = self._read.get((kind, low, high))
        if read is None or self._position >= len(read):
            if self._position >= self._count:
                self._count = 2 * self._position
            # All words are converted to each kind of number requested; the one at the position is used.
            words = _words(_copy_of(self._generator), self._count)
            numbers = words if kind == "word" else _uniform(words, low, high)
            numbers = torch.from_numpy(numbers).exp().numpy() if kind == "exp" else numbers
            read = self._read[kind, low, high] = numbers.tolist()
        self._position += 1
        return read[self._position - 1]


def _uniform(words: Words, low: float, high: float) -> NDArray[np.float32]:
    """Return the results of `torch.empty(len(words)).uniform_(low, high)`."""
    return np.float32(low) + np.float32(high - low) * units(words)


def _words(generator: torch.Generator, count: int) -> Words:
    # Each number of 64 bits takes two words, the upper half first.
    drawn = torch.empty(-(-count // 2), dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    halves = drawn.numpy().view(np.uint64)
    words = np.empty((len(halves), 2), np.uint32)
    words[:, 0] = halves >> np.uint64(32)
    words[:, 1] = halves & np.uint64((1 << 32) - 1)
    return words.reshape(-1)[:count]


def _advance(generator: torch.Generator, count: int) -> None:
    torch.empty(count, dtype=torch.float32).uniform_(generator=generator)


def _copy_of(generator: torch.Generator) -> torch.Generator:
    copied = torch.Generator()
    copied.set_state(generator.get_state())
    return copied


@functools.cache
def are_words_as_expected() -> bool:
    """Return True if this torch turns its generator's words into numbers as described above."""
    ours, theirs = (torch.Generator().manual_seed(1) for _ in range(2))
    words = _words(ours, 9)
    for word in words[:-1]:
        if torch.rand(1, generator=theirs, dtype=torch.float32).item() != float(units(word)):
            return False
    return torch.randint(0, 1000, (1,), generator=theirs).item() == int(words[-1]) % 1000
