"""Measurement of the CPU time that compiling a dataset would save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from fastload.datasets.compiled._dataset import CompiledDataset
from fastload.datasets.compiled.compile import compile

_MOST_SAMPLES = 64
_MOST_S = 0.03


def compiling_saves(dataset: Any) -> tuple[float, float] | None:
    """Return this thread's CPU seconds per sample of the dataset, and of the compiled one.

    As many samples as can be made in 30 ms are made three times uncompiled (the first time also reads the
    disk) and twice compiled. The global random states change as for any other sample. None if nothing can be
    compiled, or if the calls would run the user's own code.
    """
    compiled = compile(dataset)
    is_new = isinstance(compiled, CompiledDataset) and compiled is not dataset
    if not is_new or not compiled.is_known or not len(compiled):
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker; the CPU time of other threads would not be measured
    try:
        ends_at, made = time.perf_counter() + _MOST_S, 0
        while made < min(_MOST_SAMPLES, len(compiled)) and (not made or time.perf_counter() < ends_at):
            _ = dataset[made]
            made += 1
        as_it_is_s = _cpu_s(lambda: [dataset[index] for index in range(made)])
        return as_it_is_s / made, _cpu_s(lambda: compiled.__getitems__(range(made))) / made
    finally:
        torch.set_num_threads(threads)


def _cpu_s(make: Callable[[], object]) -> float:
    """Return this thread's CPU time for the faster of two calls: the first one may import modules."""
    times = []
    for _ in range(2):
        began = time.thread_time()
        make()
        times.append(time.thread_time() - began)
    return min(times)
