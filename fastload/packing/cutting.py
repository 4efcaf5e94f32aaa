"""Cuts between shards, from predicted sizes.

The stored size of a record is known only once it is encoded, and a process that packs the hundredth shard
cannot wait for the ninety-nine before it. Sizes are therefore predicted from a sample of encoded records: as
a linear function of the sizes of the source's files, or as the mean of the sample.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fastload.packing.choose import SAMPLE_RECORDS
from fastload.packing.encoding.chunk import Recipe
from fastload.packing.running.executor import Executor
from fastload.packing.staging.journal import Journal
from fastload.sources.protocol import Source, evenly_spaced

# From a small source, only this share of the records is sampled, but at least 8, so that it costs little.
_SAMPLED_SHARE = 1 / 32
_LEAST_SAMPLED = 8


def cut(recipe: Recipe, shard_bytes: int, journal: Journal, executor: Executor) -> list[int]:
    """Return the first record of each shard, and the end of the last."""
    source = recipe.source
    count = min(SAMPLE_RECORDS, max(_LEAST_SAMPLED, int(_SAMPLED_SHARE * len(source))))
    # Packing raises the errors instead, so that they name the first record that cannot be packed.
    tolerant = replace(recipe, on_error="skip")
    measured = executor.measure(tolerant, evenly_spaced(len(source), count), journal)
    return cuts_of(predict_sizes(source, dict(sorted(measured.items()))), shard_bytes)


def cuts_of(sizes: npt.NDArray[np.int64], shard_bytes: int) -> list[int]:
    """Return the cuts between shards of about equal size, at most `shard_bytes` on average.

    >>> cuts_of(np.array([40, 40, 40, 40, 40]), 100)
    [0, 2, 5]
    """
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    shards = min(len(sizes), -(-total // shard_bytes))
    inner = np.searchsorted(ends, [total * number // shards for number in range(1, shards)], "right")
    return [0, *sorted({*inner.tolist()} - {0}), len(sizes)]


def predict_sizes(source: Source, measured: dict[int, int]) -> npt.NDArray[np.int64]:
    """Predict the stored size of every record, at least 1 byte, from the sizes that were measured."""
    stored, mean = list(measured.values()), statistics.mean(measured.values() or [1])
    listed = source.sizes_bytes()
    source_bytes = [] if listed is None else [int(listed[index]) for index in measured]
    if listed is None or len({*source_bytes}) < 2:
        return np.full(len(source), max(1, round(mean)), np.int64)
    slope, intercept = statistics.linear_regression(source_bytes, stored)
    if intercept < 0:
        slope, intercept = sum(stored) / sum(source_bytes), 0.0
    if slope < 0:
        slope, intercept = 0.0, mean
    sizes: npt.NDArray[np.int64] = np.maximum(1, np.rint(slope * listed + intercept)).astype(np.int64)
    return sizes
