"""Base class of samples read through a store."""

from __future__ import annotations

import contextlib
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache._filler import Filler
from fastload.datasets.cache.opening import Opening, open_store
from fastload.errors import DamageError, DecodeError, SourceError


class ReadCounts:
    """Numbers of samples read from a cache and from files, by this process and those forked from it."""

    def __init__(self) -> None:
        # Processes forked one after another have consecutive PIDs, so that each has its own pair of counts.
        self._counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")

    def add(self, hits: int, misses: int) -> None:
        """Add to the hits and misses of this process."""
        own = 2 * os.getpid() % len(self._counts)
        self._counts[own] += hits
        self._counts[own + 1] += misses

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """Totals of this process and those forked from it."""
        return sum(self._counts[::2]), sum(self._counts[1::2])


# Attributes that each process makes for itself, and that are not pickled.
_PER_PROCESS = ("store", "filler", "counts", "_values")


class CachedSamples(ABC):
    """Samples read through a store: missing ones are read from the disk, and stored if there is room."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self._open(is_unpickled=False)

    def _open(self, is_unpickled: bool) -> None:
        self.store = open_store(self.opening, is_unpickled)
        self.filler = Filler()
        self.counts = ReadCounts()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _PER_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open(is_unpickled=True)

    @property
    def holds_pixels(self) -> bool:
        return self.opening.form == "decoded"

    def missing(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of samples that are not stored."""
        return indices[~self.store.found(indices)]

    def fill(self) -> Iterator[None]:
        """Store the missing samples, one at each step."""
        for index in self.store.missing().tolist():
            if not self.store.is_open:
                return
            # An unreadable sample raises its error in the process that asks for it.
            with contextlib.suppress(SourceError, DamageError, DecodeError):
                self._store_sample(index)
            yield

    @abstractmethod
    def _store_sample(self, index: int) -> None:
        """Read a sample from the disk, and store it."""
