"""Recorded times of an epoch: waits for batches, the steps between them, and the making of batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.system.cpus import SchedulingDelay

# Waits and steps that are stored individually.
_LATEST = 4096

# batches, samples, busy, CPU, delayed and collating seconds: the fields of LoadTimes.
STAT_COUNT = 6

# A batch that took less than this counts as CPU time only. Of longer ones, the first two and one in eight are
# measured in detail, and the others have the same shares: reading both clocks takes up to 30 µs.
_LONG_BATCH_S = 0.0005
_FIRST_MEASURED, _EVERY_MEASURED = 2, 8


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Time that one process spent on making batches: a worker or, without workers, the training process.

    Attributes:
        batches: The number of batches it made.
        samples: The number of samples in them.
        busy_s: Time from receiving the indices to the finished batch, summed over the batches.
        cpu_s: CPU time within `busy_s`.
        delayed_s: Time within `busy_s` in which the process was ready but no CPU was free; 0 if unknown.
        collate_s: Time within `busy_s` for collating samples and writing the batch into slots; all of it for
            a dataset that fills batches itself.
    """

    batches: int
    samples: int
    busy_s: float
    cpu_s: float
    delayed_s: float
    collate_s: float

    @property
    def blocked_s(self) -> float:
        """Time within `busy_s` spent waiting for something other than a CPU: a disk, a network, a lock."""
        return max(0.0, self.busy_s - self.cpu_s - self.delayed_s)


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """Times of one epoch: waits for the next batch, and the training's steps between them.

    Attributes:
        num_workers: Workers that loaded at the epoch's end; 0: the training process.
        prefetch_factor: Batches requested from each worker in advance; None without workers.
        batch_size: Samples in the epoch's first batch.
        batches: The number of batches handed out.
        first_wait_s: The wait for the first batch, in which workers are started.
        waiting_s: The sum of all later waits.
        stepping_s: The sum of the steps.
        loading: The load times of each process.
    """

    num_workers: int
    prefetch_factor: int | None
    batch_size: int
    batches: int
    first_wait_s: float
    waiting_s: float
    stepping_s: float
    loading: tuple[LoadTimes, ...]

    @property
    def samples(self) -> int:
        """The number of samples in these batches, if all are as large as the first."""
        return self.batches * self.batch_size

    @property
    def samples_per_s(self) -> float:
        """Throughput without the first batch; 0 for fewer than two batches."""
        seconds = self.waiting_s + self.stepping_s
        return 0.0 if self.batches < 2 or seconds <= 0 else self.samples * (1 - 1 / self.batches) / seconds

    @property
    def waiting_share(self) -> float:
        """Share of the time spent waiting for data, from 0 to 1, without the first batch."""
        seconds = self.waiting_s + self.stepping_s
        return 0.0 if seconds <= 0 else self.waiting_s / seconds


class StepClock:
    """Measures an epoch's waits and steps; the iterator calls it twice per batch (0.5 µs).

    It has the attributes of EpochTimes, with their values so far, and:

    Attributes:
        batch_bytes: Bytes of the first batch's tensors.
        copying_s: Time within the waits for copies to the device, where the loader makes them.
        waits_s: The latest waits, without the first batch's.
        steps_s: The step after each of these waits; the last one may be missing.

    Args:
        hands_samples: True if each "batch" is one sample.
    """

    def __init__(self, hands_samples: bool = False) -> None:
        self._hands_samples = hands_samples
        self._loading: Callable[[], tuple[LoadTimes, ...]] | None = None
        self.num_workers = 0
        self.prefetch_factor: int | None = None
        self.copying_s = 0.0
        self.waits_s: deque[float] = deque(maxlen=_LATEST)
        self.steps_s: deque[float] = deque(maxlen=_LATEST)
        self.batches = self.batch_size = self.batch_bytes = 0
        self.first_wait_s = self.waiting_s = self._stepping_s = 0.0
        self._asked = self._handed = 0.0

    def begin(
        self,
        num_workers: int,
        prefetch_factor: int | None,
        loading: Callable[[], tuple[LoadTimes, ...]] | None,
    ) -> None:
        """Begin an epoch, or a part of one with other workers; `loading` returns each process's times."""
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self._loading = loading

    def settle(self) -> None:
        """Store the load times until now, because the processes are about to end."""
        if self._loading is not None:
            times = self._loading()
            self._loading = lambda: times

    def ask(self) -> None:
        """Record that the training asks for a batch."""
        self._asked = time.perf_counter()
        if self.batches:
            step = self._asked - self._handed
            self._stepping_s += step
            self.steps_s.append(step)

    def hand(self, batch: object) -> None:
        """Record that the training receives a batch."""
        self._handed = time.perf_counter()
        wait = self._handed - self._asked
        if self.batches:
            self.waiting_s += wait
            self.waits_s.append(wait)
        else:
            self.first_wait_s = wait
            samples, self.batch_bytes = size_of(batch)
            self.batch_size = 1 if self._hands_samples else samples
        self.batches += 1

    def seconds(self) -> float:
        """Return the sum of all waits and steps so far."""
        return self.first_wait_s + self.waiting_s + self._stepping_s

    def loading(self) -> tuple[LoadTimes, ...]:
        """Return the load times of each process so far."""
        return () if self._loading is None else self._loading()

    def times(self) -> EpochTimes | None:
        """Return the epoch's times so far; None before the first batch."""
        if not self.batches:
            return None
        return EpochTimes(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            batch_size=self.batch_size,
            batches=self.batches,
            first_wait_s=self.first_wait_s,
            waiting_s=self.waiting_s,
            stepping_s=self._stepping_s,
            loading=self.loading(),
        )


