"""What making batches costs each process: sums that a worker keeps where the training process reads them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.loader.times import LoadTimes
from fastload.loader.transport.seeding import Task, seed_generators

# batches, samples, busy, CPU, delayed, collating: the fields of LoadTimes.
FIELDS = 6

# After a batch that took less than this the next one is not asked what it had of a CPU: asking takes 4 µs,
# and so little time is as good as all spent on one.
WORTH_ASKING_S = 0.0005

_SCHEDSTAT = "/proc/thread-self/schedstat"


class Ledger:
    """Sums up what batches cost the process that makes them.

    Args:
        sums: Where: (FIELDS,), float64, written by this process alone.
    """

    def __init__(self, sums: NDArray[np.float64]) -> None:
        self._sums: Any = memoryview(sums.data)  # an item costs a tenth of an array's
        self._delays = _Delays()
        # Asked at first: the first batch of a short epoch may be all there is.
        self._is_long = True
        self._samples = 0
        self._began = self._began_cpu = self._began_delay = self._fetched = 0.0

    def begin(self) -> None:
        """Starts a batch."""
        if self._is_long:
            self._began_delay = self._delays.seconds()
            self._began_cpu = time.process_time()
        self._began = self._fetched = time.perf_counter()

    def fetched(self, samples: int) -> None:
        """Notes that the samples are there, and will now be made a batch.

        Args:
            samples: How many there are.
        """
        self._samples = samples
        self._fetched = time.perf_counter()

    def end(self) -> None:
        """Ends a batch."""
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
        self._is_long = busy > WORTH_ASKING_S


class Sent:
    """Indices on their way to a worker, whose ledger begins a batch when they arrive.

    Args:
        index: What the worker's fetcher is to get. Of a Task that is the indices, and their arrival seeds the
            worker's generators.
    """

    __slots__ = ("_index",)

    def __init__(self, index: Any) -> None:
        self._index = index

    def __reduce__(self) -> Any:
        index = self._index
        return _received, ((index.indices, index.seed) if type(index) is Task else (index,))


class SendingSampler:
    """An index sampler whose indices begin a batch in the ledger of the worker that gets them.

    Args:
        sampler: The sampler of an epoch's batches.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Sent]:
        return map(Sent, self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


def keep(ledger: Ledger) -> None:
    """Makes a ledger this process's own: arriving indices begin a batch in it."""
    global _own
    _own = ledger


def kept() -> Ledger:
    """This process's own ledger; where nobody has made one, one that nobody reads."""
    if _own is None:
        keep(Ledger(np.zeros(FIELDS)))
    assert _own is not None
    return _own


def times_of(sums: NDArray[np.float64]) -> tuple[LoadTimes, ...]:
    """What ledgers say: (processes, FIELDS)."""
    return tuple(LoadTimes(int(row[0]), int(row[1]), *row[2:]) for row in sums.tolist())


def samples_in(fetched: Any) -> int:
    """The number of samples that a fetcher has fetched, or was asked for; 1 without batching."""
    if type(fetched) is not list:
        fetched = getattr(fetched, "indices", fetched)
    return len(fetched) if isinstance(fetched, (list, tuple)) else 1


_own: Ledger | None = None


def _received(index: Any, seed: int | None = None) -> Any:
    if _own is not None:
        _own.begin()
    if seed is not None:
        seed_generators(seed)
    return index


class _Delays:
    """How long the calling thread has been ready to run while no CPU was free."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._process = -1

    def seconds(self) -> float:
        """The sum so far; 0 where the system does not tell."""
        if self._process != os.getpid():
            # A descriptor opened before a fork would go on telling of the parent.
            self._process = os.getpid()
            self._descriptor = None
            with contextlib.suppress(OSError):
                self._descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        if self._descriptor is None:
            return 0.0
        try:
            return int(os.pread(self._descriptor, 64, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def __del__(self) -> None:
        if self._descriptor is not None and self._process == os.getpid():
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
