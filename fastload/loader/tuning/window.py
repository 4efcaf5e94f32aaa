"""A window: some consecutive batches of an epoch, on which one way of loading is measured."""

from __future__ import annotations

import statistics

from fastload.loader.clock import StepClock
from fastload.loader.times import LoadTimes
from fastload.loader.tuning.plan import Alone, Trial
from fastload.loader.tuning.search import Candidate

# A window lasts that long, in seconds, and so many batches of each worker: they come in turns, and so it
# ends with a turn.
_WINDOW_S = 0.25
_BATCHES_A_WORKER = 3
_LEAST_BATCHES = 4

# Without workers, one batch that takes as long as this is enough: more of them would be time lost.
_LONG_BATCH_S = 0.4

# More are not looked at one by one.
_MOST_BATCHES = 2000

# A step that takes so many times the usual one (a validation, a checkpoint) counts as that much.
_UNUSUAL = 5.0

_NOTHING = LoadTimes(0, 0, 0.0, 0.0, 0.0, 0.0)


class Beginning:
    """What starting workers takes: from being forked until each of them has made a first batch.

    It is seen in how much later those batches come than as many do later on.

    Args:
        clock: The epoch's.
    """

    def __init__(self, clock: StepClock) -> None:
        self._batches, self._seconds = clock.batches, _elapsed_s(clock)

    def seconds(self, window: Window, trial: Trial) -> float:
        """What it took.

        Args:
            window: The first one after it.
            trial: What that showed.
        """
        taken_s = window.begun_s - self._seconds
        return max(0.0, taken_s - (window.first - self._batches) * trial.batch_s)


class Window:
    """What the latest batches took.

    Args:
        clock: The epoch's.
        first: The number of batches handed out before the window begins. What was in flight when the way
            of loading changed is none of its business.

    Attributes:
        clock: See above.
        first: See above.
    """

    def __init__(self, clock: StepClock, first: int) -> None:
        self.clock = clock
        self.first = first
        self._begun_at_s = clock.seconds() if clock.batches >= first else None
        self._loaded: tuple[LoadTimes, ...] = ()

    def due(self, workers: int) -> int:
        """The number of batches at which to look again whether it is over.

        Args:
            workers: How many load.
        """
        done = self._done
        if done < 0:
            return self.first
        if self._begun_at_s is None:
            self._begun_at_s = self.clock.seconds()
            self._loaded = self.clock.loading() if not workers else ()
        least = self._least(workers)
        if not workers and done < least:
            return self.clock.batches + 1
        if done < least:
            return self.first + least
        left = max(1, min(done, int((_WINDOW_S / max(self.seconds(), 1e-9) - 1) * done)))
        return self.clock.batches + left + -(done + left) % max(1, workers)

    def is_over(self, workers: int) -> bool:
        """Whether it has lasted long enough to tell.

        Args:
            workers: How many load.
        """
        done = self._done
        is_long = self.clock.latest_wait_s >= _LONG_BATCH_S
        if not workers and is_long and (done > 0 or self.clock.batches == 1):
            return True
        return done >= self._least(workers) and (done >= _MOST_BATCHES or self.seconds() >= _WINDOW_S)

    @property
    def begun_s(self) -> float:
        """How long the epoch had lasted when it began, in seconds."""
        return self.clock.first_wait_s + (self._begun_at_s or 0.0)

    def seconds(self) -> float:
        """How long it has lasted."""
        return 0.0 if self._begun_at_s is None else self.clock.seconds() - self._begun_at_s

    @property
    def batches(self) -> int:
        """How many batches it holds by now."""
        return 0 if self._begun_at_s is None else max(0, self._done)

    @property
    def _done(self) -> int:
        return self.clock.batches - self.first

    def whole_epoch(self, setting: Candidate) -> Trial:
        """What the whole epoch shows, its first wait included, where it was loaded in one way."""
        clock = self.clock
        return Trial(*setting, clock.batches, clock.first_wait_s + clock.seconds(), clock.waited_s)

    def trial(self, setting: Candidate) -> Trial:
        """What it shows of a way of loading."""
        waits, steps = self._taken()
        return Trial(*setting, len(waits), sum(waits) + sum(steps), sum(waits))

    def alone(self) -> Alone:
        """What it shows of loading without workers."""
        _, steps = self._taken()
        loads = self.clock.loading()[0]
        before = self._loaded[0] if self._loaded else _NOTHING
        if before.batches == loads.batches:
            before = _NOTHING
        count = max(1, loads.batches - before.batches)
        return Alone(
            batch_size=self.clock.batch_size,
            batch_bytes=self.clock.batch_bytes,
            load_s=(loads.busy_s - before.busy_s) / count,
            load_cpu_s=(loads.cpu_s - before.cpu_s) / count,
            load_blocked_s=max(0.0, loads.blocked_s - before.blocked_s) / count,
            step_s=sum(steps) / max(1, len(steps)),
        )

    def _taken(self) -> tuple[list[float], list[float]]:
        """The waits and the steps in it, as many of each, unusual steps cut down."""
        count = max(1, self._done)
        waits, steps = list(self.clock.waits_s)[-count:], list(self.clock.steps_s)[-count:]
        usual = statistics.median(steps) if steps else 0.0
        return waits, [min(step, usual * _UNUSUAL) if usual else step for step in steps]

    def _least(self, workers: int) -> int:
        return max(_LEAST_BATCHES, _BATCHES_A_WORKER * workers)


def _elapsed_s(clock: StepClock) -> float:
    """How long an epoch has lasted, in seconds, up to its latest batch."""
    return clock.first_wait_s + clock.seconds()
