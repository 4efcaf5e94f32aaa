"""Cuts between shards, from the source's listing and from what some of its records take.

The stored size of a record is known only once it is encoded, and a process that packs the hundredth shard
cannot wait for the ninety-nine before it. So sizes are predicted: as a linear function of those of the files,
or as their mean.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fastload.packing._chunk import Recipe
from fastload.packing._executor import Executor
from fastload.packing._journal import Journal
from fastload.packing.choose import SAMPLE_RECORDS
from fastload.sources.protocol import Source, evenly_spaced

# Of a small source, fewer records are encoded, so that this costs little; but at least some.
_SAMPLED_SHARE = 1 / 32
_LEAST_SAMPLED = 8


def cut(recipe: Recipe, shard_bytes: int, journal: Journal, executor: Executor) -> list[int]:
    """Return the first record of each shard, and the end of the last."""
    source = recipe.source
    count = min(SAMPLE_RECORDS, max(_LEAST_SAMPLED, int(_SAMPLED_SHARE * len(source))))
    # Errors are for packing to raise, which names the first record that cannot be packed.
    tolerant = replace(recipe, on_error="skip")
    measured = executor.measure(tolerant, evenly_spaced(len(source), count), journal)
    return cuts_of(predict_sizes(source, dict(sorted(measured.items()))), shard_bytes)


def cuts_of(sizes: npt.NDArray[np.int64], shard_bytes: int) -> list[int]:
    """Return the cuts into shards of about one size, at most `shard_bytes` on average.

    >>> cuts_of(np.array([40, 40, 40, 40, 40]), 100)
    [0, 2, 5]
    """
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    shards = min(len(sizes), -(-total // shard_bytes))
    inner = np.searchsorted(ends, [total * number // shards for number in range(1, shards)], "right")
    return [0, *sorted({*inner.tolist()} - {0}), len(sizes)]


def predict_sizes(source: Source, measured: dict[int, int]) -> npt.NDArray[np.int64]:
    """Return the stored size of every record, at least 1 byte, from those that were measured."""
    stored, mean = list(measured.values()), statistics.mean(measured.values() or [1])
    listed = source.sizes_bytes()
    origin = [] if listed is None else [int(listed[index]) for index in measured]
    if listed is None or len({*origin}) < 2:
        return np.full(len(source), max(1, round(mean)), np.int64)
    slope, intercept = statistics.linear_regression(origin, stored)
    if intercept < 0:
        slope, intercept = sum(stored) / sum(origin), 0.0
    if slope < 0:
        slope, intercept = 0.0, mean
    sizes: npt.NDArray[np.int64] = np.maximum(1, np.rint(slope * listed + intercept)).astype(np.int64)
    return sizes
