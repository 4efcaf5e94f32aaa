"""The loader's iterators: torch's own, over slots, with a record of how far they have come.

torch's iterators keep all that they do: starting, watching and ending workers, order, signals, exceptions,
timeouts, pinning. They are given a view of the loader in which a few settings are replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset, IterDataPipe, _utils
from torch.utils.data._utils.collate import default_collate
from torch.utils.data.dataloader import (
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from fastload.clock import StepClock
from fastload.device import Arrival, CopiesAhead, moved_to
from fastload.resume import TRANSFORMS, Mark, Progress, SkippingSampler, mixed, start_state
from fastload.timing import LoadTimes
from fastload.transport.collate import WorkerCollate, WorkerInit
from fastload.transport.filling import (
    BatchMaker,
    OrdinaryMemory,
    SeededDataset,
    SeededSampler,
    draws_by_seed,
    fills_batches,
    innermost,
    prefetcher,
)
from fastload.transport.ledger import (
    FIELDS,
    WORTH_ASKING_S,
    Ledger,
    SendingSampler,
    Sent,
    samples_in,
    times_of,
)
from fastload.transport.memory import Arena
from fastload.transport.stateful import Stamped, StatefulIterable


class Setting(NamedTuple):
    """How batches are loaded: the parameters of torch's DataLoader that change speed alone.

    Attributes:
        num_workers: Worker processes; 0: the training process loads.
        prefetch_factor: Batches asked of each worker in advance; None without workers.
        pin_memory: Whether batches are copied to page-locked memory.
        persistent_workers: Whether workers live on from epoch to epoch.
    """

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool = False
    persistent_workers: bool = False


class Start(NamedTuple):
    """What an iterator begins with.

    Attributes:
        progress: Where in the epoch; kept up to date.
        device: Where batches are moved to, if anywhere.
        seeds: What the workers' seeds are drawn from, where it is not the loader's generator.
        clock: Stops the time of waits and steps.
        setting: How batches are loaded.
        order: The rest of the epoch's order, where another iterator has begun it.
    """

    progress: Progress
    device: torch.device | None
    seeds: torch.Generator | None
    clock: StepClock
    setting: Setting
    order: Iterator[Any] | None = None


class SingleProcessIterator(_SingleProcessDataLoaderIter):
    """Loads in the training process.

    Args:
        loader: The DataLoader.
        start: What it begins with.
    """

    def __init__(self, loader: Any, start: Start) -> None:
        self._progress = start.progress
        self._device = start.device
        view = _View(loader, start, self)
        self._stateful = view.stateful
        self._finish = view.finish
        sums = np.zeros(FIELDS)
        self._ledger = Ledger(sums)
        self._clock = start.clock
        self._loading = _LoadingAlone(start.clock, sums)
        self._clock.begin(0, None, self._loading)
        view.collate_fn = _NotedCollate(view.make, self._ledger)
        super().__init__(view)
        if view.is_seeded:
            transform_seed(self)
        self._dataset = loader.dataset
        self._loader_to_draw: Any = loader
        self._profile_name = _profile_name(_SingleProcessDataLoaderIter)
        _replay(self, super()._next_data, start.progress)
        start.progress.done = 0

    def draw_first(self) -> None:
        """Makes the sampler draw what it draws at the epoch's beginning."""
        self._loader_to_draw = None
        first = list(itertools.islice(self._sampler_iter, 1))
        self._sampler_iter = itertools.chain(first, self._sampler_iter)

    def _next_data(self) -> Any:
        self._clock.ask()
        batch = self._next_batch()
        self._clock.hand(batch)
        return batch

    def _next_batch(self) -> Any:
        if 0.0 < self._clock.latest_wait_s < WORTH_ASKING_S:
            return self._made()
        ledger = self._ledger
        ledger.begin()
        batch = self._made()
        ledger.end()
        return batch

    def _made(self) -> Any:
        if self._loader_to_draw is not None:
            # Only now is the order drawn, and others may have drawn since the epoch began.
            self._progress.note_draw(start_state(self._loader_to_draw))
            self._loader_to_draw = None
        try:
            batch = super()._next_data()
        except StopIteration:
            self._progress.is_finished = True
            raise
        except Exception:
            self._progress.done += 1
            raise
        self._progress.done += 1
        if self._stateful is not None:
            self._progress.note(Mark(self._progress.done, (), 0, self._stateful.state() or None))
        return batch if self._device is None else _arrived(batch, self._device, self._finish, self._clock)


