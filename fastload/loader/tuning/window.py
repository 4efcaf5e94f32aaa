"""Windows of an epoch: consecutive batches that one number of workers loads, and what their times show."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, replace

from fastload.loader.clock import LoadTimes, StepClock, total_of
from fastload.loader.measurements import SingleProcessCost, Trial, TuningSettings

_NOTHING = total_of(())


@dataclass(frozen=True, slots=True)
class Window:
    """Times of batches that are loaded by one number of workers, starting with batch number `first`.

    Attributes:
        since: Batches handed out before these workers were asked for.
        accounted: Batches handed out until their times were last added up.
        begun_s: Seconds of the epoch before its first batch; None until that has been handed out.
        loaded: The load times until then.
    """

    workers: int = 0
    first: int = 1
    since: int = 0
    accounted: int = 0
    begun_s: float | None = None
    loaded: LoadTimes = _NOTHING

    def at(self, clock: StepClock) -> Window:
        """Return the window as it is now: it begins once its first batch is due."""
        if self.begun_s is not None or clock.batches < self.first:
            return self
        return replace(self, begun_s=clock.seconds(), loaded=total_of(clock.loading()))

    def batches(self, clock: StepClock) -> int:
        """Return the number of its batches so far."""
        return max(0, clock.batches - self.first)

    def is_enough(self, clock: StepClock, settings: TuningSettings) -> bool:
        """Return True if it has enough batches for a measurement."""
        return self.batches(clock) >= max(settings.least_batches, settings.batches_per_worker * self.workers)

    def is_over(self, clock: StepClock, settings: TuningSettings) -> bool:
        """Return True if it has lasted long enough."""
        latest_wait_s = clock.waits_s[-1] if clock.waits_s else clock.first_wait_s
        is_long = latest_wait_s >= settings.long_batch_s
        if not self.workers and is_long and (self.batches(clock) or clock.batches == 1):
            return True
        is_turn_over = self.workers < 2 or self.batches(clock) % self.workers == 0
        lasts = self.seconds(clock) >= settings.window_s
        return is_turn_over and lasts and self.is_enough(clock, settings)

    def next_look(self, clock: StepClock) -> int:
        """Return the batch count at which to look again; with workers, windows end after a full turn."""
        if self.begun_s is None:
            return self.first
        ahead = self.batches(clock) + max(1, self.batches(clock) // 4)
        return self.first + ahead + -ahead % max(1, self.workers)

    def seconds(self, clock: StepClock) -> float:
        """Return its duration so far."""
        return 0.0 if self.begun_s is None else clock.seconds() - self.begun_s

    def trial(self, clock: StepClock, settings: TuningSettings, since: int | None = None) -> Trial:
        """Return the window's trial or, with `since`, that of all batches since then and workers' start."""
        count = max(1, clock.batches - (self.first if since is None else since))
        waits, steps = latest(clock, count, settings.unusual)
        if since == 0 or not waits:
            waits.insert(0, clock.first_wait_s)
        load = self._load(clock)
        blocked = load.blocked_s / load.busy_s if load.busy_s else 0.0
        seconds, waiting_s = sum(waits) + sum(steps), sum(waits)
        return Trial(self.workers, len(waits), seconds, waiting_s, min(1.0, blocked), since is not None)

    def single_process_cost(self, clock: StepClock, settings: TuningSettings) -> SingleProcessCost:
        """Return the cost of loading without workers."""
        load = self._load(clock)
        _, steps = latest(clock, max(1, clock.batches - self.first), settings.unusual)
        count = max(1, load.batches)
        return SingleProcessCost(
            batch_size=clock.batch_size,
            batch_bytes=clock.batch_bytes,
            load_s=load.busy_s / count,
            load_cpu_s=load.cpu_s / count,
            load_blocked_s=load.blocked_s / count,
            step_s=sum(steps) / max(1, len(steps)),
        )

    def _load(self, clock: StepClock) -> LoadTimes:
        """Return the load times of its batches or, if none was loaded within it, of all batches so far."""
        total, before = total_of(clock.loading()), self.loaded
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
