"""Loading in workers: torch's iterator over slots, which can be steered while it runs."""

from __future__ import annotations

import errno
import itertools
import math
import os
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import _remove_worker_pids
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils
from torch.utils.data.dataloader import (
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
)

from fastload.errors import AccessError
from fastload.loader.clock import StepClock
from fastload.loader.device import Arrival, CopiesAhead
from fastload.loader.iterators.start import Start
from fastload.loader.iterators.view import View, arrived, base_seed, finished, profile_name, replay
from fastload.loader.resume import Mark, Progress, start_state
from fastload.loader.times import LoadTimes
from fastload.loader.transport.collate import WorkerCollate, WorkerInit
from fastload.loader.transport.ledger import (
    Sent,
    times_of,
)
from fastload.loader.transport.memory import Arena
from fastload.loader.transport.picklable import sending
from fastload.loader.transport.stateful import Stamped


class WorkersIterator(_MultiProcessingDataLoaderIter):
    """Loads in worker processes, and receives their batches through slots.

    Args:
        loader: The DataLoader.
        start: What it begins with.

    Attributes:
        clock: Of the epoch.
        draws_each_epoch: Whether each epoch draws a seed, also where its workers live on from the one before.
        patience_s: After how many seconds of waiting for a batch to give up; None: never.
    """

    clock: StepClock
    patience_s: float | None

    def __init__(self, loader: Any, start: Start) -> None:
        self._process = os.getpid()
        self.patience_s = None
        # Tasks to have outstanding, once `steer` has said how many.
        self._target: int | None = None
        self._watch = start.watch
        self._due: float = math.inf if start.watch is None else 1
        # As the training process does, a loader that decides by itself draws the order with the first batch.
        self.draws_each_epoch = start.seeds_batches and start.order is None
        self._loader_to_draw: Any = loader if self.draws_each_epoch else None
        start.progress.is_drawn = not self.draws_each_epoch
        self._begin(start.progress)
        device = start.device
        copies_ahead = device is not None and device.type == "cuda"
        arena = Arena.create(start.setting.num_workers, keeps_pages=copies_ahead)
        view = View(loader, start, self)
        self._finish = view.finish
        view.collate_fn = WorkerCollate(view.make, arena, view.stateful)
        view.worker_init_fn = WorkerInit(loader.worker_init_fn, arena)
        # Parcels find it by its token for as long as this iterator lives.
        self._arena = arena
        self._device = device
        self._copies: CopiesAhead | None = None
        self._prefetch_factor = start.setting.prefetch_factor
        self._begin_clock(start.clock, start.setting.num_workers)
        try:
            with sending(loader):
                super().__init__(view)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise AccessError(
                f"num_workers={start.setting.num_workers} needs more open files than this process may have "
                f"({os.strerror(error.errno)}): raise the limit ('ulimit -n 4096'), or say fewer workers"
            ) from error
        finally:
            if arena is not None:
                arena.close_descriptor()
        base_seed(self)
        self._dataset = loader.dataset
        # Of later epochs, where this iterator is persistent: nothing of them has been handed out.
        self._index_sampler = view.sampler_of(loader._index_sampler)
        self._profile_name = profile_name(_MultiProcessingDataLoaderIter)
        replay(self, super()._next_data, start.progress)
        self._is_prefix = self._in_order and self._dataset_kind == _DatasetKind.Map
        if device is not None and copies_ahead:
            if device.index is None:
                device = torch.device("cuda", torch.cuda.current_device())
            iterator = weakref.proxy(self)
            self._copies = CopiesAhead(
                device, lambda: iterator._arrival(), lambda: iterator._is_next_here(), arena
            )

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # A forked child has this iterator too, but neither its workers nor a right to end them. (At the
        # interpreter's end this module's own names are gone, a default is not.)
        if getpid() == self._process:
            super().__del__()

    def begin_epoch(self, loader: Any, start: Start) -> None:
        """Tells a persistent iterator, before its reset, of the next epoch.

        Args:
            loader: The DataLoader.
            start: What the epoch begins with.
        """
        if self._copies is not None:
            self._copies.restart()
        self.clock.settle()
        self._begin_clock(start.clock, self._num_workers)
        self._due = math.inf if self._watch is None else 1
        if self.draws_each_epoch:
            self._loader_to_draw = loader
            start.progress.is_drawn = False
            seeds = loader.generator if start.seeds is None else start.seeds
            start.progress.base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=seeds))
        self._begin(start.progress)

    @property
    def base_seed(self) -> int:
        """What the numbers of its epochs come from."""
        return base_seed(self)

    def draw_first(self) -> None:
        """Makes the sampler draw what it draws at the beginning: where it prefetches at once, it has."""
        if self._loader_to_draw is not None:
            self._loader_to_draw = None
            for _ in range(self._prefetch_factor * self._num_workers):
                self._try_put_index()

    def steer(self, num_workers: int, prefetch_factor: int) -> None:
        """Goes on with the first few of the workers alone, and another number of batches in advance.

        Args:
            num_workers: How many of the workers get batches to make, at most all. The others rest.
            prefetch_factor: Batches asked of each of them in advance.
        """
        self._worker_queue_idx_cycle = itertools.cycle(range(num_workers))
        self.clock.num_workers = num_workers
        self.ask_ahead(prefetch_factor)

    def ask_ahead(self, prefetch_factor: int) -> None:
        """Goes on with another number of batches in advance; which worker makes which batch stays the same.

        Args:
            prefetch_factor: Batches asked of each of the workers in use.
        """
        self._prefetch_factor = self.clock.prefetch_factor = prefetch_factor
        self._target = self.clock.num_workers * prefetch_factor
        self._try_put_index()

    def go_on_with(self, order: Iterator[Any]) -> None:
        """Takes what comes next from an order that others have begun.

        Args:
            order: The rest of it.
        """
        self._sampler_iter = map(Sent, order)

    def notice_deaths_while_waiting(self) -> None:
        """Lets a worker's death be noticed where batches are waited for, and nowhere else.

        torch's handler of SIGCHLD raises it wherever the training happens to be, which nobody there expects
        who has asked for no workers. While batches are waited for, torch looks every five seconds besides.
        """
        if self._worker_pids_set:
            _remove_worker_pids(id(self))
            self._worker_pids_set = False

    def end_soon(self) -> None:
        """Asks the workers for nothing more: what they have been asked for is the rest of this iteration."""
        self._sampler_iter = iter(())

    def _begin(self, progress: Progress) -> None:
        self._progress = progress
        self._batches = 0
        self._turns_to_skip = progress.next_worker

    def _begin_clock(self, clock: StepClock, num_workers: int) -> None:
        self.clock = clock
        arena = self._arena
        if arena is None:
            clock.begin(num_workers, self._prefetch_factor, None)
            return
        # The clock outlives this iterator, and must not keep the slots.
        reference, before = weakref.ref(arena), arena.ledgers.copy()

        def loading() -> tuple[LoadTimes, ...]:
            arena = reference()
            return () if arena is None else times_of(arena.ledgers - before)

        clock.begin(num_workers, self._prefetch_factor, loading)

    def _shutdown_workers(self) -> None:
        # While Python shuts down nobody will ask any more, and what would be called may be gone.
        if _utils is not None and _utils.python_exit_status is False:
            self.clock.settle()
        super()._shutdown_workers()

    def _try_put_index(self) -> None:
        if self._loader_to_draw is not None:
            return
        if self._turns_to_skip:
            # After a resume the first turn is that of the worker whose batch would have been next.
            for _ in range(self._turns_to_skip):
                next(self._worker_queue_idx_cycle)
            self._turns_to_skip = 0
        if self._target is None:
            super()._try_put_index()
            return
        while self._tasks_outstanding < self._target:
            sent = self._send_idx
            super()._try_put_index()
            if self._send_idx == sent:
                return

    def _get_data(self) -> Any:
        if self.patience_s is None:
            return super()._get_data()
        end_s = time.perf_counter() + self.patience_s
        while time.perf_counter() < end_s:
            # Waits for a few seconds, and raises if a worker has died.
            is_here, data = self._try_get_data()
            if is_here:
                return data
        for process in self._workers:
            # Each would be waited for at the end, and none comes.
            process.kill()
        raise RuntimeError(f"no worker has sent a batch for {self.patience_s:.0f} s")

    def _next_data(self) -> Any:
        self.clock.ask()
        if self._loader_to_draw is not None:
            self._progress.note_draw(start_state(self._loader_to_draw))
            self.draw_first()
        if self.clock.batches >= self._due and self._watch is not None:
            self._due = self._watch(self)
        batch = self._next_batch()
        self.clock.hand(batch)
        return batch

    def _next_batch(self) -> Any:
        if self._copies is not None:
            return finished(self._next_copy(self._copies), self._finish)
        try:
            batch = super()._next_data()
        except Exception as error:
            self._progress.note(self._mark())
            self._progress.is_finished = isinstance(error, StopIteration)
            _break_cycle(error)
            raise
        if self._is_prefix:
            # All that a mark would say, in the time that it takes to make one (1 µs).
            self._progress.done = self._rcvd_idx
        else:
            self._progress.note(self._mark(batch))
            batch = batch.batch if type(batch) is Stamped else batch
        return batch if self._device is None else arrived(batch, self._device, self._finish, self.clock)

    def _next_copy(self, copies: CopiesAhead) -> Any:
        arrival = copies.next()
        self._progress.note(arrival.mark)
        if arrival.error is None:
            return arrival.batch
        self._progress.is_finished = isinstance(arrival.error, StopIteration)
        try:
            raise arrival.error
        finally:
            # The error's traceback refers to this frame.
            del arrival

    def _arrival(self) -> Arrival:
        """The next batch in the CPU's memory, or what came in its place."""
        try:
            batch = super()._next_data()
        except Exception as error:
            _break_cycle(error)
            return Arrival(self._mark(), error=error)
        mark = self._mark(batch)
        return Arrival(mark, batch.batch if type(batch) is Stamped else batch)

    def _mark(self, batch: Any = None) -> Mark:
        """How far this iterator has come with a batch, or with the error in its place."""
        if self._dataset_kind == _DatasetKind.Iterable:
            self._batches += batch is not None
            if type(batch) is Stamped:
                return Mark(self._batches, (), batch.worker, batch.state)
            return Mark(self._batches)
        if self._in_order:
            return Mark(self._rcvd_idx)
        lowest = min(self._task_info, default=self._send_idx)
        beyond = (task for task in range(lowest, self._send_idx) if task not in self._task_info)
        return Mark(lowest, tuple(beyond))

    def _is_next_here(self) -> bool:
        """Whether the next batch has arrived, after taking in what has."""
        while self._dataset_kind == _DatasetKind.Map and self._in_order:
            if len(self._task_info.get(self._rcvd_idx, ())) == 2:
                return True
            if self._data_queue.empty():
                return False
            task, data = self._get_data()
            self._tasks_outstanding -= 1
            self._task_info[task] += (data,)
        if self._in_order and self._num_workers > 1:
            # Of several iterable datasets, what has arrived may be another worker's, or its end.
            return len(self._task_info.get(self._rcvd_idx, ())) == 2
        return not self._data_queue.empty()


def _break_cycle(error: Exception) -> None:
    """Lets an iterator go as soon as its error has been dealt with.

    torch keeps a worker's exception in a variable of the frame that raises it: a cycle in which the
    iterator, and with it its workers, would wait for the garbage collector.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1].f_code is ExceptionWrapper.reraise.__code__:
        frames[-1].clear()