class WorkersIterator(_MultiProcessingDataLoaderIter):
    """Loads in worker processes, and receives their batches through slots.

    Args:
        loader: The DataLoader.
        start: What it begins with.
    """

    def __init__(self, loader: Any, start: Start) -> None:
        self._process = os.getpid()
        # Tasks to have outstanding, once `steer` has said how many.
        self._target: int | None = None
        self._begin(start.progress)
        device = start.device
        copies_ahead = device is not None and device.type == "cuda"
        arena = Arena.create(start.setting.num_workers, keeps_pages=copies_ahead)
        view = _View(loader, start, self)
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
            super().__init__(view)
        finally:
            if arena is not None:
                arena.close_descriptor()
        self._dataset = loader.dataset
        # Of later epochs, where this iterator is persistent: nothing of them has been handed out.
        self._index_sampler = view.sampler_of(loader._index_sampler)
        self._profile_name = _profile_name(_MultiProcessingDataLoaderIter)
        _replay(self, super()._next_data, start.progress)
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

    def begin_epoch(self, progress: Progress, clock: StepClock) -> None:
        """Tells a persistent iterator, before its reset, what the next epoch's progress is kept in."""
        if self._copies is not None:
            self._copies.restart()
        self._clock.settle()
        self._begin_clock(clock, self._num_workers)
        self._begin(progress)

    def draw_first(self) -> None:
        """Makes the sampler draw what it draws at the beginning: prefetching has done so."""

    def steer(self, num_workers: int, prefetch_factor: int) -> None:
        """Goes on with the first few of the workers alone, and another number of batches in advance.

        Args:
            num_workers: How many of the workers get batches to make, at most all. The others rest.
            prefetch_factor: Batches asked of each of them in advance.
        """
        self._worker_queue_idx_cycle = itertools.cycle(range(num_workers))
        self._prefetch_factor = prefetch_factor
        self._target = num_workers * prefetch_factor
        self._clock.num_workers, self._clock.prefetch_factor = num_workers, prefetch_factor
        self._try_put_index()

    def go_on_with(self, order: Iterator[Any]) -> None:
        """Takes what comes next from an order that others have begun.

        Args:
            order: The rest of it.
        """
        self._sampler_iter = map(Sent, order)

    def end_soon(self) -> None:
        """Asks the workers for nothing more: what they have been asked for is the rest of this iteration."""
        self._sampler_iter = iter(())

    def _begin(self, progress: Progress) -> None:
        self._progress = progress
        self._batches = 0
        self._turns_to_skip = progress.next_worker

    def _begin_clock(self, clock: StepClock, num_workers: int) -> None:
        self._clock = clock
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
            self._clock.settle()
        super()._shutdown_workers()

    def _try_put_index(self) -> None:
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

    def _next_data(self) -> Any:
        self._clock.ask()
        batch = self._next_batch()
        self._clock.hand(batch)
        return batch

    def _next_batch(self) -> Any:
        if self._copies is not None:
            return _finished(self._next_copy(self._copies), self._finish)
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
        return batch if self._device is None else _arrived(batch, self._device, self._finish, self._clock)

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


class _View:
    """A loader in which some settings are replaced for torch's iterators to read.

    Attributes:
        make: What makes a batch of what is fetched.
        stateful: What stands for an iterable dataset, None for another one.
        finish: What is done to a batch on its device, if anything.
        is_seeded: Whether the dataset's transforms draw from the epoch's seed.
    """

    collate_fn: Any
    worker_init_fn: Any

    def __init__(self, loader: Any, start: Start, iterator: Any) -> None:
        self._loader = loader
        self._iterator = weakref.ref(iterator)
        progress = start.progress
        # In the place of the loader's own.
        self.num_workers, self.prefetch_factor, self.pin_memory, self.persistent_workers = start.setting
        self.make = _maker(loader, start.device)
        self.finish = innermost(loader.dataset, "finish") if self.make.finishes_on_device else None
        self.stateful = _stateful(loader, progress)
        self.is_seeded = self.stateful is None and draws_by_seed(loader.dataset)
        sampler = loader._index_sampler
        self._is_sent = start.setting.num_workers > 0
        if self.stateful is not None:
            self.dataset: Any = self.stateful
        elif self.is_seeded:
            self.dataset = SeededDataset(loader.dataset, self.make.fills)
        if start.order is not None:
            # Whoever goes on with an order that others have begun counts batches in it.
            self.in_order = True
            self._index_sampler = self._sent(_Rest(start.order))
        else:
            if self.stateful is None and (progress.first or progress.skipped):
                sampler = SkippingSampler(sampler, progress)
            self._index_sampler = self.sampler_of(sampler)
        if start.seeds is not None:
            self.generator = start.seeds

    def sampler_of(self, sampler: Any) -> Any:
        """An index sampler that also says what transforms draw from, where the dataset's do."""
        if not self.is_seeded:
            return self._sent(sampler)
        iterator = self._iterator
        prefetch = prefetcher(self._loader.dataset) if self._loader._auto_collation else None
        return self._sent(SeededSampler(sampler, lambda: transform_seed(iterator()), prefetch))

    def _sent(self, sampler: Any) -> Any:
        return SendingSampler(sampler) if self._is_sent else sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _LoadingAlone:
    """What making batches takes the training process: all that it waits for them.

    Args:
        clock: The epoch's.
        sums: A ledger of those batches that took long; of the others, all counts as CPU time.
    """

    def __init__(self, clock: StepClock, sums: NDArray[np.float64]) -> None:
        self._clock = clock
        self._sums = sums
        self.begin()

    def begin(self) -> None:
        """Leaves out what has been waited for until now: others made it."""
        self._batches, self._waited_s = self._clock.batches, self._clock.waited_s
        self._sums[:] = 0

    def __call__(self) -> tuple[LoadTimes, ...]:
        [long] = times_of(self._sums[None])
        batches = self._clock.batches - self._batches
        waited_s = self._clock.waited_s - self._waited_s
        cpu_s = max(0.0, waited_s - long.busy_s) + long.cpu_s
        samples = batches * self._clock.batch_size
        return (LoadTimes(batches, samples, waited_s, cpu_s, long.delayed_s, long.collate_s),)


