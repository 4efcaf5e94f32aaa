"""Worker stats: the time that each process spends on making batches, summed in shared memory."""

from __future__ import annotations

import time
from collections.abc import MutableSequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.loader.clock import LoadTimes
from fastload.system.cpus import SchedulingDelay

# batches, samples, busy, CPU, delayed and collating seconds: the fields of LoadTimes.
STAT_COUNT = 6

# A batch that took less than this counts as CPU time only, and the next one is not measured in detail:
# reading both clocks takes 4 µs.
_LONG_BATCH_S = 0.0005


class StatsRecorder:
    """Adds the cost of this process's batches to `sums`, which has STAT_COUNT numbers.

    `sums` is a list or a memoryview, because indexing an array takes ten times as long.
    """

    def __init__(self, sums: MutableSequence[float] | memoryview[float]) -> None:
        self._sums: Any = sums
        self._delays = SchedulingDelay()
        # The first batch is measured in detail: a short epoch may have no other.
        self._is_long = True
        self._samples = 0
        self._began = self._began_cpu = self._began_delay = self._fetched = 0.0

    def begin(self) -> None:
        if self._is_long:
            self._began_delay = self._delays.seconds()
            self._began_cpu = time.process_time()
        self._began = self._fetched = time.perf_counter()

    def fetched(self, samples: int) -> None:
        """Record that the samples have been fetched and collation starts."""
        self._samples = samples
        self._fetched = time.perf_counter()

    def end(self) -> None:
        now = time.perf_counter()
        busy = now - self._began
        sums = self._sums
        sums[0] += 1
        sums[1] += self._samples
        sums[2] += busy
        if self._is_long:
            sums[3] += time.process_time() - self._began_cpu
            sums[4] += self._delays.seconds() - self._began_delay
        else:
            sums[3] += busy
        sums[5] += now - self._fetched
        self._is_long = busy > _LONG_BATCH_S


_recorder: StatsRecorder | None = None


def use_recorder(recorder: StatsRecorder) -> None:
    global _recorder
    _recorder = recorder


def process_recorder() -> StatsRecorder:
    """Return this process's recorder; without one, set one that nobody reads."""
    if _recorder is None:
        use_recorder(StatsRecorder([0.0] * STAT_COUNT))
    assert _recorder is not None
    return _recorder


def load_times(sums: NDArray[np.float64]) -> tuple[LoadTimes, ...]:
    """Return the times of each process from its sums: (processes, STAT_COUNT)."""
    return tuple(LoadTimes(int(row[0]), int(row[1]), *row[2:]) for row in sums.tolist())


def count_samples(fetched: object, is_batched: bool) -> int:
    """Return the number of fetched samples or requested indices; 1 without batching."""
    return len(fetched) if is_batched and isinstance(fetched, (list, tuple)) else 1
