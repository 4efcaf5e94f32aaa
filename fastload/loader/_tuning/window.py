"""Windows of consecutive batches, on which one way of loading is measured."""

from __future__ import annotations

import statistics

from fastload.loader._times import LoadTimes
from fastload.loader._tuning.decide import WINDOW_S
from fastload.loader._tuning.measurements import Candidate, SingleProcessCost, Trial
from fastload.loader.clock import StepClock

# So many batches of each worker, which come in turns, and so many in all.
_BATCHES_PER_WORKER = 3
_LEAST_BATCHES = 4
_MOST_BATCHES = 2000

# Without workers, one batch that takes as long as this is enough: more of them would be time lost.
_LONG_BATCH_S = 0.4

# A step that takes so many times the usual one (a validation, a checkpoint) counts as that much.
_UNUSUAL = 5.0

_NOTHING = LoadTimes(0, 0, 0.0, 0.0, 0.0, 0.0)


class Window:
    """Times of the batches that one candidate loads, from the batch number `first` on."""

    def __init__(self, clock: StepClock, candidate: Candidate, first: int) -> None:
        self.clock = clock
        self.candidate = candidate
        self.first = first
        self._begun_s: float | None = None
        self._loaded = _NOTHING
        self._begin_if_due()

    @property
    def batches(self) -> int:
        """Batches in it so far."""
        return 0 if self._begun_s is None else self.clock.batches - self.first

    @property
    def begun_s(self) -> float:
        """Seconds of the epoch before it began."""
        return self._begun_s or 0.0

    @property
    def is_enough(self) -> bool:
        """True if it holds enough batches to tell anything."""
        return self.batches >= max(_LEAST_BATCHES, _BATCHES_PER_WORKER * self.candidate.num_workers)

    @property
    def is_over(self) -> bool:
        """True if it has lasted long enough."""
        is_single = not self.candidate.num_workers
        if (
            is_single
            and self.clock.latest_wait_s >= _LONG_BATCH_S
            and (self.batches or self.clock.batches == 1)
        ):
            return True
        return self.is_enough and (self.batches >= _MOST_BATCHES or self.seconds() >= WINDOW_S)

    def next_check(self) -> int:
        """Return the number of batches at which it may be over; workers' windows end with a turn."""
        self._begin_if_due()
        workers = max(1, self.candidate.num_workers)
        if self._begun_s is None:
            return self.first
        if not self.is_enough:
            least = max(_LEAST_BATCHES, _BATCHES_PER_WORKER * workers)
            return self.clock.batches + 1 if workers == 1 else self.first + least
        done = self.batches
        left = max(1, min(done, int((WINDOW_S / max(self.seconds(), 1e-9) - 1) * done)))
        return self.clock.batches + left + -(done + left) % workers

    def seconds(self) -> float:
        """Return how long it has lasted."""
        return 0.0 if self._begun_s is None else elapsed_s(self.clock) - self._begun_s

    def trial(self, since: int | None = None) -> Trial:
        """Return its trial or, with the start of workers, that of all batches since then."""
        clock = self.clock
        waits, steps = latest(clock, max(1, clock.batches - (self.first if since is None else since)))
        if since == 0 or not waits:
            waits.insert(0, clock.first_wait_s)
        load = self._load()
        blocked = load.blocked_s / load.busy_s if load.busy_s else 0.0
        seconds, waiting_s = sum(waits) + sum(steps), sum(waits)
        includes_start = since is not None
        return Trial(*self.candidate, len(waits), seconds, waiting_s, min(1.0, blocked), includes_start)

    def single_process_cost(self) -> SingleProcessCost:
        """Return what it shows of loading without workers."""
        _, steps = latest(self.clock, max(1, self.clock.batches - self.first))
        load = self._load()
        count = max(1, load.batches)
        return SingleProcessCost(
            batch_size=self.clock.batch_size,
            batch_bytes=self.clock.batch_bytes,
            load_s=load.busy_s / count,
            load_cpu_s=load.cpu_s / count,
            load_blocked_s=load.blocked_s / count,
            step_s=sum(steps) / max(1, len(steps)),
        )

    def load_s(self) -> float:
        """Return the seconds that making a batch took workers, without waits for a CPU."""
        load = self._load()
        return (load.busy_s - load.delayed_s) / max(1, load.batches)

    def _begin_if_due(self) -> None:
        if self._begun_s is None and self.clock.batches >= self.first:
            self._begun_s = elapsed_s(self.clock)
            self._loaded = _sum(self.clock.loading())

    def _load(self) -> LoadTimes:
        """Return what making its batches took; of a window of one batch, what making all took."""
        total, before = _sum(self.clock.loading()), self._loaded
        if before.batches >= total.batches:
            return total
        return LoadTimes(*(getattr(total, name) - getattr(before, name) for name in LoadTimes.__slots__))


def elapsed_s(clock: StepClock) -> float:
    """Return how long an epoch has lasted, up to its latest batch."""
    return clock.first_wait_s + clock.seconds()


def latest(clock: StepClock, count: int) -> tuple[list[float], list[float]]:
    """Return the latest waits (but the first batch's) and steps, unusually long steps cut."""
    if count < 1:
        return [], []
    waits, steps = list(clock.waits_s)[-count:], list(clock.steps_s)[-count:]
    usual = statistics.median(steps) if steps else 0.0
    return waits, [min(step, usual * _UNUSUAL) if usual else step for step in steps]


def _sum(loads: tuple[LoadTimes, ...]) -> LoadTimes:
    if not loads:
        return _NOTHING
    return LoadTimes(*(sum(getattr(load, name) for load in loads) for name in LoadTimes.__slots__))
