"""Counter-based random numbers, which depend only on the image that they are drawn for.

A transform's parameters follow from (seed, epoch, index, position in the pipeline), so it makes no difference
which process draws them, in which order, or after which resume. The function is the finalizer of SplitMix64
(Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), computed by NumPy for a whole
batch.

Outside fastload's DataLoader there is no epoch seed; the numbers then come from torch's global generator, as
torchvision's do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_UNUSED_BITS = np.uint64(11)  # a float64 holds 53 of 64 bits

_epoch_seed: ContextVar[int | None] = ContextVar("fastload_epoch_seed", default=None)


class Draws:
    """Independent random numbers for each image of a batch, from one uint64 key for each image.

    The keys may be a function, called when the first number is needed, because a transform that draws nothing
    must leave torch's generator alone.
    """

    __slots__ = ("_count", "_keys")

    def __init__(self, keys: NDArray[np.uint64] | Callable[[], NDArray[np.uint64]], count: int) -> None:
        self._keys = keys
        self._count = count

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The key of each image."""
        if callable(self._keys):
            self._keys = self._keys()
        return self._keys

    def at(self, place: int) -> Draws:
        """Return the numbers of one position in the pipeline, independent of those of all others."""
        return Draws(lambda: mixed(self.keys + _GOLDEN * np.array([place + 1], np.uint64)), self._count)

    def image(self, position: int) -> Draws:
        """Return the numbers of one image of the batch."""
        return Draws(lambda: self.keys[position : position + 1], 1)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return numbers in [0, 1), (images, count)."""
        counters = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        bits = mixed(self.keys[:, None] ^ mixed(counters))
        numbers: NDArray[np.float64] = np.multiply(bits >> _UNUSED_BITS, 1.0 / (1 << 53))
        return numbers

    def between(self, low: float, high: float) -> NDArray[np.float64]:
        """Return one number in [low, high) for each image."""
        return between(self.uniform(1)[:, 0], low, high)


def between(uniform: NDArray[np.float64], low: Any, high: Any) -> NDArray[np.float64]:
    """Turn numbers in [0, 1) into numbers in [low, high)."""
    return np.asarray(low + (high - low) * uniform)


def integers(uniform: NDArray[np.float64], bounds: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Turn numbers in [0, 1) into integers from 0 to `bounds` - 1."""
    return np.minimum((uniform * bounds).astype(np.int64), np.subtract(bounds, 1))


def seeds(uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn numbers in [0, 1) into seeds: whole numbers that a float64 holds exactly."""
    return np.floor(uniform * (1 << 53))


def random_sides(
    uniform: NDArray[np.float64],
    sizes: NDArray[np.int64],
    scale: Sequence[float],
    ratio: Sequence[float],
    smallest: int,
    largest: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the sides of a random rectangle per image, in whole pixels, (images, 2), and which are valid.

    Several are drawn for each image, from numbers in [0, 1), (images, 2 × attempts), and the first with both
    sides from `smallest` to `largest` is taken. `scale` is the range of the area relative to the image's;
    `ratio` that of the first side divided by the second, uniform on a logarithmic scale.
    """
    attempts = uniform.shape[1] // 2
    shares = between(uniform[:, :attempts], *scale)
    ratios = np.exp(between(uniform[:, attempts:], *map(math.log, ratio)))
    areas = shares * sizes.prod(axis=1, keepdims=True)
    firsts, seconds = np.rint(np.sqrt(areas * ratios)), np.rint(np.sqrt(areas / ratios))
    fits = (firsts >= smallest) & (firsts <= largest[:, :1])
    fits &= (seconds >= smallest) & (seconds <= largest[:, 1:])
    each, chosen = np.arange(len(sizes)), fits.argmax(axis=1)
    return np.stack((firsts[each, chosen], seconds[each, chosen]), axis=1), fits[each, chosen]


@contextlib.contextmanager
def epoch_seed(seed: int | None) -> Iterator[None]:
    """Derive all random numbers that this thread draws in the context from an epoch seed."""
    token = _epoch_seed.set(seed)
    try:
        yield
    finally:
        _epoch_seed.reset(token)


def current_seed() -> int | None:
    """Return the epoch seed with which this thread makes samples; None outside fastload's DataLoader."""
    return _epoch_seed.get()


def draws_for(indices: Sequence[int] | NDArray[np.int64]) -> Draws:
    """Return the numbers of samples, given their indices in the dataset: torch's if no epoch seed is set."""
    seed = _epoch_seed.get()
    if seed is None:
        return fresh_draws(len(indices))
    first = mixed(np.array([seed], np.uint64) + _GOLDEN)
    keys = mixed(first + np.asarray(indices, np.int64).view(np.uint64) * _GOLDEN)
    return Draws(keys, len(keys))


def fresh_draws(count: int) -> Draws:
    """Return numbers from torch's global generator, for images whose index is unknown."""
    return Draws(lambda: torch.randint(1 << 62, (count,)).numpy().view(np.uint64), count)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finalizer."""
    values = (values ^ (values >> _SHIFTS[0])) * _FACTORS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _FACTORS[1]
    return values ^ (values >> _SHIFTS[2])