def total_of(loads: Sequence[LoadTimes]) -> LoadTimes:
    """Return the load times of several processes together."""
    return LoadTimes(*(sum(getattr(load, name) for load in loads) for name in LoadTimes.__slots__))


def size_of(batch: Any) -> tuple[int, int]:
    """Return a batch's samples, and the bytes of its tensors and arrays.

    The number of samples is the first dimension of the first tensor or array that has one, else 1. Only
    built-in containers are searched, because others could run user code; each once, as a batch may contain
    itself.
    """
    samples, size = 0, 0
    parts = [batch]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        is_dense = type(part) is torch.Tensor and part.layout is torch.strided and not part.is_nested
        if is_dense or type(part) is np.ndarray:
            size += part.nbytes
            if not samples and part.ndim:
                samples = part.shape[0]
        elif id(part) not in seen:
            seen.add(id(part))
            if type(part) is dict:
                parts.extend(reversed(part.values()))
            # The base class's own iterator: that of a subclass is user code.
            for kind in (list, tuple):
                if issubclass(type(part), kind):
                    parts.extend(reversed(list(kind.__iter__(part))))
    return samples or 1, size


class StatsRecorder:
    """Adds the cost of this process's batches to `sums`, which has STAT_COUNT numbers.

    `sums` is a list or a memoryview, because indexing an array takes ten times as long.
    """

    def __init__(self, sums: MutableSequence[float] | memoryview[float]) -> None:
        self._sums = sums
        self._delays = SchedulingDelay()
        # The first batch is measured in detail: a short epoch may have no other.
        self._is_measured = True
        # Of the batches that were measured in detail: busy, CPU and delayed seconds.
        self._measured = [0.0, 0.0, 0.0]
        self._samples = self._batches = 0
        self._began = self._began_cpu = self._began_delay = self._fetched = 0.0

    def begin(self) -> None:
        """Record that the indices of a batch have arrived."""
        if self._is_measured:
            self._began_delay = self._delays.seconds()
            self._began_cpu = time.process_time()
        self._began = self._fetched = time.perf_counter()

    def fetched(self, samples: int) -> None:
        """Record that the samples have been fetched and collation starts."""
        self._samples = samples
        self._fetched = time.perf_counter()

    def end(self) -> None:
        """Record that the batch is finished."""
        now = time.perf_counter()
        busy = now - self._began
        sums = self._sums
        sums[0] += 1
        sums[1] += self._samples
        sums[2] += busy
        is_long = busy > _LONG_BATCH_S
        if self._is_measured:
            cpu, delay = time.process_time() - self._began_cpu, self._delays.seconds() - self._began_delay
            measured = self._measured
            measured[0] += busy
            measured[1] += cpu
            measured[2] += delay
            sums[3] += cpu
            sums[4] += delay
        elif is_long:
            all_busy, cpu, delay = self._measured
            sums[3] += busy * cpu / all_busy
            sums[4] += busy * delay / all_busy
        else:
            sums[3] += busy
        sums[5] += now - self._fetched
        self._batches += 1
        self._is_measured = is_long and (
            self._batches < _FIRST_MEASURED or self._batches % _EVERY_MEASURED == 0
        )


_recorder: StatsRecorder | None = None


def use_recorder(recorder: StatsRecorder) -> None:
    """Set this process's recorder."""
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
