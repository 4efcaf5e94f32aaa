"""Multi-process iterator over shared-memory slots, whose number of workers can change while it runs."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fastload.errors import AccessError
from fastload.loader import torch_private
from fastload.loader.arguments import LoaderView
from fastload.loader.clock import LoadTimes, StepClock, load_times
from fastload.loader.device import Arrival, CopiesAhead
from fastload.loader.iterators.base import BeginsEpochs, EpochIterator, EpochStart, TorchView
from fastload.loader.resume.dataset_states import BatchWithState, EndWithState
from fastload.loader.resume.drawing import start_state
from fastload.loader.resume.progress import Position, Progress
from fastload.loader.transport.making import WorkerCollate
from fastload.loader.transport.memory import Arena
from fastload.loader.transport.picklable import naming_unpicklable_parts, start_failure

# Interval at which dead workers are looked for while a batch is awaited; torch does so every 5 s.
_CHECK_S = 1.0


class WorkersIterator(EpochIterator, torch_private.MultiProcessBase):
    """Loads batches in worker processes, and receives them through slots.

    Attributes:
        draws_each_epoch: True if the order of each epoch is drawn with its first batch.
    """

    _sampler_iter: Iterator[object]
    _worker_pids_set: bool

    def __init__(self, view: LoaderView, start: EpochStart) -> None:
        self._process = os.getpid()
        self._is_iterable = view.is_iterable
        self._patience_s: float | None = None
        # The number of tasks to keep outstanding; None: as in torch. With another iterator's order, workers
        # get tasks only after `use_workers`.
        self._target: int | None = None if start.order is None else 0
        self._choose_prefetch = start.choose_prefetch
        # As without workers, the order of a tuned loader is drawn with the first batch.
        self.draws_each_epoch = start.seeds_batches and start.order is None
        self._begin(view, start.progress)
        options, self._device = start.options, view.device
        copies_ahead = self._device is not None and self._device.type == "cuda"
        # Batches find this memory by its token as long as this iterator exists.
        self._arena = arena = Arena.create(options.num_workers, keeps_pages=copies_ahead)
        torch_view = TorchView(view, start, self)
        self._finish = torch_view.finish
        collate = WorkerCollate(torch_view.make, arena, torch_view.stateful, view.worker_init_fn)
        torch_view.collate_fn, torch_view.worker_init_fn = collate, collate.begin_worker
        self._prefetch_factor = options.prefetch_factor
        self.begin_clock(start.clock, options.num_workers)
        try:
            with naming_unpicklable_parts(view):
                super().__init__(torch_view)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise AccessError(
                f"num_workers={options.num_workers} needs more open files than this process may have "
                f"({os.strerror(error.errno)}): raise the limit ('ulimit -n 65536'), or use fewer workers"
            ) from error
        finally:
            if arena is not None:
                arena.close_descriptor()
        self.base_seed()
        self._dataset = view.dataset
        # For later epochs, if this iterator is persistent: none of their batches has been handed out.
        self._index_sampler = torch_view.order
        self._profile_name = f"enumerate(DataLoader)#{torch_private.MultiProcessBase.__name__}.__next__"
        self._replay(view.is_iterable, super()._next_data)
        self._is_stateful = torch_view.stateful is not None
        self._is_ordered = self._in_order and not (view.is_iterable or self._is_stateful)
        self._copies: CopiesAhead | None = None
        if copies_ahead and self._device is not None:
            this = weakref.proxy(self)
            self._copies = CopiesAhead(
                self._device, lambda: this._arrival(), lambda: this._is_next_here(), arena
            )

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # A forked child has a copy of this iterator, but must not end its parent's workers. (The module's
        # names may be gone while Python shuts down; a default argument is not.)
        if getpid() == self._process:
            super().__del__()

    def _reset(self, loader: BeginsEpochs, first_iter: bool = False) -> None:
        if first_iter:
            super()._reset(loader, first_iter)
            return
        # torch's `__iter__` calls this for persistent workers; each later epoch begins here.
        with loader.beginning_epoch() as (view, start):
            self._begin_later(view, start)
            super()._reset(loader)
            if start.draws_first:
                self.draw_first()

    def _begin_later(self, view: LoaderView, start: EpochStart) -> None:
        if self._copies is not None:
            self._copies.restart()
        self.clock.settle()
        self.begin_clock(start.clock, self._num_workers)
        self._begin(view, start.progress)
        if start.progress.seeds.base is None:
            seeds = view.generator if start.worker_seeds is None else start.worker_seeds
            start.progress.seeds.base_or(int(torch.empty((), dtype=torch.int64).random_(generator=seeds)))

    @property
    def num_workers(self) -> int:
        """The number of workers that were started."""
        return int(self._num_workers)

    @property
    def received(self) -> int:
        """Number of this iterator's tasks whose batches have been handed out, in order."""
        return int(self._rcvd_idx)

    def draw_first(self) -> None:
        """Let the sampler draw its random numbers now, unless prefetching has done so."""
        if not self.progress.seeds.is_drawn:
            self.progress.seeds.note_draw(self._view)
            for _ in range(self._prefetch_factor * self._num_workers):
                self._try_put_index()

    def use_workers(self, num_workers: int, prefetch_factor: int) -> None:
        """Continue with only the first `num_workers` workers, and another prefetch factor."""
        self._worker_queue_idx_cycle = itertools.cycle(range(num_workers))
        self.clock.num_workers = num_workers
        self.set_prefetch_factor(prefetch_factor)

    def set_prefetch_factor(self, prefetch_factor: int) -> None:
        """Continue with another prefetch factor; each batch is still made by the same worker."""
        self._prefetch_factor = prefetch_factor
        if prefetch_factor:  # 0: the workers will be idle, and the clock still shows the batches before
            self.clock.prefetch_factor = prefetch_factor
        self._target = self.clock.num_workers * prefetch_factor
        self._try_put_index()

    def notice_failures_while_waiting(self, patience_s: float) -> None:
        """Raise an error for dead workers, or stuck ones, only while waiting for a batch.

        torch's SIGCHLD handler would raise it anywhere in the training, a surprise for users who asked for no
        workers. Without a batch for `patience_s` seconds, they are stuck.
        """
        self._patience_s = patience_s
        if self._worker_pids_set:
            torch_private.remove_worker_pids(id(self))
            self._worker_pids_set = False

    def _begin(self, view: LoaderView, progress: Progress) -> None:
        self._view, self.progress = view, progress
        if self.draws_each_epoch:
            progress.seeds.draw_later()
        elif not progress.seeds.start:
            progress.seeds.begin_draw(start_state(view))
        self._batches = 0
        self._turns_to_skip = progress.dataset.next_worker

    def begin_clock(self, clock: StepClock, num_workers: int) -> None:
        """Make a clock record this number of workers, and the load times of batches from now on."""
        self.clock = clock
        arena = self._arena
        if arena is None:
            clock.begin(num_workers, self._prefetch_factor, None)
            return
        # The clock outlives this iterator, and must not keep its slots alive.
        reference, before = weakref.ref(arena), arena.worker_stats.copy()

        def loading() -> tuple[LoadTimes, ...]:
            arena = reference()
            return () if arena is None else load_times(arena.worker_stats - before)

        clock.begin(num_workers, self._prefetch_factor, loading)

    def end_workers(self) -> None:
        """End the workers; batches that they have not handed out are lost."""
        self._shutdown_workers()

    def _shutdown_workers(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # While Python shuts down, nothing reads the clock, and modules may be gone.
        if not is_finalizing():
            self.clock.settle()
        super()._shutdown_workers()

    def _try_put_index(self) -> None:
        if not self.progress.seeds.is_drawn:
            return
        # After a resume, the worker whose batch would have been next has the first turn.
        while self._turns_to_skip:
            self._turns_to_skip -= 1
            next(self._worker_queue_idx_cycle)
        if self._target is None:
            super()._try_put_index()
            return
        while self._tasks_outstanding < self._target:
            sent = self._send_idx
            super()._try_put_index()
            if self._send_idx == sent:
                return

    def _get_data(self) -> Any:
        if self._patience_s is None:
            task, data = super()._get_data()
            if isinstance(data, EndWithState) and self._persistent_workers:
                self.progress.dataset.ends[data.worker_id] = data.state
            return task, data
        end_s = time.perf_counter() + self._patience_s
        while time.perf_counter() < end_s:
            # Raises if a worker has died.
            is_here, data = self._try_get_data(_CHECK_S)
            if is_here:
                return data
        for process in self._workers:
            # When it ends the workers, torch would wait for each of them until a timeout.
            process.kill()
        raise RuntimeError(f"no worker has sent a batch for {self._patience_s:.0f} s")

    def _next_data(self) -> Any:
        self.clock.ask()
        if not self.progress.seeds.is_drawn:
            self.draw_first()
        if self._choose_prefetch is not None and self.clock.batches:
            self.set_prefetch_factor(self._choose_prefetch(self.clock))
            self._choose_prefetch = None
        batch = self.next_batch()
        self.clock.hand(batch)
        return batch

    def next_batch(self) -> object:
        """Return the next batch, on its device; like `_next_data`, but for the clock."""
        arrival = self._arrival() if self._copies is None else self._copies.next()
        self.progress.note(arrival.position)
        if arrival.error is None:
            if self._copies is not None:
                return self._finished(arrival.batch)
            return arrival.batch if self._device is None else self._moved_to(self._device, arrival.batch)
        if isinstance(arrival.error, StopIteration):
            self.progress.finish()
        if self._persistent_workers and not self._is_iterable:
            self.progress.dataset.note_end()
        try:
            raise arrival.error
        finally:
            # The error's traceback refers to this frame.
            del arrival

    def _arrival(self) -> Arrival:
        try:
            batch = super()._next_data()
        except Exception as error:
            _break_cycle(error)
            return Arrival(self._position(), error=start_failure(error, self._view))
        position = self._position(batch)
        return Arrival(position, batch.batch if type(batch) is BatchWithState else batch)

    def _position(self, batch: object = None) -> Position:
        """Return the position after a batch, or after the error in its place (None)."""
        worker, state = -1, None
        if type(batch) is BatchWithState:
            worker, state = batch.worker, batch.state
        if self._is_iterable:
            self._batches += batch is not None
            return Position(self._batches, (), worker, state)
        if self._in_order:
            if self._is_stateful:
                # Workers take turns; the one that raised an error had its turn, too.
                worker = (self.progress.dataset.next_worker + self._rcvd_idx - 1) % self._num_workers
            return Position(self._rcvd_idx, (), worker, state)
        lowest = min(self._task_info, default=self._send_idx)
        beyond = (task for task in range(lowest, self._send_idx) if task not in self._task_info)
        return Position(lowest, tuple(beyond), worker, state)

    def _is_next_here(self) -> bool:
        # First, all batches that have arrived are received.
        while self._is_ordered:
            if len(self._task_info.get(self._rcvd_idx, ())) == 2:
                return True
            if self._data_queue.empty():
                return False
            task, data = self._get_data()
            self._tasks_outstanding -= 1
            self._task_info[task] += (data,)
        if self._in_order and self._num_workers > 1:
            # With iterable datasets, the batch or end that has arrived may be another worker's.
            return len(self._task_info.get(self._rcvd_idx, ())) == 2
        return not self._data_queue.empty()


def _break_cycle(error: Exception) -> None:
    """Remove an error's reference cycle, so that its iterator is freed once the error is handled.

    torch keeps a worker's exception in a variable of the frame that raises it. That is a cycle in which the
    iterator, and with it its workers, would wait for the garbage collector.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1].f_code is torch_private.reraise.__code__:
        frames[-1].clear()
