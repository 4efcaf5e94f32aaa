"""Counted randomness: what is drawn for an image is a function of numbers that name it, of nothing else.

A transform's parameters follow from (seed, epoch, index, place in the pipeline), so it does not matter which
process draws them, in which order, or after which resume. The function is SplitMix64's finaliser (Steele, Lea
and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), which NumPy computes for a whole batch.

Outside of fastload's DataLoader nothing counts epochs; there the numbers come from torch's global generator,
as torchvision's do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_UNUSED_BITS = np.uint64(11)  # a float64 holds 53 of 64

_epoch_seed: ContextVar[int | None] = ContextVar("fastload_epoch_seed", default=None)


class Draws:
    """Random numbers for the images of a batch, each image's own.

    Args:
        keys: uint64, one for each image; or makes them. It is called when a number is asked for, because what
            draws nothing must leave torch's generator alone.
        count: How many images.
    """

    __slots__ = ("_count", "_keys")

    def __init__(self, keys: NDArray[np.uint64] | Callable[[], NDArray[np.uint64]], count: int) -> None:
        self._keys = keys
        self._count = count

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> NDArray[np.uint64]:
        """One for each image."""
        if callable(self._keys):
            self._keys = self._keys()
        return self._keys

    def at(self, place: int) -> Draws:
        """The numbers of one place in the pipeline, independent of every other place's."""
        return Draws(lambda: _mixed(self.keys + _GOLDEN * np.array([place + 1], np.uint64)), self._count)

    def image(self, position: int) -> Draws:
        """The numbers of one image of the batch."""
        return Draws(lambda: self.keys[position : position + 1], 1)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1): (images, count)."""
        counters = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        bits = _mixed(self.keys[:, None] ^ _mixed(counters))
        numbers: NDArray[np.float64] = np.multiply(bits >> _UNUSED_BITS, 1.0 / (1 << 53))
        return numbers

    def between(self, low: float, high: float) -> NDArray[np.float64]:
        """One number in [low, high) for each image."""
        return low + (high - low) * self.uniform(1)[:, 0]


def integers(uniform: NDArray[np.float64], bounds: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Whole numbers from 0 up to but without `bounds`, of numbers in [0, 1)."""
    whole: NDArray[np.int64] = np.minimum((uniform * bounds).astype(np.int64), np.subtract(bounds, 1))
    return whole


@contextlib.contextmanager
def epoch_seed(seed: int | None) -> Iterator[None]:
    """Has everything that is drawn meanwhile, in this thread, follow from an epoch's seed."""
    token = _epoch_seed.set(seed)
    try:
        yield
    finally:
        _epoch_seed.reset(token)


def current_seed() -> int | None:
    """The seed of the epoch that this thread makes samples for; None outside of fastload's DataLoader."""
    return _epoch_seed.get()


def draws_for(indices: Sequence[int] | NDArray[np.int64]) -> Draws:
    """The numbers of some samples: counted within an epoch of fastload's DataLoader, else torch's.

    Args:
        indices: The samples' numbers in their dataset.
    """
    seed = _epoch_seed.get()
    if seed is None:
        return fresh_draws(len(indices))
    first = _mixed(np.array([seed], np.uint64) + _GOLDEN)
    keys = _mixed(first + np.asarray(indices, np.int64).view(np.uint64) * _GOLDEN)
    return Draws(keys, len(keys))


def fresh_draws(count: int) -> Draws:
    """Numbers for images of which no index is known, from torch's global generator."""
    return Draws(lambda: _torchs(count), count)


def _torchs(count: int) -> NDArray[np.uint64]:
    import torch

    keys: NDArray[np.uint64] = torch.randint(1 << 62, (count,)).numpy().view(np.uint64)
    return keys


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> _SHIFTS[0])) * _FACTORS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _FACTORS[1]
    mixed: NDArray[np.uint64] = values ^ (values >> _SHIFTS[2])
    return mixed
