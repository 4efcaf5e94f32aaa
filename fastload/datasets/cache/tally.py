"""Counting what is found in a cache, by a process and those forked from it."""

from __future__ import annotations

import mmap
import os

# Processes that are forked one after the other have numbers that follow each other: each has a cell of its
# own, and none waits for another.
_CELLS = mmap.PAGESIZE // 16


class Tally:
    """How many samples were found in a cache, and how many were not.

    Counts of forked workers are among those of the process that opened the cache, and outlive them. A process
    that was spawned has a tally of its own.
    """

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 2 * 8 * _CELLS)).cast("q")

    def add(self, hits: int, misses: int) -> None:
        """Counts some samples.

        Args:
            hits: How many were found.
            misses: How many were not.
        """
        cell = 2 * (os.getpid() % _CELLS)
        self._numbers[cell] += hits
        self._numbers[cell + 1] += misses

    @property
    def hits(self) -> int:
        """How many were found, by all."""
        return sum(self._numbers[::2])

    @property
    def misses(self) -> int:
        """How many were not."""
        return sum(self._numbers[1::2])
