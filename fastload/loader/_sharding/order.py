"""Orders of an epoch: the sample at each position, computed for any part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastload.loader._sharding.permutation import Permutation

EpochOrder = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Returns the samples' indices at positions of an epoch."""


class ShuffledWindows:
    """Shards in random order, and samples shuffled within windows of several shards.

    A reader needs only one window's shards at a time. Memory is in proportion to the number of shards.

    Args:
        counts: The samples of each shard, in the order of their indices; each at least 1.
        window: Shards of a window; the last one may have fewer.
        seed, epoch: Determine the order.
    """

    def __init__(self, counts: Sequence[int], window: int, seed: int, epoch: int) -> None:
        self._key = seed, epoch
        shards = Permutation(len(counts), (*self._key, 0))(np.arange(len(counts)))
        sizes = np.array(counts, np.int64)
        # For each shard, in shuffled order: its first position before samples are shuffled; its first sample.
        self._shard_begins = _begins(sizes[shards])
        self._first_samples = _begins(sizes)[shards]
        self._window_begins = np.append(self._shard_begins[::window], sizes.sum())

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples' indices at positions of the epoch."""
        windows = np.searchsorted(self._window_begins, positions, "right") - 1
        places = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            begin, end = self._window_begins[window : window + 2].tolist()
            shuffle = Permutation(end - begin, (*self._key, 1 + window))
            inside = windows == window
            places[inside] = begin + shuffle(positions[inside] - begin)
        shards = np.searchsorted(self._shard_begins, places, "right") - 1
        found: NDArray[np.int64] = self._first_samples[shards] + places - self._shard_begins[shards]
        return found


def _begins(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(sizes) - sizes
