"""Iterator of an epoch that measures candidates on the batches that the training requests anyway.

It switches between the training process and workers after any batch, as its loader's tuner says. All of them
share one order, so no batch is loaded twice, lost or moved. If workers fail, the training process loads their
outstanding batches.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import torch

from fastload.loader.arguments import LoaderView
from fastload.loader.caching import LoaderCache
from fastload.loader.dataset_state import DatasetState
from fastload.loader.iterators.base import EpochStart, SingleProcessIterator
from fastload.loader.iterators.order import SharedOrder
from fastload.loader.iterators.workers import WorkersIterator
from fastload.loader.measurements import NO_LIMITS_YET, read_limits
from fastload.loader.resume.drawing import WORKERS, derived_seed
from fastload.loader.tuning import reducer
from fastload.loader.tuning.reducer import Action, Look, Tuner
from fastload.loader.tuning.window import Window


class TunedIterator(SingleProcessIterator):
    """Loads an epoch of a map-style dataset while finding the best way to load it."""

    def __init__(self, view: LoaderView, start: EpochStart, tuner: Tuner, cache: LoaderCache | None) -> None:
        self._tuner = tuner
        self._cache = cache
        self._start = start
        # What to do until the next event: at first, to begin.
        self._action = Action(Window(), due=0)
        # The dataset after the batch that checks it: training must not change it either.
        self._handed_state: DatasetState | None = None
        # Workers that load or are idle. They are replaced by others, or none, once they have no outstanding
        # batches.
        self._workers: WorkersIterator | None = None
        self._replacement: int | None = None
        # When the latest workers began to start; None once one of them has sent a batch.
        self._starting_since: float | None = None
        super().__init__(view, replace(start, options=replace(start.options, num_workers=0)))
        self._order = SharedOrder(self._sampler_iter)

    def draw_first(self) -> None:
        """Draw the first batch's indices."""
        self.progress.seeds.note_draw(self._view)
        self._order.draw_first()

    def _next_index(self) -> object:
        return next(self._order.rest)

    def next_batch(self) -> object:
        """Return the next batch, from those who load now, after a look if one is due."""
        if self.progress.is_finished:
            raise StopIteration
        if self._action.due is not None and self.clock.batches >= self._action.due:
            self._carry_out(self._looked())
        if self._replacement is not None and not self._order.sent:
            workers = self._replacement
            self._end_workers()
            if workers:
                self._start_workers(workers)
        if self._workers is not None and self._order.sent:
            return self._next_from_workers(self._workers)
        return self._next_single()

    def _looked(self) -> Action:
        """Report what is seen at a look; return what to do."""
        look, window, note = self._look(), self._action.window, self._tuner.note
        if not look.clock.batches:
            if not self.progress.seeds.is_drawn:
                self.progress.seeds.note_draw(self._view)  # before workers draw the order, as without them
            return note(reducer.epoch_begun, look)
        if self._handed_state is None:
            return note(reducer.looked, window, look)
        change = self._handed_state.change_by_training()
        self._handed_state = None
        if change:
            return note(reducer.workers_forbidden, change)
        return note(reducer.dataset_checked, window, look)

    def _look(self) -> Look:
        if self.clock.batches and self._tuner.tuning.limits is NO_LIMITS_YET:
            limits = read_limits(
                self._view.multiprocessing_context, self.clock.batch_bytes, self._tuner.tuning.settings
            )
            # This check does not initialise CUDA.
            has_cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
            self._tuner.note(reducer.limits_read, limits, has_cuda)
        order, position = self._order, self.progress.handed.position
        return Look(self.clock, position, len(order.sent), self._started, order.is_drawn)

    @property
    def _started(self) -> int:
        """The number of workers that load or are idle."""
        return 0 if self._workers is None else self._workers.num_workers

    def _carry_out(self, action: Action) -> None:
        """Load the next batches with the action's workers, until the next event."""
        before, self._action = self._action, action
        self._decide_cache()
        workers, started = action.window.workers, self._started
        if workers == before.window.workers and not action.ends_workers:
            return
        self._replacement = workers if workers > started or action.ends_workers else None
        if self._workers is None:
            return
        if workers > started or not workers:
            self._workers.use_workers(started, 0)
            return
        if not self._order.sent:
            self._workers.begin_clock(self.clock, workers)
            self.progress.handed.rebase(self.progress.handed.position, self._workers.received)
        self._workers.use_workers(workers, self._tuner.tuning.prefetch_of(workers))

    def _decide_cache(self) -> None:
        cost = self._tuner.tuning.single_process
        if self._cache is not None and cost is not None:
            self._cache.decide(self._view.dataset, cost)

    def _next_single(self) -> object:
        """Return the next batch, made by the training process."""
        if self._order.is_drawn:
            # Workers made the last batch, and the clock still shows them.
            self.progress.finish()
            self._end()
            raise StopIteration
        if self.clock.num_workers:
            self.begin_clock()
            self.progress.handed.rebase(self.progress.handed.position, 0)
        try:
            if not self._action.checks_dataset:
                return super().next_batch()
            return self._checked_batch()
        except StopIteration:
            self._end()
            raise

    def _checked_batch(self) -> object:
        """Return the next batch, made by the training process; record how that changes the dataset."""
        self._action = self._action._replace(checks_dataset=False)
        view = self._view
        before = DatasetState(view.dataset, view.collate_fn)
        batch = super().next_batch()
        if change := before.change_by_loading():
            self._forbid_workers(change)
        else:
            # Changes by the training are detected when it requests the next batch.
            self._handed_state = DatasetState(view.dataset, view.collate_fn, view.index_sampler)
        return batch

    def _next_from_workers(self, workers: WorkersIterator) -> object:
        """Return the workers' next batch or, if they cannot make it, that of the training process."""
        position = self.progress.handed.position
        failure = None
        try:
            batch = workers.next_batch()
        except Exception as error:
            failure = error
        if failure is not None:
            try:
                return self._load_failed_batch(workers, failure, position)
            finally:
                # Its traceback refers to this frame.
                del failure
        self._order.sent.popleft()
        if self._starting_since is not None:
            seconds = time.perf_counter() - self._starting_since
            self._tuner.note(reducer.workers_began, seconds, self._started)
            self._starting_since = None
        return batch

    def _load_failed_batch(self, workers: WorkersIterator, error: Exception, position: int) -> object:
        """Return the batch that workers failed to make; if the training process can make it, they end."""
        is_workers_failure = self.progress.handed.position == position
        self._order.take_back_first()
        self.progress.handed.rebase(position, 0)
        try:
            batch = super().next_batch()
        except Exception:
            if is_workers_failure:
                self._give_up(error)
            else:
                # The sample cannot be loaded anywhere: as without workers, the epoch continues after it.
                self.progress.handed.rebase(position + 1, workers.received)
            raise
        self._give_up(error)
        return batch

    def _give_up(self, error: Exception) -> None:
        """Continue without workers; the training process loads their outstanding batches."""
        self._end_workers()
        self._order.take_back()
        self._forbid_workers(f"workers failed where the training process does not: {last_line(error)}")

    def _forbid_workers(self, reason: str) -> None:
        self._carry_out(self._tuner.note(reducer.workers_forbidden, reason))

    def _start_workers(self, workers: int) -> None:
        self._starting_since = time.perf_counter()
        prefetch = self._tuner.tuning.prefetch_of(workers)
        options = replace(
            self._start.options, num_workers=workers, prefetch_factor=prefetch, persistent_workers=False
        )
        # Workers started with the epoch get torch's seeds; later ones must not draw the same numbers again.
        seed = self._base_seed
        seed = derived_seed(seed, self.clock.batches, WORKERS) if self.clock.batches else seed
        seeds = torch.Generator().manual_seed(seed)
        start = replace(self._start, options=options, worker_seeds=seeds, order=self._order)
        try:
            with warnings.catch_warnings():
                # The warning against forking a process with threads: workers that hang are detected.
                warnings.filterwarnings("ignore", r".*fork\(\)")
                iterator = WorkersIterator(self._view, start)
        except Exception as error:
            self._starting_since = None
            self._forbid_workers(f"workers cannot be started: {last_line(error)}")
            return
        iterator.notice_failures_while_waiting(self._tuner.tuning.stuck_s)
        self.progress.handed.rebase(self.progress.handed.position, 0)
        self._workers = iterator
        iterator.use_workers(workers, prefetch)

    def _end_workers(self) -> None:
        if self._workers is not None:
            self._workers.end_workers()
        self._workers, self._replacement, self._starting_since = None, None, None

    def _end(self) -> None:
        """Record the last measurements at the epoch's end, and end the workers."""
        self._tuner.note(reducer.epoch_ended, self._action.window, self._look())
        self._decide_cache()
        self._end_workers()


def last_line(error: Exception) -> str:
    """Return the last line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
