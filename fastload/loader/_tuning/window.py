"""Windows of consecutive batches, over which a candidate is measured."""

from __future__ import annotations

import itertools
import statistics

from fastload.loader._measurements import (
    DEFAULT_SETTINGS,
    Candidate,
    SingleProcessCost,
    Trial,
    TuningSettings,
)
from fastload.loader.clock import LoadTimes, StepClock, total_of


class Window:
    """Times of the batches that one candidate loads, starting with batch number `first`."""

    def __init__(
        self,
        clock: StepClock,
        candidate: Candidate,
        first: int,
        settings: TuningSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._candidate = candidate
        self.first = first
        self._begun_s: float | None = None
        self._loaded = total_of(())
        self._begin_if_due()

    @property
    def batches(self) -> int:
        return max(0, self._clock.batches - self.first)

    @property
    def is_enough(self) -> bool:
        """True if it has enough batches for a measurement."""
        turns = self._settings.batches_per_worker * self._candidate.num_workers
        return self.batches >= max(self._settings.least_batches, turns)

    def is_over(self) -> bool:
        self._begin_if_due()
        workers, clock = self._candidate.num_workers, self._clock
        latest_wait_s = clock.waits_s[-1] if clock.waits_s else clock.first_wait_s
        is_long = latest_wait_s >= self._settings.long_batch_s
        if not workers and is_long and (self.batches or clock.batches == 1):
            return True
        is_turn_over = workers < 2 or self.batches % workers == 0
        return is_turn_over and self.seconds() >= self._settings.window_s and self.is_enough

    def next_check(self) -> int:
        """Return the batch count at which to check again; with workers, windows end after a full turn."""
        if self._begun_s is None:
            return self.first
        ahead = self.batches + max(1, self.batches // 4)
        return self.first + ahead + -ahead % max(1, self._candidate.num_workers)

    def seconds(self) -> float:
        return 0.0 if self._begun_s is None else _elapsed_s(self._clock) - self._begun_s

    def trial(self, since: int | None = None) -> Trial:
        """Return the window's trial or, with `since`, that of all batches since then and workers' start."""
        clock = self._clock
        count = max(1, clock.batches - (self.first if since is None else since))
        waits, steps = latest(clock, count, self._settings.unusual)
        if since == 0 or not waits:
            waits.insert(0, clock.first_wait_s)
        load = self._load()
        blocked = load.blocked_s / load.busy_s if load.busy_s else 0.0
        seconds, waiting_s = sum(waits) + sum(steps), sum(waits)
        includes_start = since is not None
        return Trial(*self._candidate, len(waits), seconds, waiting_s, min(1.0, blocked), includes_start)

    def single_process_cost(self) -> SingleProcessCost:
        clock, load = self._clock, self._load()
        _, steps = latest(clock, max(1, clock.batches - self.first), self._settings.unusual)
        count = max(1, load.batches)
        return SingleProcessCost(
            batch_size=clock.batch_size,
            batch_bytes=clock.batch_bytes,
            load_s=load.busy_s / count,
            load_cpu_s=load.cpu_s / count,
            load_blocked_s=load.blocked_s / count,
            step_s=sum(steps) / max(1, len(steps)),
        )

    def load_s(self) -> float:
        """Return the seconds that making a batch took, without waits for a CPU."""
        load = self._load()
        # The kernel's delays may include some of before a batch.
        return max(0.0, load.busy_s - load.delayed_s) / max(1, load.batches)

    def _begin_if_due(self) -> None:
        if self._begun_s is None and self._clock.batches >= self.first:
            self._begun_s = _elapsed_s(self._clock)
            self._loaded = total_of(self._clock.loading())

    def _load(self) -> LoadTimes:
        """Return the load times of its batches or, if none was loaded within it, of all batches so far."""
        total, before = total_of(self._clock.loading()), self._loaded
        if before.batches >= total.batches:
            return total
        return LoadTimes(*(getattr(total, name) - getattr(before, name) for name in LoadTimes.__slots__))


def latest(clock: StepClock, count: int, unusual: float) -> tuple[list[float], list[float]]:
    """Return the latest waits (except for the first batch) and steps.

    A step that is longer than `unusual` median ones counts as that.
    """
    if count < 1:
        return [], []
    waits, steps = (list(itertools.islice(reversed(each), count)) for each in (clock.waits_s, clock.steps_s))
    usual = statistics.median(steps) if steps else 0.0
    return waits, [min(step, usual * unusual) if usual else step for step in steps]


def _elapsed_s(clock: StepClock) -> float:
    return clock.first_wait_s + clock.seconds()