class _Rest:
    """The rest of an order that others draw from too: iterating it goes on, and does not begin anew."""

    def __init__(self, order: Iterator[Any]) -> None:
        self._order = order

    def __iter__(self) -> Iterator[Any]:
        return self._order


class _NotedCollate:
    """A `collate_fn` of the training process, which notes when it is called, and with how much.

    Args:
        make: Makes a batch of what was fetched.
        ledger: Where that is noted.
    """

    def __init__(self, make: BatchMaker, ledger: Ledger) -> None:
        self._make = make
        self._ledger = ledger
        self._memory = OrdinaryMemory(make.finishes_on_device)

    def __call__(self, fetched: Any) -> Any:
        self._ledger.fetched(samples_in(fetched))
        return self._make(fetched, self._memory)


def transform_seed(iterator: Any) -> int:
    """What an epoch's transforms draw from: the loader's seed, else the one that the workers' come from."""
    progress = iterator._progress
    if progress.transform_seed is None:
        progress.transform_seed = mixed(iterator._base_seed, progress.epoch, TRANSFORMS)
    seed: int = progress.transform_seed
    return seed


def _arrived(batch: Any, device: torch.device, finish: Callable[[Any], Any] | None, clock: StepClock) -> Any:
    """A batch on its device, finished there."""
    begun = time.perf_counter()
    batch = moved_to(batch, device)
    clock.copying_s += time.perf_counter() - begun
    return _finished(batch, finish)


def _finished(batch: Any, finish: Callable[[Any], Any] | None) -> Any:
    """A batch of images and targets after what is left to be done on its device."""
    if finish is not None and type(batch) is list and len(batch) == 2:
        batch[0] = finish(batch[0])
    return batch


def _maker(loader: Any, device: torch.device | None) -> BatchMaker:
    collates_by_default = loader.collate_fn is default_collate and loader._auto_collation
    is_filled = collates_by_default and fills_batches(loader.dataset)
    has_finish = device is not None and is_filled and innermost(loader.dataset, "finish") is not None
    return BatchMaker(loader.collate_fn, loader.dataset if is_filled else None, has_finish)


def _stateful(loader: Any, progress: Progress) -> StatefulIterable | None:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) and not isinstance(dataset, IterDataPipe):
        return StatefulIterable(dataset, progress.workers)
    return None


def _replay(iterator: Any, next_data: Callable[[], Any], progress: Progress) -> None:
    """Brings a new iterator to where an epoch was left, if its sampler has not done so."""
    iterator._num_yielded = progress.first
    if iterator._dataset_kind == _DatasetKind.Iterable and not progress.workers:
        # A dataset that cannot tell where it is begins anew: what has been handed out is loaded again.
        with contextlib.suppress(StopIteration):
            for _ in range(progress.first):
                next_data()


def _profile_name(torchs: type) -> str:
    """The name under which torch's profiler lists an iterator: that of torch's own class."""
    return f"enumerate(DataLoader)#{torchs.__name__}.__next__"


def _break_cycle(error: Exception) -> None:
    """Lets an iterator go as soon as its error has been dealt with.

    torch keeps a worker's exception in a variable of the frame that raises it: a cycle in which the
    iterator, and with it its workers, would wait for the garbage collector.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1].f_code is ExceptionWrapper.reraise.__code__:
        frames[-1].clear()
