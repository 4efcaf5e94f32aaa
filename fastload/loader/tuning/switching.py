"""Iterator of an epoch that can switch between the training process and workers after any batch.

Both share one order, so no batch is loaded twice, lost or moved. If workers fail, the training process loads
their outstanding batches.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import torch

from fastload.loader.arguments import LoaderView
from fastload.loader.iterators.base import EpochStart, SingleProcessIterator
from fastload.loader.iterators.order import SharedOrder
from fastload.loader.iterators.workers import WorkersIterator
from fastload.loader.resume.drawing import WORKERS, derived_seed
from fastload.loader.tuning.tuning import Tuner, Tuning


class SwitchingIterator(SingleProcessIterator):
    """Loads an epoch of a map-style dataset: first in the training process, then as `_change_to` requests."""

    def __init__(self, view: LoaderView, start: EpochStart, tuner: Tuner) -> None:
        self._tuner = tuner
        self._start = start
        # Workers that load or are idle. They are replaced by others, or none, once they have no outstanding
        # batches.
        self._workers: WorkersIterator | None = None
        self._replacement: int | None = None
        # When the latest workers began to start; None once one of them has sent a batch.
        self._starting_since: float | None = None
        super().__init__(view, replace(start, options=replace(start.options, num_workers=0)))
        self._order = SharedOrder(self._sampler_iter)

    @property
    def _started(self) -> int:
        """The number of workers that load or are idle."""
        return 0 if self._workers is None else self._workers.num_workers

    def _workers_failed(self, reason: str) -> None:
        """Continue without workers, which failed where the training process does not."""
        raise NotImplementedError

    def draw_first(self) -> None:
        """Draw the first batch's indices."""
        self.progress.seeds.is_drawn = True
        self._order.draw_first()

    def _next_index(self) -> object:
        return next(self._order.rest)

    def next_batch(self) -> object:
        """Return the next batch, from those who load now."""
        if self.progress.is_finished:
            raise StopIteration
        if self._replacement is not None and not self._order.sent:
            workers = self._replacement
            self._end_workers()
            if workers:
                self._start_workers(workers)
        if self._workers is not None and self._order.sent:
            return self._next_from_workers(self._workers)
        return self._next_single()

    def _next_single(self) -> object:
        """Return the next batch, made by the training process."""
        if self._order.is_drawn:
            # Workers made the last batch, and the clock still shows them.
            self.progress.is_finished = True
            self._end()
            raise StopIteration
        if self.clock.num_workers:
            self.begin_clock()
            self.progress.handed.rebase(self.progress.handed.position, 0)
        try:
            return super().next_batch()
        except StopIteration:
            self._end()
            raise

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
            self._tuner.note(Tuning.after_start, seconds, self._started)
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
        self._workers_failed(f"workers failed where the training process does not: {last_line(error)}")

    def _change_to(self, workers: int) -> None:
        """Load the next batches in this many workers."""
        self._replacement = workers if workers > self._started else None
        if self._workers is None:
            return
        if self._replacement is not None or not workers:
            self._workers.use_workers(self._started, 0)
            return
        if not self._order.sent:
            self._workers.begin_clock(self.clock, workers)
            self.progress.handed.rebase(self.progress.handed.position, self._workers.received)
        self._workers.use_workers(workers, self._tuner.tuning.prefetch_of(workers))

    def _dismiss_workers(self) -> None:
        """End the workers once their outstanding batches have been handed out."""
        if self._workers is not None:
            self._workers.use_workers(self._started, 0)
            self._replacement = 0

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
            self._workers_failed(f"workers cannot be started: {last_line(error)}")
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
        """End the workers at the epoch's end."""
        self._end_workers()


def last_line(error: Exception) -> str:
    """Return the last line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
