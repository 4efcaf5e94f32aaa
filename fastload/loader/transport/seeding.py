"""Random numbers that depend on the batch only, not on the process that makes it.

If the loader decides which process makes a batch, this decision must not change the batch. So before each
batch, the global generators of Python, NumPy and torch (CPU) are seeded from the epoch's seed and the batch's
number. In the training process their states are restored afterwards, because they belong to the user.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch

# SplitMix64, as in fastload.transforms.draws. For a single number, Python integers are faster (1 µs).
_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


class BatchTask(NamedTuple):
    """The seed of a batch's random numbers, and the indices of its samples."""

    seed: int
    indices: Any


class TaskSampler:
    """Index sampler that yields BatchTasks.

    Args:
        sampler: The sampler of an epoch's batches.
        numbers: Returns an iterator of the batches' numbers in the epoch.
        epoch_seed: Returns the epoch's seed.
    """

    def __init__(
        self, sampler: Any, numbers: Callable[[], Iterator[int]], epoch_seed: Callable[[], int]
    ) -> None:
        self._sampler = sampler
        self._numbers = numbers
        self._epoch_seed = epoch_seed

    def __iter__(self) -> Iterator[BatchTask]:
        return map(self._task, self._numbers(), self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def _task(self, number: int, indices: Any) -> BatchTask:
        return BatchTask(_mixed(self._epoch_seed() ^ _mixed(number)), indices)


class SeedingFetcher:
    """Wrapper of torch's fetcher that seeds the random generators for each batch in the training process.

    Saving and restoring the generators takes 50 µs per batch. The generators are shared by all threads, so in
    any other thread than the one that created the loader they are left alone.

    Args:
        fetcher: torch's fetcher.
        thread: Identifier of the thread that created the loader.
        draws_nothing: Returns, before each batch, whether making it is known not to use the generators.
    """

    def __init__(self, fetcher: Any, thread: int, draws_nothing: Callable[[], bool]) -> None:
        self._fetcher = fetcher
        self._thread = thread
        self._draws_nothing = draws_nothing
        # Replacing the bit generator takes a hundredth of the time of setting its state. Each loader has its
        # own, because a dataset may iterate another loader.
        self._bits = np.random.MT19937(0)

    def fetch(self, task: BatchTask) -> Any:
        """Return the samples of a task."""
        if get_ident() != self._thread or self._draws_nothing():
            return self._fetcher.fetch(task.indices)
        pythons, torchs = random.getstate(), torch.default_generator.get_state()
        numpys, bits = np.random.get_state(legacy=False), np.random.mtrand.get_bit_generator()
        np.random.mtrand.set_bit_generator(self._bits)
        try:
            seed_generators(task.seed)
            return self._fetcher.fetch(task.indices)
        finally:
            random.setstate(pythons)
            torch.default_generator.set_state(torchs)
            np.random.mtrand.set_bit_generator(bits)
            if numpys["has_gauss"]:
                # The cached second number of a normal pair is not part of the bit generator, and was lost.
                np.random.set_state(numpys)


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch (CPU) for a batch (7 µs)."""
    random.seed(_mixed(seed + 1))
    # Different seeds: NumPy and torch both use MT19937, and would draw the same numbers from the same seed.
    np.random.seed(_mixed(seed + 2) >> 32)
    torch.default_generator.manual_seed(_mixed(seed + 3) >> 1)


def _mixed(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ value >> 30) * _FACTORS[0]) & _MASK
    value = ((value ^ value >> 27) * _FACTORS[1]) & _MASK
    return value ^ value >> 31
