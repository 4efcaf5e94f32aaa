"""Counter-based random numbers, which depend only on the image that they are drawn for.

A transform's parameters follow from (seed, epoch, index, position in the pipeline), so it makes no difference
which process draws them, in which order, or after which resume. The function is the finalizer of SplitMix64
(Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), computed by NumPy for a whole
batch.

A transform that is called on an image, in the user's own dataset or `collate_fn`, does not know the image's
index. Its numbers follow from the index of the sample that is being made, and the order of such calls for it.

Outside fastload's DataLoader there is no epoch seed; the numbers then come from torch's global generator, as
torchvision's do.
"""

from __future__ import annotations

import functools
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar, Token
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

_Index = TypeVar("_Index")
_Bounds = float | NDArray[np.float64] | NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_UNUSED_BITS = np.uint64(11)  # a float64 holds 53 of 64 bits

# Calls for a sample are numbered from 1, those in a `collate_fn` and repeated requests of an image from here.
_COLLATION, _REPEATS = 1 << 20, 1 << 40


class Draws:
    """Independent random numbers for each image of a batch, from one uint64 key for each image.

    The keys may be a function, called when the first number is needed, because a transform that draws nothing
    must leave torch's generator alone.
    """

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
        bits = mixed(self.keys[:, None] ^ _counters(count))
        return np.asarray((bits >> _UNUSED_BITS) * (1.0 / (1 << 53)))

    def between(self, low: float, high: float) -> NDArray[np.float64]:
        """Return one number in [low, high) for each image."""
        return between(self.uniform(1)[:, 0], low, high)


def between(uniform: NDArray[np.float64], low: _Bounds, high: _Bounds) -> NDArray[np.float64]:
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


class EpochDraws:
    """Random numbers of the samples that a thread makes for a loader, from the epoch's seed.

    As a context manager, it is the source of all random numbers that the thread draws in the block.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # Indices in the loader's dataset of the batch, and of its samples that are being made; () if unknown.
        self._batch: Sequence[object] = ()
        self._indices: Sequence[object] = ()
        # Of `each`: the iterator of the batch's indices, whose length tells which sample is being made.
        self._left: Iterator[object] | None = None
        self._place = -1
        self._is_users = False  # True if the user's own code makes the samples
        # The indices that the next two belong to: most samples need neither, and reset nothing.
        self._counted: Sequence[object] | None = None
        # The number of calls of transforms on images of unknown index, counted from `_first_call`.
        self._calls = self._first_call = 0
        # How often a dataset was asked for the same images while the user's own code made a sample.
        self._requests: dict[tuple[int, bytes], int] = {}
        self._token: Token[EpochDraws | None] | None = None

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *error: object) -> None:
        assert self._token is not None
        _current.reset(self._token)

    def begin(self, indices: Sequence[object], is_users: bool) -> None:
        """Begin to make the samples with these indices; if `is_users`, the user's own code makes them."""
        self._batch = self._indices = indices
        self._left, self._place = None, -1
        self._is_users, self._first_call, self._counted = is_users, 0, None

    def each(self, indices: Iterable[_Index]) -> Iterator[_Index]:
        """Return an iterator of the indices of samples that the user's own code makes, one after the other.

        Nothing is done for a sample (the cheapest take 0.1 µs) that draws no numbers.
        """
        batch = indices if isinstance(indices, list) else list(indices)
        self.begin(batch, True)
        left = self._left = iter(batch)
        return left

    def begin_sample(self, place: int) -> None:
        """Begin with the sample at this place of the batch, unless the user's own code makes the batch."""
        if not self._is_users and len(self._batch) > 1:
            self._indices = (self._batch[place],)

    def begin_collating(self, indices: Sequence[object]) -> None:
        """Begin to make a batch of the samples with these indices."""
        self._indices, self._left = indices, None
        self._is_users, self._first_call, self._counted = False, _COLLATION, None

    @property
    def are_samples_known(self) -> bool:
        return len(self._sample()) > 0

    def of_images(self, indices: NDArray[np.int64], dataset: object) -> NDArray[np.uint64]:
        """Return the keys of images of a dataset: others if one sample takes the same image again."""
        keys = _keys(self.seed, indices.view(np.uint64))
        if not self._is_users:
            return keys
        self._count()
        request = id(dataset), indices.tobytes()
        repeats = self._requests.get(request, 0)
        self._requests[request] = repeats + 1
        return _numbered(keys, _REPEATS + repeats) if repeats else keys

    def of_call(self, count: int) -> NDArray[np.uint64]:
        """Return the keys of the next call of a transform on `count` images."""
        self._count()
        self._calls += 1
        numbers = np.array([*map(_as_number, self._sample())], np.uint64)
        keys = _numbered(_keys(self.seed, numbers), self._calls)
        rounds = np.arange(count, dtype=np.uint64) // np.uint64(len(keys))
        return mixed(np.resize(keys, count) + _GOLDEN * rounds)

    def _count(self) -> None:
        if self._counted is not self._sample():
            self._counted, self._calls, self._requests = self._indices, self._first_call, {}

    def _sample(self) -> Sequence[object]:
        """Return the indices of the samples that are being made."""
        if self._left is not None:
            place = len(self._batch) - operator.length_hint(self._left) - 1
            if place != self._place:
                self._place, self._indices = place, (self._batch[place],)
        return self._indices


