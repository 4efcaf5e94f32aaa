"""Iterator of an epoch that measures candidates on the batches that the training requests anyway."""

from __future__ import annotations

from typing import Any

from fastload.loader._arguments import LoaderView
from fastload.loader._caching import LoaderCache
from fastload.loader._dataset_state import DatasetState
from fastload.loader._iterators.base import EpochStart
from fastload.loader._measurements import Candidate
from fastload.loader._tuning.decide import SINGLE_PROCESS, fits_into_epoch, has_changed
from fastload.loader._tuning.switching import SwitchingIterator
from fastload.loader._tuning.tuner import Tuner
from fastload.loader._tuning.window import Window, latest


class TunedIterator(SwitchingIterator):
    """Loads an epoch of a map-style dataset while finding the best way to load it."""

    def __init__(self, view: LoaderView, start: EpochStart, tuner: Tuner, cache: LoaderCache | None) -> None:
        self._settings = tuner.measured.settings
        self._cache = cache
        self._candidate = SINGLE_PROCESS
        self._has_begun = False
        # Batches handed out before the candidate began, and before time was last recorded.
        self._candidate_first = self._accounted = 0
        # True if the next batch shows whether loading changes the dataset; the state after that batch.
        self._is_checking = False
        self._handed_state: DatasetState | None = None
        # True if another epoch has begun since the latest batch of this one.
        self._is_overtaken = False
        super().__init__(view, start, tuner)
        if isinstance(earlier := tuner.measuring, TunedIterator):
            earlier._is_overtaken = True
        tuner.begin_measuring(self)
        self._window = Window(start.clock, SINGLE_PROCESS, 1, self._settings)
        # The batch count at which the next check is due.
        self._due = 1

    @property
    def _is_measuring(self) -> bool:
        return not self._tuner.is_settled and self._tuner.measuring is self

    def _next_batch(self) -> Any:
        if self._is_overtaken and not self._has_ended:
            self._is_overtaken = False
            self._continue_beside(self._tuner.measuring)
        if not self._has_begun:
            self._begin()
        elif self.clock.batches >= self._due and not self._has_ended:
            self._check()
        return super()._next_batch()

    def _begin(self) -> None:
        """Begin as planned, with the first batch: the order is drawn then, as without workers."""
        self._has_begun = True
        self._note_draw()
        candidate = self._tuner.next or self._tuner.best
        if candidate.num_workers:
            self._switch_after_check(candidate)
        if not self._is_measuring:
            self._watch_from_now()

    def _continue_beside(self, later: object) -> None:
        """Continue beside a later epoch, which may draw from the same generator: neither may draw ahead."""
        if self.progress.ahead is None:
            return
        self._tuner.forbid_workers(
            "two epochs at once draw from one generator, and workers would draw from it in advance: set "
            "num_workers if the order does not matter"
        )
        for iterator in (self, later):
            if isinstance(iterator, TunedIterator) and not iterator._has_ended:
                iterator._draw_when_due()
                iterator._switch_to(SINGLE_PROCESS)

    def _next_single(self) -> Any:
        if not self._is_checking:
            return super()._next_single()
        self._is_checking = False
        view = self._view
        before = DatasetState(view.dataset, view.collate_fn)
        batch = super()._next_single()
        if reason := before.change_by_loading():
            self._tuner.forbid_workers(reason)
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
                self._tuner.forbid_workers(reason)
            self._handed_state = None
            self._tuner.is_dataset_checked = True
            self._continue_search()
        elif not self._is_measuring:
            self._watch()
        elif self._window.is_over():
            self._note_window()
            self._continue_search()
        elif workers and self._tuner.is_behind(workers):
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
        self._tuner.note_batches(self._candidate, batches, seconds)

    def _note_window(self) -> None:
        if not self._tuner.is_baseline_known:
            cost = self._window.single_process_cost()
            self._tuner.note_single_process(self._view, cost)
            if self._cache is not None:
                self._cache.decide(self._view.dataset, cost)
        self._note_trial()

    def _note_trial(self, since: int | None = None) -> None:
        self._tuner.note_trial(self._window.trial(since))

    def _continue_search(self) -> None:
        """Switch to the next candidate, or to the best if none is left."""
        candidate, best = self._tuner.next, self._tuner.best
        if candidate is None:
            self._tuner.settle_if_done()
            if self._tuner.is_settled:
                self._settle()
                return
            # The budget allows no trial yet.
            candidate = best
        if candidate.num_workers > self._started and not self._fits(candidate):
            # The next epoch will begin with it.
            candidate = best if best.num_workers <= self._started else self._candidate
        self._switch_after_check(candidate)

    def _fits(self, candidate: Candidate) -> bool:
        """Return whether switching to workers pays off in the rest of this epoch."""
        if self._order.is_drawn:
            return False
        measured = self._tuner.measured
        left = None if measured.batches is None else measured.batches - self.progress.position
        workers = 0 if candidate.num_workers <= self._started else candidate.num_workers
        return fits_into_epoch(measured, workers, left)

    def _settle(self) -> None:
        """Continue with the best candidate."""
        best = self._tuner.best
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
        tuner, window, candidate = self._tuner, self._window, self._candidate
        if not tuner.is_settled:
            return
        if candidate.num_workers and tuner.is_behind(candidate.num_workers):
            self._restart("batches took longer than without workers")
            return
        is_long = candidate.num_workers or window.seconds() >= self._settings.watched_s
        if is_long and window.batches >= self._settings.watched_batches // 2:
            if has_changed(tuner.measured, candidate, window.load_s()):
                self._restart("the time to make a batch has changed")
            elif not candidate.num_workers:
                self._watch_from_now()

    def _restart(self, reason: str) -> None:
        """Measure again, loading without workers first."""
        self._tuner.restart(f"measured again in this run, because {reason}")
        self._tuner.begin_measuring(self)
        self._switch_to(SINGLE_PROCESS)

    def _end(self) -> None:
        """Record the last measurements at the epoch's end."""
        if self._has_ended:
            return
        self._account()
        self._tuner.note_end(self.progress.position)
        super()._end()
        if self._is_measuring and self.clock.batches:
            is_first = not (self._tuner.is_baseline_known or self._candidate.num_workers)
            if self._window.is_enough or is_first:
                self._note_window()
            elif self._window.first <= max(1, self._candidate.num_workers):
                # The epoch was too short for a window: all of its time counts, including the workers' start.
                self._note_trial(0)
            self._tuner.settle_if_done()
        elif self._tuner.is_settled and self._candidate.num_workers:
            self._watch()

    def _switch_after_check(self, candidate: Candidate) -> None:
        """Switch to a candidate, after checking that workers may load."""
        if candidate.num_workers and not self._tuner.is_dataset_checked:
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

    def _workers_failed(self, reason: str) -> None:
        self._tuner.forbid_workers(reason)
        self._settle()
