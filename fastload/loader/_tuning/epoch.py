"""Iterator of an epoch that measures candidates on the batches that the training requests anyway."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

import torch

from fastload.loader._arguments import LoaderView
from fastload.loader._caching import LoaderCache
from fastload.loader._dataset_state import DatasetState
from fastload.loader._iterators.base import EpochStart
from fastload.loader._measurements import (
    DEFAULT_SETTINGS,
    SINGLE_PROCESS,
    Candidate,
    SingleProcessCost,
    Trial,
    TuningSettings,
)
from fastload.loader._tuning.limits import read_limits
from fastload.loader._tuning.switching import SwitchingIterator
from fastload.loader._tuning.tuning import Tuner
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


class TunedIterator(SwitchingIterator):
    """Loads an epoch of a map-style dataset while finding the best way to load it."""

    def __init__(self, view: LoaderView, start: EpochStart, tuner: Tuner, cache: LoaderCache | None) -> None:
        self._settings = tuner.state.settings
        self._cache = cache
        self._candidate = SINGLE_PROCESS
        self._has_begun = False
        # Batches handed out before the candidate began, and before time was last recorded.
        self._candidate_first = self._accounted = 0
        # True if the next batch shows whether loading changes the dataset; the state after that batch.
        self._is_checking = False
        self._handed_state: DatasetState | None = None
        super().__init__(view, start, tuner)
        self._window = Window(start.clock, SINGLE_PROCESS, 1, self._settings)
        # The batch count at which the next check is due.
        self._due = 1

    def _next_batch(self) -> object:
        if not self._has_begun:
            self._begin()
        elif self.clock.batches >= self._due and not self._has_ended:
            self._check()
        return super()._next_batch()

    def _begin(self) -> None:
        """Begin as planned, with the first batch: the order is drawn then, as without workers."""
        self._has_begun = True
        self._note_draw()
        tuning = self._tuner.state
        candidate = tuning.next or tuning.best
        if candidate.num_workers:
            self._switch_after_check(candidate)
        if tuning.is_settled:
            self._watch_from_now()

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
        """Record measurements, and switch to the next candidate."""
        self._account()
        workers = self._candidate.num_workers
        self._due = self.clock.batches + 1
        if self._handed_state is not None:
            if reason := self._handed_state.change_by_training():
                self._forbid_workers(reason)
            self._handed_state = None
            self._tuner.state = replace(self._tuner.state, is_dataset_checked=True)
            self._continue_search()
        elif self._tuner.state.is_settled:
            self._watch()
        elif self._window.is_over():
            self._note_window()
            self._continue_search()
        elif workers and self._tuner.state.is_behind(workers):
            self._note_trial(self._candidate_first)
            self._continue_search()
        else:
            self._due = self._window.next_check()

    def _account(self) -> None:
        """Record the time since the last check."""
        batches = self.clock.batches - self._accounted
        waits, steps = latest(self.clock, batches, self._settings.unusual)
        seconds = sum(waits) + sum(steps) + (0.0 if self._accounted else self.clock.first_wait_s)
        self._accounted = self.clock.batches
        self._tuner.state = self._tuner.state.after_batches(self._candidate, batches, seconds)

    def _note_window(self) -> None:
        tuning = self._tuner.state
        if tuning.single_process is None:
            cost, limits = self._window.single_process_cost(), tuning.limits
            if not tuning.is_epoch_tiny(cost):
                context = self._view.multiprocessing_context
                limits = read_limits(context, cost.batch_bytes, self._settings)
            # This check does not initialise CUDA.
            has_cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
            self._tuner.state = replace(tuning, single_process=cost, limits=limits, has_cuda=has_cuda)
            if self._cache is not None:
                self._cache.decide(self._view.dataset, cost)
        self._note_trial()

    def _note_trial(self, since: int | None = None) -> None:
        self._tuner.state = self._tuner.state.after_trial(self._window.trial(since))

    def _continue_search(self) -> None:
        """Switch to the next candidate, or to the best if none is left."""
        tuning = self._tuner.state = self._tuner.state.settled_if_done()
        if tuning.is_settled:
            self._settle()
            return
        # None: the budget allows no trial yet.
        candidate = tuning.next or tuning.best
        if candidate.num_workers > self._started and not self._fits(candidate):
            # The next epoch will begin with it.
            candidate = tuning.best if tuning.best.num_workers <= self._started else self._candidate
        self._switch_after_check(candidate)

    def _fits(self, candidate: Candidate) -> bool:
        """Return whether switching to workers pays off in the rest of this epoch."""
        if self._order.is_drawn:
            return False
        tuning = self._tuner.state
        left = None if tuning.batches is None else tuning.batches - self.progress.position
        workers = 0 if candidate.num_workers <= self._started else candidate.num_workers
        return tuning.fits_into_epoch(workers, left)

    def _settle(self) -> None:
        """Continue with the best candidate."""
        best = self._tuner.state.best
        if best.num_workers <= self._started or self._fits(best):
            self._switch_after_check(best)
        if not best.num_workers:
            self._dismiss_workers()
        self._watch_from_now()

    def _watch_from_now(self) -> None:
        self._window = Window(self.clock, self._candidate, self.clock.batches, self._settings)
        self._check_later()

    def _check_later(self) -> None:
        every, first = self._settings.watched_batches, self._settings.first_check
        self._due = self.clock.batches + min(every, max(first, self.clock.batches))

    def _watch(self) -> None:
        """Restart the search if a settled plan no longer fits."""
        self._check_later()
        tuning, window, candidate = self._tuner.state, self._window, self._candidate
        if candidate.num_workers and tuning.is_behind(candidate.num_workers):
            self._restart("batches took longer than without workers")
            return
        is_long = candidate.num_workers or window.seconds() >= self._settings.watched_s
        if is_long and window.batches >= self._settings.watched_batches // 2:
            if tuning.has_changed(candidate, window.load_s()):
                self._restart("the time to make a batch has changed")
            elif not candidate.num_workers:
                self._watch_from_now()

    def _restart(self, reason: str) -> None:
        """Measure again, loading without workers first."""
        self._tuner.state = self._tuner.state.restarted(f"measured again in this run, because {reason}")
        self._switch_to(SINGLE_PROCESS)

    def _end(self) -> None:
        """Record the last measurements at the epoch's end."""
        if self._has_ended:
            return
        self._account()
        # Counted, for a sampler without a length.
        tuning = self._tuner.state = replace(self._tuner.state, batches=self.progress.position)
        super()._end()
        if not tuning.is_settled and self.clock.batches:
            is_first = tuning.single_process is None and not self._candidate.num_workers
            if self._window.is_enough or is_first:
                self._note_window()
            elif self._window.first <= max(1, self._candidate.num_workers):
                # The epoch was too short for a window: all of its time counts, including the workers' start.
                self._note_trial(0)
            self._tuner.state = self._tuner.state.settled_if_done()
        elif tuning.is_settled and self._candidate.num_workers:
            self._watch()

    def _switch_after_check(self, candidate: Candidate) -> None:
        """Switch to a candidate, after checking that workers may load."""
        if candidate.num_workers and not self._tuner.state.is_dataset_checked:
            # One more batch without workers.
            self._is_checking = True
            self._due = self.clock.batches + 1
        else:
            self._switch_to(candidate)

    def _switch_to(self, candidate: Candidate) -> None:
        """Switch to a candidate, or continue with it, in a new window."""
        first = self.clock.batches
        if candidate != self._candidate:
            # Batches in flight were requested before; then each worker makes its first batch.
            first += len(self._order.sent) + max(1, candidate.num_workers)
            self._candidate_first = self.clock.batches
            self._candidate = candidate
            self._change_to(*candidate)
        self._window = Window(self.clock, candidate, first, self._settings)
        self._due = self.clock.batches + 1

    def _forbid_workers(self, reason: str) -> None:
        self._tuner.state = self._tuner.state.without_workers(reason)

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


def _elapsed_s(clock: StepClock) -> float:
    return clock.first_wait_s + clock.seconds()
