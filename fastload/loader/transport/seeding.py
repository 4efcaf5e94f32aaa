"""Random numbers that belong to a batch: the same ones wherever it is made.

A loader that decides by itself which process makes a batch must not let that show in it. So for each batch
Python's, NumPy's and torch's (CPU) global generators are seeded anew, by the epoch's seed and the batch's
number. In the training process they are put back afterwards: they are the user's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch

# SplitMix64's; see fastload.transforms.draws. Of one number, Python's integers are the faster way (1 µs).
_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


class Task(NamedTuple):
    """What one batch is made of: the seed of the numbers that are drawn for it, and indices."""

    seed: int
    indices: Any


class TaskSampler:
    """An index sampler that says with each batch what the generators are to be seeded with.

    Args:
        sampler: The sampler of an epoch's batches.
        numbers: Gives their numbers in the epoch.
        epoch_seed: Gives the epoch's seed.
    """

    def __init__(
        self, sampler: Any, numbers: Callable[[], Iterator[int]], epoch_seed: Callable[[], int]
    ) -> None:
        self._sampler = sampler
        self._numbers = numbers
        self._epoch_seed = epoch_seed

    def __iter__(self) -> Iterator[Task]:
        return map(self._task, self._numbers(), self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def _task(self, number: int, indices: Any) -> Task:
        return Task(_mixed(self._epoch_seed() ^ _mixed(number)), indices)


class SeedingFetcher:
    """Stands for a fetcher of torch's in the training process: makes batches that draw numbers of their own.

    Making one takes 50 µs longer, which is what saving and restoring the generators takes. The generators
    belong to all threads. So in another thread than the one that made the loader they are left as they are.

    Args:
        fetcher: Torch's.
        thread: The identity of the thread that made the loader.
        draws_nothing: Says, before each batch, whether making it is known to leave the generators alone.
    """

    def __init__(self, fetcher: Any, thread: int, draws_nothing: Callable[[], bool]) -> None:
        self._fetcher = fetcher
        self._thread = thread
        self._draws_nothing = draws_nothing
        # Exchanging the whole generator takes a hundredth of the time that setting its state does. Each
        # loader has its own, because a dataset may iterate another loader.
        self._bits = np.random.MT19937(0)

    def fetch(self, task: Task) -> Any:
        """Makes the batch of a task."""
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
                # The second one of a pair of normal numbers is not the generator's, and was dropped.
                np.random.set_state(numpys)


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's (CPU) global generators for a batch (7 µs).

    Args:
        seed: The batch's.
    """
    random.seed(_mixed(seed + 1))
    # From one seed NumPy's generator and torch's, which are of the same kind, would give the same numbers.
    np.random.seed(_mixed(seed + 2) >> 32)
    torch.default_generator.manual_seed(_mixed(seed + 3) >> 1)


def _mixed(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ value >> 30) * _FACTORS[0]) & _MASK
    value = ((value ^ value >> 27) * _FACTORS[1]) & _MASK
    return value ^ value >> 31
