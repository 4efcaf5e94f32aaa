"""Random numbers of a batch: its seeds, set before it is made and taken back afterwards.

A loader may decide which process makes a batch, but that must not change the batch. So before each batch, the
global generators of Python, NumPy and torch (CPU) are seeded from the epoch's seed and the batch's number. In
the training process, the user's states are restored afterwards.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from threading import get_ident
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from fastload.loader.clock import process_recorder
from fastload.transforms.draws import EpochDraws, begin_epoch_seed

# SplitMix64, as in fastload.transforms.draws. For a single number, Python integers are faster (1 µs).
_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


class BatchTask(NamedTuple):
    """Indices of a batch's samples, the seed of the epoch's transforms, and that of the global generators.

    The latter is None if they are not seeded for each batch. Unpickling a task, in a worker, starts a batch
    in the worker's recorder, sets the seeds, and returns the indices.
    """

    indices: object
    epoch_seed: int
    seed: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _receive, tuple(self)


# NumPy's bit generators for batches, which take 80 µs to make: a batch has one at a time, and another loader
# that its dataset iterates has another one.
_free_bits: list[np.random.MT19937] = []


class StoredFetcher:
    """Wrapper of torch's fetcher for a dataset that only returns stored tensors, which needs no seeds."""

    def __init__(self, fetch: Callable[[object], object], thread: int) -> None:
        self._fetch = fetch

    def fetch(self, task: BatchTask) -> object:
        """Return the batch of a task."""
        return self._fetch(task.indices)


class SeedingFetcher:
    """Wrapper of torch's fetcher that sets a task's seeds in the training process.

    Saving, seeding and restoring the global generators takes 25 µs per batch. All threads share the
    generators, so they are seeded only in the thread that created the loader.
    """

    def __init__(self, fetch: Callable[[object], object], thread: int) -> None:
        self._fetch = fetch
        self._thread = thread
        # Each epoch has its own, because a dataset may iterate another loader.
        self._draws: EpochDraws | None = None

    def fetch(self, task: BatchTask) -> object:
        """Return the batch of a task."""
        if self._draws is None:
            self._draws = EpochDraws(task.epoch_seed)
        with self._draws:
            if task.seed is None or get_ident() != self._thread:
                return self._fetch(task.indices)
            try:
                bits = _free_bits.pop()
            except IndexError:
                bits = np.random.MT19937(0)
            python_state, torch_state = random.getstate(), torch.default_generator.get_state()
            with _numpy_drawing_from(bits):
                try:
                    seed_generators(task.seed)
                    return self._fetch(task.indices)
                finally:
                    random.setstate(python_state)
                    torch.default_generator.set_state(torch_state)
                    _free_bits.append(bits)


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch (CPU) for a batch (7 µs)."""
    random.seed(_mixed(seed + 1))
    # Different seeds: NumPy and torch both use MT19937, and would draw the same numbers from the same seed.
    np.random.seed(_mixed(seed + 2) >> 32)
    torch.default_generator.manual_seed(_mixed(seed + 3) >> 1)


def batch_seed(epoch_seed: int, number: int, stream: int = 0) -> int:
    """Return the seed of a batch, by its number in the epoch, in one of the streams of the epoch's seed."""
    seed = _mixed(epoch_seed ^ _mixed(number))
    return _mixed(seed ^ _mixed(stream)) if stream else seed


def _receive(indices: object, epoch_seed: int, seed: int | None) -> object:
    process_recorder().begin()
    begin_epoch_seed(epoch_seed)
    if seed is not None:
        seed_generators(seed)
    return indices


@contextlib.contextmanager
def _numpy_drawing_from(bits: np.random.MT19937) -> Iterator[None]:
    """Make NumPy's global generator draw from another bit generator within the block.

    Replacing the bit generator takes 1 µs, saving and setting its state 100 µs. Replacing it loses the cached
    second number of a normal pair, which is therefore saved.
    """
    users = np.random.mtrand.get_bit_generator()
    pair = _pair_state()
    np.random.mtrand.set_bit_generator(bits)
    try:
        yield
    finally:
        np.random.mtrand.set_bit_generator(users)
        if pair["has_gauss"]:
            _pair_state(pair)


def _pair_state(state: object = None) -> Any:
    """Return or set the state of NumPy's global generator, without that of its bits if NumPy allows that."""
    generator: Any = np.random.mtrand._rand
    users = getattr(generator, "_bit_generator", None)
    if users is not None:
        generator._bit_generator = SimpleNamespace(state={"bit_generator": "", "state": {}})
    try:
        return generator.get_state(legacy=False) if state is None else generator.set_state(state)
    finally:
        if users is not None:
            generator._bit_generator = users


def _mixed(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ value >> 30) * _FACTORS[0]) & _MASK
    value = ((value ^ value >> 27) * _FACTORS[1]) & _MASK
    return value ^ value >> 31
