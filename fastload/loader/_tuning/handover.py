"""Epoch whose batches come from the training process or from workers, as may change between two of them.

Both share one order: no batch is loaded twice, wasted or moved. If workers fail, the training process loads
the batches that they owe.
"""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fastload.loader._iterators import SingleProcessIterator, WorkersIterator
from fastload.loader._resume import WORKERS, mixed
from fastload.loader._strategy import EpochStart, LoaderView
from fastload.loader._tuning.decide import SINGLE_PROCESS
from fastload.loader._tuning.measurements import Candidate


class SwitchingIterator(SingleProcessIterator):
    """Loads an epoch of a map-style dataset, first in the training process, then as `_change_to` says."""

    def __init__(self, view: LoaderView, start: EpochStart) -> None:
        self._view = view
        self._start = start
        self._candidate = SINGLE_PROCESS
        # Workers that load or rest, and others that only hand out what they had been asked for before.
        self._workers: WorkersIterator | None = None
        self._leaving: WorkersIterator | None = None
        self._started = 0
        self._has_ended = False
        super().__init__(view, replace(start, options=replace(start.options, num_workers=0)))
        self._order = SharedOrder(self._sampler_iter)

    def _workers_failed(self, reason: str) -> None:
        """Go on without workers, which failed where the training process does not."""
        raise NotImplementedError

    def _stuck_s(self) -> float:
        """Return the seconds of waiting for a batch after which workers are taken to be stuck."""
        raise NotImplementedError

    def draw_first(self) -> None:
        """Make the sampler draw what it draws at the epoch's beginning."""
        if self._undrawn is not None:
            self._undrawn = None
            self._order.draw_first()

    def _next_index(self) -> Any:
        return next(self._order.rest)

    def _next_batch(self) -> Any:
        if self._has_ended:
            raise StopIteration
        while True:
            if self._leaving is not None:
                try:
                    return self._next_of(self._leaving)
                except StopIteration:
                    self._leaving = None
                    self._progress.is_finished = False
                    self._progress.rebase(self._progress.position, 0)
            elif self._workers is not None and self._order.sent:
                return self._next_of(self._workers)
            else:
                return self._next_single()

    def _next_single(self) -> Any:
        """Return the next batch, made by the training process."""
        if self._order.is_drawn:
            # Workers have made the last batch: the clock goes on showing them.
            self._progress.is_finished = True
            self._end()
            raise StopIteration
        if self.clock.num_workers:
            self._load_times.begin()
            self.clock.begin(0, None, self._load_times)
            self._progress.rebase(self._progress.position, 0)
        try:
            return super()._next_batch()
        except StopIteration:
            self._end()
            raise

    def _next_of(self, workers: WorkersIterator) -> Any:
        """Return the next batch of workers; that of the training process, if they cannot make it."""
        position = self._progress.position
        failure = None
        try:
            batch = workers._next_batch()
        except StopIteration:
            raise
        except Exception as error:
            failure = error
        if failure is not None:
            try:
                return self._instead_of(workers, failure, position)
            finally:
                # Its traceback refers to this frame.
                del failure
        self._order.sent.popleft()
        return batch

    def _instead_of(self, workers: WorkersIterator, error: Exception, position: int) -> Any:
        """Return the batch that workers failed to make; if the training process can, workers end."""
        is_of_workers = self._progress.position == position
        self._order.take_back_first()
        self._progress.rebase(position, 0)
        try:
            batch = super()._next_batch()
        except Exception:
            if is_of_workers:
                self._give_up(error)
            else:
                # A sample that cannot be made anywhere: as without workers, the epoch goes on behind it.
                self._progress.rebase(position + 1, workers.received)
            raise
        self._give_up(error)
        return batch

    def _give_up(self, error: Exception) -> None:
        """Go on without workers; what they still owe is loaded by the training process."""
        self._end_workers()
        self._order.take_back()
        self._workers_failed(f"workers failed where the training process does not: {last_line(error)}")

    def _change_to(self, candidate: Candidate) -> None:
        """Load what comes next in another way; raise an error where workers cannot be started."""
        workers, prefetch = candidate
        if not workers:
            if self._workers is not None:
                self._workers.steer(self._started, 0)
        elif self._workers is not None and workers <= self._started:
            if not self._order.sent:
                self._workers.begin_clock(self.clock, workers)
                self._progress.rebase(self._progress.position, self._workers.received)
            self._workers.steer(workers, prefetch)
        else:
            self._start_workers(candidate)
        self._candidate = candidate

    def _start_workers(self, candidate: Candidate) -> None:
        """Start workers that take over from others."""
        self._let_workers_go()
        workers, prefetch = candidate
        options = replace(
            self._start.options, num_workers=workers, prefetch_factor=prefetch, persistent_workers=False
        )
        # Workers of the epoch's beginning have torch's seeds; later ones must not draw the same again.
        seed = int(self._base_seed)
        seed = mixed(seed, self.clock.batches, WORKERS) if self.clock.batches else seed
        seeds = torch.Generator().manual_seed(seed)
        # They are told what to make when they are steered; before, each of them would be given some.
        start = replace(self._start, options=options, worker_seeds=seeds, order=iter(()))
        with warnings.catch_warnings():
            # That forking a process with threads is dangerous: the first batches are watched for that.
            warnings.filterwarnings("ignore", r".*fork\(\)")
            iterator = WorkersIterator(self._view, start)
        iterator.patience_s = self._stuck_s()
        iterator.notice_deaths_while_waiting()
        if self._leaving is None:
            self._progress.rebase(self._progress.position, 0)
        self._workers, self._started = iterator, workers
        iterator.go_on_with(self._order)
        iterator.steer(workers, prefetch)

    def _let_workers_go(self) -> None:
        """Ask workers for nothing more: they hand out what they owe, and end."""
        if self._workers is not None and self._order.sent:
            self._workers.end_soon()
            self._leaving, self._workers, self._started = self._workers, None, 0
        elif self._workers is not None:
            self._end_workers()

    def _end_workers(self) -> None:
        for workers in (self._leaving, self._workers):
            if workers is not None:
                workers.end()
        self._leaving, self._workers, self._started = None, None, 0

    def _end(self) -> None:
        """End the workers at the epoch's end."""
        self._has_ended = True
        self._end_workers()


class SharedOrder:
    """Rest of an epoch's order; iterated by workers, it keeps the indices that they still owe in `sent`."""

    def __init__(self, rest: Iterator[Any]) -> None:
        self.rest = rest
        self.sent: deque[Any] = deque()
        #: Whether workers have seen the order's end.
        self.is_drawn = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            index = next(self.rest)
        except StopIteration:
            self.is_drawn = True
            raise
        self.sent.append(index)
        return index

    def draw_first(self) -> None:
        """Draw what the sampler draws at the epoch's beginning."""
        self.rest = itertools.chain(list(itertools.islice(self.rest, 1)), self.rest)

    def take_back_first(self) -> None:
        """Make the first indices that are owed the next ones to be drawn."""
        self.rest = itertools.chain([self.sent.popleft()], self.rest)

    def take_back(self) -> None:
        """Make all indices that are owed the next ones to be drawn."""
        if self.sent:
            self.is_drawn = False
        self.rest = itertools.chain(list(self.sent), self.rest)
        self.sent.clear()


def last_line(error: Exception) -> str:
    """Return the last line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
