"""Measurement of what compiling a dataset would gain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastload.datasets.compiled._dataset import CompiledDataset
from fastload.datasets.compiled.compile import compile

_MOST_SAMPLES = 8
_MOST_S = 0.05


def measured_gain(dataset: Any) -> float:
    """Return how many times as fast this process makes samples of a dataset once it is compiled.

    The first eight samples at most are made three times, the first time for the disk, for some 50 ms each.
    The global random states change as by any other sample.

    Returns:
        The gain; 1 where nothing is compiled, or where the user's own code might notice that it is called.
    """
    compiled = compile(dataset)
    is_new = isinstance(compiled, CompiledDataset) and compiled is not dataset
    if not is_new or not compiled.is_known or not len(compiled):
        return 1.0
    began, made = time.perf_counter(), 0
    while made < min(_MOST_SAMPLES, len(compiled)) and time.perf_counter() - began < _MOST_S:
        _ = dataset[made], made == 0 and compiled[made]
        made += 1
    indices = range(made)
    as_it_is_s = _seconds(lambda several: [dataset[index] for index in several], indices)
    return as_it_is_s / _seconds(compiled.__getitems__, indices)


def _seconds(make: Callable[[Sequence[int]], Any], indices: Sequence[int]) -> float:
    began = time.perf_counter()
    make(indices)
    return time.perf_counter() - began