_current: ContextVar[EpochDraws | None] = ContextVar("fastload_epoch_draws", default=None)


def begin_epoch_seed(seed: int) -> None:
    """Derive all random numbers that this thread draws from now on from an epoch seed."""
    current = _current.get()
    if current is None or current.seed != seed:
        _current.set(EpochDraws(seed))


def current_draws() -> EpochDraws | None:
    """Return the source of this thread's random numbers; None outside fastload's DataLoader."""
    return _current.get()


def begin_sample(place: int) -> None:
    """Begin with the sample at this place of the batch: see `EpochDraws`."""
    if (current := _current.get()) is not None:
        current.begin_sample(place)


def draws_for(indices: Sequence[int] | NDArray[np.int64], dataset: object = None) -> Draws:
    """Return the numbers of images, given their indices in a dataset: torch's if no epoch seed is set."""
    if (current := _current.get()) is None:
        return _torchs_draws(len(indices))
    return Draws(current.of_images(np.asarray(indices, np.int64), dataset), len(indices))


def fresh_draws(count: int) -> Draws:
    """Return the numbers of images of unknown index: torch's if no sample is being made for a loader."""
    current = _current.get()
    if current is None or not current.are_samples_known:
        return _torchs_draws(count)
    return Draws(lambda: current.of_call(count), count)


def _torchs_draws(count: int) -> Draws:
    return Draws(lambda: torch.randint(1 << 62, (count,)).numpy().view(np.uint64), count)


def _keys(seed: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    first = mixed(np.array([seed], np.uint64) + _GOLDEN)
    return mixed(first + numbers * _GOLDEN)


@functools.lru_cache(64)
def _counters(count: int) -> NDArray[np.uint64]:
    """Return the numbers that tell apart those of one key, the same for all keys."""
    return mixed(np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)


def _numbered(keys: NDArray[np.uint64], number: int) -> NDArray[np.uint64]:
    """Return other keys, different ones for each number."""
    return mixed(keys ^ mixed(np.array([number], np.uint64) * _GOLDEN))


def _as_number(index: Any) -> int:
    """Return a number for an index of the user's dataset, which may be of any type."""
    try:
        return operator.index(index) & 0xFFFFFFFFFFFFFFFF
    except TypeError:
        return zlib.crc32(repr(index).encode())


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finalizer."""
    values = (values ^ (values >> _SHIFTS[0])) * _FACTORS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _FACTORS[1]
    return values ^ (values >> _SHIFTS[2])
