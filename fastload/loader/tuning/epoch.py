"""Iterator of an epoch that measures candidates on the batches that the training requests anyway."""

from __future__ import annotations

import itertools
import statistics

import torch

from fastload.loader.arguments import LoaderView
from fastload.loader.caching import LoaderCache
from fastload.loader.clock import LoadTimes, StepClock, total_of
from fastload.loader.dataset_state import DatasetState
from fastload.loader.iterators.base import EpochStart
from fastload.loader.measurements import (
    DEFAULT_SETTINGS,
    SingleProcessCost,
    Trial,
    TuningSettings,
    read_limits,
)
from fastload.loader.tuning.switching import SwitchingIterator
from fastload.loader.tuning.tuning import Tuner, Tuning


class Window:
    """Times of batches that are loaded by one number of workers, starting with batch number `first`."""

    def __init__(
        self,
        clock: StepClock,
        workers: int,
        first: int,
        settings: TuningSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._workers = workers
        self.first = first
        self._begun_s: float | None = None
        self._loaded = total_of(())
        self._begin_if_due()

    @property
    def batches(self) -> int:
        """The number of batches since the trial began."""
        return max(0, self._clock.batches - self.first)

    @property
    def is_enough(self) -> bool:
        """True if it has enough batches for a measurement."""
        turns = self._settings.batches_per_worker * self._workers
        return self.batches >= max(self._settings.least_batches, turns)

    def is_over(self) -> bool:
        """Return True if the trial has lasted long enough."""
        self._begin_if_due()
        workers, clock = self._workers, self._clock
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
        return self.first + ahead + -ahead % max(1, self._workers)

    def seconds(self) -> float:
        """Return the duration of the trial so far."""
        return 0.0 if self._begun_s is None else self._clock.seconds() - self._begun_s

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
        return Trial(self._workers, len(waits), seconds, waiting_s, min(1.0, blocked), includes_start)

    def single_process_cost(self) -> SingleProcessCost:
        """Return the cost of loading without workers."""
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

    def _begin_if_due(self) -> None:
        if self._begun_s is None and self._clock.batches >= self.first:
            self._begun_s = self._clock.seconds()
            self._loaded = total_of(self._clock.loading())

    def _load(self) -> LoadTimes:
        """Return the load times of its batches or, if none was loaded within it, of all batches so far."""
        total, before = total_of(self._clock.loading()), self._loaded
        if before.batches >= total.batches:
            return total
        return LoadTimes(*(getattr(total, name) - getattr(before, name) for name in LoadTimes.__slots__))


class TunedIterator(SwitchingIterator):
    """Loads an epoch of a map-style dataset while finding the best way to load it."""

    def __init__(self, view: LoaderView, start: EpochStart, tuner: Tuner, cache: LoaderCache | None) -> None:
        self._cache = cache
        # The number of workers that load.
        self._current = 0
        # Batches handed out before these began, and before time was last recorded.
        self._current_first = self._accounted = 0
        # True if the next batch shows whether loading changes the dataset; the state after that batch.
        self._is_checking = False
        self._handed_state: DatasetState | None = None
        super().__init__(view, start, tuner)
        self._window = Window(start.clock, 0, 1, tuner.tuning.settings)
        # The batch count at which the next check is due; None: nothing is left to check.
        self._due: int | None = 1

    def next_batch(self) -> object:
        """Return the next batch, after a check if one is due."""
        if self.clock.batches == 0:
            self._begin()
        elif self._due is not None and self.clock.batches >= self._due and not self.progress.is_finished:
            self._check()
        return super().next_batch()

    def _begin(self) -> None:
        """Begin as planned, with the first batch: the order is drawn then, as without workers."""
        self._note_draw()
        tuning = self._tuner.tuning
        if workers := tuning.best if tuning.next is None else tuning.next:
            self._switch_after_check(workers)

    def _next_single(self) -> object:
        if not self._is_checking:
            return super()._next_single()
        self._is_checking = False
        view = self._view
        before = DatasetState(view.dataset, view.collate_fn)
        batch = super()._next_single()
        if reason := before.change_by_loading():
            self._forbid_workers(reason)
        else:
            # Changes by the training are detected when it requests the next batch.
            self._handed_state = DatasetState(view.dataset, view.collate_fn, view.index_sampler)
        return batch

    def _check(self) -> None:
        """Record measurements, and switch to the next number of workers."""
        if self._tuner.tuning.is_settled and self._handed_state is None:
            self._due = None
            return
        self._account()
        self._due = self.clock.batches + 1
        if self._handed_state is not None:
            if reason := self._handed_state.change_by_training():
                self._forbid_workers(reason)
            self._handed_state = None
            self._tuner.note(Tuning.after_check)
            self._continue_search()
        elif self._window.is_over():
            self._note_window()
            self._continue_search()
        elif self._current and self._tuner.tuning.is_behind():
            self._note_trial(self._current_first)
            self._continue_search()
        else:
            self._due = self._window.next_check()

    def _account(self) -> None:
        """Record the time since the last check."""
        batches = self.clock.batches - self._accounted
        waits, steps = latest(self.clock, batches, self._tuner.tuning.settings.unusual)
        seconds = sum(waits) + sum(steps) + (0.0 if self._accounted else self.clock.first_wait_s)
        self._accounted = self.clock.batches
        self._tuner.note(Tuning.after_batches, self._current, batches, seconds)

    def _note_window(self) -> None:
        tuning = self._tuner.tuning
        if tuning.single_process is None:
            cost, context = self._window.single_process_cost(), self._view.multiprocessing_context
            limits = read_limits(context, cost.batch_bytes, tuning.settings)
            # This check does not initialise CUDA.
            has_cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
            self._tuner.note(Tuning.after_cost, cost, limits, has_cuda)
            if self._cache is not None:
                self._cache.decide(self._view.dataset, cost)
        self._note_trial()

    def _note_trial(self, since: int | None = None) -> None:
        self._tuner.note(Tuning.after_trial, self._window.trial(since))

    def _continue_search(self) -> None:
        """Switch to the next number of workers, or to the best if none is left."""
        tuning = self._tuner.note(Tuning.settled_if_done)
        if tuning.is_settled:
            self._settle()
            return
        # None: the budget allows no trial yet.
        workers = tuning.best if tuning.next is None else tuning.next
        if workers > self._started and not self._fits(workers):
            # The next epoch will begin with it.
            workers = tuning.best if tuning.best <= self._started else self._current
        self._switch_after_check(workers)

    def _fits(self, workers: int) -> bool:
        """Return whether switching to workers pays off in the rest of this epoch."""
        if self._order.is_drawn:
            return False
        tuning = self._tuner.tuning
        left = None if tuning.batches is None else tuning.batches - self.progress.handed.position
        return tuning.fits_into_epoch(0 if workers <= self._started else workers, left)

    def _settle(self) -> None:
        """Continue with the best number of workers."""
        best = self._tuner.tuning.best
        if best <= self._started or self._fits(best):
            self._switch_after_check(best)
        if not best:
            self._dismiss_workers()

    def _end(self) -> None:
        """Record the last measurements at the epoch's end."""
        was_settled = self._tuner.tuning.is_settled
        if not was_settled:
            self._account()
        # Counted, for a sampler without a length.
        tuning = self._tuner.note(Tuning.after_end, self.progress.handed.position)
        super()._end()
        if not was_settled and self.clock.batches:
            is_first = tuning.single_process is None and not self._current
            if self._window.is_enough or is_first:
                self._note_window()
            elif self._window.first <= max(1, self._current):
                # The epoch was too short for a window: all of its time counts, including the workers' start.
                self._note_trial(0)
            self._tuner.note(Tuning.settled_if_done)

    def _switch_after_check(self, workers: int) -> None:
        """Switch to a number of workers, after checking that any may load."""
        if workers and not self._tuner.tuning.is_dataset_checked:
            # One more batch without workers.
            self._is_checking = True
            self._due = self.clock.batches + 1
        else:
            self._switch_to(workers)

    def _switch_to(self, workers: int) -> None:
        """Switch to a number of workers, or continue with it, in a new window."""
        first = self.clock.batches
        if workers != self._current:
            # Batches in flight were requested before; then each worker makes its first batch.
            first += len(self._order.sent) + max(1, workers)
            self._current_first = self.clock.batches
            self._current = workers
            self._change_to(workers)
        self._window = Window(self.clock, workers, first, self._tuner.tuning.settings)
        self._due = self.clock.batches + 1

    def _forbid_workers(self, reason: str) -> None:
        self._tuner.note(Tuning.without_workers, reason)

    def _workers_failed(self, reason: str) -> None:
        self._forbid_workers(reason)
        self._settle()


def latest(clock: StepClock, count: int, unusual: float) -> tuple[list[float], list[float]]:
    """Return the latest waits (except for the first batch) and steps.

    A step that is longer than `unusual` median ones counts as that.
    """
    if count < 1:
        return [], []
    waits, steps = (list(itertools.islice(reversed(each), count)) for each in (clock.waits_s, clock.steps_s))
    usual = statistics.median(steps) if steps else 0.0
    return waits, [min(step, usual * unusual) if usual else step for step in steps]


def watched(clock: StepClock, settings: TuningSettings) -> tuple[Trial, float]:
    """Return an epoch that was loaded in one way, and the CPU and blocked seconds of making a batch."""
    load = total_of(clock.loading())
    # The kernel's delays may include some of before a batch.
    load_s = max(0.0, load.busy_s - load.delayed_s) / max(1, load.batches)
    return Window(clock, clock.num_workers, 0, settings).trial(since=0), load_s
