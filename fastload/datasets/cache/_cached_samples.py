"""Samples read through a store: the part that files and records share."""

from __future__ import annotations

import contextlib
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache._choose import Form
from fastload.datasets.cache._store import Store
from fastload.datasets.cache.opening import Opening, open_store
from fastload.errors import DamageError, DecodeError, SourceError

# Processes forked one after the other have consecutive numbers: each has counters of its own.
_COUNTERS = mmap.PAGESIZE // 16


class HitCounter:
    """Hits and misses of a process and of those forked from it, whose counts outlive them.

    A spawned process has its own counter.
    """

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 2 * 8 * _COUNTERS)).cast("q")

    def add(self, hits: int, misses: int) -> None:
        """Count some samples."""
        place = 2 * (os.getpid() % _COUNTERS)
        self._numbers[place] += hits
        self._numbers[place + 1] += misses

    @property
    def hits(self) -> int:
        """Samples found in the store, by all processes."""
        return sum(self._numbers[::2])

    @property
    def misses(self) -> int:
        """Samples not found in the store, by all processes."""
        return sum(self._numbers[1::2])


class CachedSamples(ABC):
    """Samples through a store: those that are missing are read from the disk, and stored if there is room."""

    def __init__(self, form: Form, opening: Opening) -> None:
        self.form = form
        self.opening = opening
        self._open(is_guest=False)

    def _open(self, is_guest: bool) -> None:
        self.store: Store = open_store(self.opening, is_guest)
        self.counter = HitCounter()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("store", "counter")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open(is_guest=True)

    def missing(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of some samples that are not stored."""
        return indices[~self.store.found(indices)]

    def steps(self) -> Iterator[int]:
        """Store the missing samples one by one; yield the number of each."""
        for index in self.store.missing().tolist():
            if not self.store.is_open:
                return
            # A process that asks for an unreadable sample gets the error.
            with contextlib.suppress(SourceError, DamageError, DecodeError):
                self._store_sample(index)
            yield index

    @abstractmethod
    def _store_sample(self, index: int) -> None:
        """Read a sample from the disk, and store it."""
