"""The single-process iterator, and what the iterators share: a base, and the view that torch reads."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch.utils.data import IterDataPipe, TensorDataset, default_collate, default_convert

from fastload.contracts import DrawsFromEpochSeed, FinishesBatches, implements
from fastload.datasets.batch import HostMemory
from fastload.loader import torch_private
from fastload.loader.arguments import LoaderView, WorkerOptions
from fastload.loader.clock import STAT_COUNT, StatsRecorder, StepClock, count_samples, load_times
from fastload.loader.device import moved_to
from fastload.loader.iterators.order import BatchOrder
from fastload.loader.resume.dataset_states import StatefulIterable, WorkerCopy, is_stateful
from fastload.loader.resume.drawing import (
    WORKERS,
    derived_seed,
)
from fastload.loader.resume.progress import Progress
from fastload.loader.transport.making import (
    BatchMaker,
    SampleSource,
    can_fill_batches,
    innermost,
    makes_batches,
)
from fastload.loader.transport.seeding import SeedingFetcher, StoredFetcher

_NO_WORKERS = WorkerOptions()


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The input of an epoch's iterator: the loader sets the first four fields, its strategy the others.

    Attributes:
        progress: The epoch's progress, which the iterator keeps up to date.
        clock: The epoch's clock.
        worker_seeds: Source of the workers' seeds; None: the loader's generator.
        draws_first: True if the order has to be drawn at once, from random states that are set only now.
        order: The rest of the epoch's order, if another iterator has begun it.
        seeds_batches: True if random numbers are seeded per batch, so that all processes draw the same.
        choose_prefetch: Returns the prefetch factor of workers, from the times of their first batch.
    """

    progress: Progress
    clock: StepClock
    worker_seeds: torch.Generator | None
    draws_first: bool = False
    options: WorkerOptions = _NO_WORKERS
    order: Iterator[object] | None = None
    seeds_batches: bool = False
    choose_prefetch: Callable[[StepClock], int] | None = None


class BeginsEpochs(Protocol):
    """A loader, as its persistent iterator sees it."""

    def beginning_epoch(self) -> contextlib.AbstractContextManager[tuple[LoaderView, EpochStart]]:
        """Begin an epoch: its iterator is reset in the block."""


class EpochIterator:
    """Iterator of an epoch: the part that the loader's two iterators have in common."""

    clock: StepClock
    _base_seed: Any
    _drawn_seed: int
    _device: torch.device | None
    _finish: Callable[[torch.Tensor], object] | None
    _num_yielded: int
    progress: Progress

    def draw_first(self) -> None:
        """Let the sampler draw its random numbers now, at the beginning of the epoch."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        @property
        def _base_seed(self) -> int:
            """The base seed of this rank's workers, which torch sets to the number that it draws."""
            progress, drawn = self.progress, self._drawn_seed
            stream = progress.seeds.stream
            return derived_seed(drawn, progress.epoch, WORKERS, stream) if stream else drawn

        @_base_seed.setter
        def _base_seed(self, drawn: int) -> None:
            self._drawn_seed = drawn

    def base_seed(self) -> int:
        """Return the epoch's base seed, the same on all ranks; persistent workers keep the first epoch's."""
        return self.progress.seeds.base_or(self._drawn_seed)

    def epoch_seed(self) -> int:
        """Return the seed of the epoch's batches."""
        return self.progress.epoch_seed(self._drawn_seed)

    def _finished(self, batch: object) -> object:
        """Return a batch after the dataset's last step, which is made on the batch's device."""
        if self._finish is not None and type(batch) is list and batch and isinstance(batch[0], torch.Tensor):
            batch[0] = self._finish(batch[0])
        return batch

    def _moved_to(self, device: torch.device, batch: object) -> object:
        """Return a batch moved to a device, after the dataset's last step there."""
        begun = time.perf_counter()
        batch = moved_to(batch, device)
        self.clock.copying_s += time.perf_counter() - begun
        return self._finished(batch)

    def _replay(self, is_iterable: bool, next_data: Callable[[], object]) -> None:
        """Continue at the position where the epoch was left, if the sampler has not done so."""
        progress = self.progress
        self._num_yielded = progress.handed.first
        if is_iterable and not progress.dataset.workers:
            # A dataset without a state starts from its beginning: batches are loaded again, and discarded.
            with contextlib.suppress(StopIteration):
                for _ in range(progress.handed.first):
                    next_data()


class TorchView:
    """The loader that torch's iterators read: a view with some settings replaced, under torch's names.

    Attributes:
        make: Makes a batch of fetched samples or indices.
        stateful: The state of an iterable dataset, or of a map-style one that workers load; None: none.
        finish: The dataset's last step, for a batch that has been moved to its device; None if it has none.
        order: Order of the epoch's remaining batches, and of all batches of later epochs.
        is_stored: True if the dataset only returns stored tensors, and default_collate stacks them.
        draws_nothing: True if making a batch is known not to use the global generators.
    """

    def __init__(self, view: LoaderView, start: EpochStart, iterator: EpochIterator) -> None:
        vars(self).update(view.attributes)
        options, dataset = start.options, view.dataset
        inner, _ = innermost(dataset)
        has_own_collate = view.is_batched and view.collate_fn is not default_collate
        fills = view.is_batched and not has_own_collate and can_fill_batches(dataset)
        may_finish = fills and view.device is not None
        self.finish = inner.finish if may_finish and implements(inner, FinishesBatches.finish) else None
        fetched = dataset if fills else None
        self.make = BatchMaker(view.collate_fn, view.is_batched, fetched, self.finish is not None)
        self.stateful: StatefulIterable | WorkerCopy | None = None
        if view.is_iterable and not isinstance(dataset, IterDataPipe):
            dataset = self.stateful = StatefulIterable(
                dataset, start.progress.dataset.workers, start.progress.dataset.is_restored
            )
        calls_no_code = view.collate_fn in (default_collate, default_convert)
        returns_stored = type(inner) is TensorDataset and all(
            type(each) is torch.Tensor for each in inner.tensors
        )
        self.is_stored = calls_no_code and returns_stored
        if not (view.is_iterable or self.is_stored):
            if options.num_workers and not start.seeds_batches and is_stateful(dataset):
                self.stateful = WorkerCopy(dataset, start.progress.dataset.workers)
            dataset = SampleSource(dataset, fills)
        self.draws_nothing = self.is_stored or (
            calls_no_code
            and makes_batches(inner)
            and isinstance(inner, DrawsFromEpochSeed)
            and inner.draws_from_epoch_seed_only
        )
        self.num_workers, self.prefetch_factor = options.num_workers, options.prefetch_factor
        self.pin_memory, self.persistent_workers = options.pin_memory, options.persistent_workers
        self.dataset = dataset
        self.collate_fn: Callable[..., object] = view.collate_fn
        self.worker_init_fn = view.worker_init_fn
        self.multiprocessing_context = view.multiprocessing_context
        self.generator = view.generator if start.worker_seeds is None else start.worker_seeds
        # A shared order requires it, because batches are counted, and no decision may change their order.
        self.in_order = view.in_order or start.seeds_batches or start.order is not None
        self._auto_collation = view.is_batched
        this = weakref.proxy(iterator)
        in_flight = max(1, options.num_workers * (options.prefetch_factor or 1))
        self.order = BatchOrder(
            view,
            start.seeds_batches,
            self.draws_nothing,
            in_flight,
            lambda: this.progress,
            lambda: this.epoch_seed(),
        )
        self._index_sampler = self.order if start.order is None else start.order


class SingleProcessIterator(EpochIterator, torch_private.SingleProcessBase):
    """Loads batches in the training process."""

    _dataset_fetcher: Any
    _sampler_iter: Iterator[object]

    def __init__(self, view: LoaderView, start: EpochStart) -> None:
        self._view = view
        self.progress = start.progress
        self._device = view.device
        torch_view = TorchView(view, start, self)
        if torch_view.stateful is not None:
            self.progress.dataset.state = torch_view.stateful.state
        self._finish = torch_view.finish
        self.clock = start.clock
        self._sums = [0.0] * STAT_COUNT
        self._recorder = StatsRecorder(self._sums)
        self.begin_clock()
        torch_view.collate_fn = _timed(torch_view.make, self._recorder)
        # Unless the sampler draws in its `__iter__`, which torch calls now.
        self.progress.seeds.draw_later()
        super().__init__(torch_view)
        self.epoch_seed()
        kind = StoredFetcher if torch_view.is_stored else SeedingFetcher
        self._dataset_fetcher = kind(self._dataset_fetcher.fetch, view.thread)
        self._warns_of_length = view.is_iterable
        self._dataset = view.dataset
        self._profile_name = f"enumerate(DataLoader)#{torch_private.SingleProcessBase.__name__}.__next__"
        self._replay(view.is_iterable, super()._next_data)

    def begin_clock(self) -> None:
        """Make the clock show no workers, and the cost of batches from now on."""
        sums, before = self._sums, self._sums.copy()
        self.clock.begin(0, None, lambda: load_times(np.subtract([sums], before)))

    def draw_first(self) -> None:
        """Draw the first batch's indices, as torch's iterator does with workers."""
        self.progress.seeds.note_draw(self._view)
        first = list(itertools.islice(self._sampler_iter, 1))
        self._sampler_iter = itertools.chain(first, self._sampler_iter)

    def __next__(self) -> Any:
        """Return the next batch, like torch's method, but without a record (5 µs) that no profiler wants."""
        if self._warns_of_length or torch_private.is_profiling():
            return super().__next__()
        batch = self._next_data()
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        self.clock.ask()
        batch = self.next_batch()
        self.clock.hand(batch)
        return batch

    def next_batch(self) -> object:
        """Return the next batch, on its device, and record it."""
        self._recorder.begin()
        if not self.progress.seeds.is_drawn:
            # No earlier, because other code may have drawn numbers.
            self.progress.seeds.note_draw(self._view)
        try:
            batch = super()._next_data()
        except StopIteration:
            self.progress.finish()
            raise
        except Exception:
            self.progress.handed.count_one()
            raise
        self.progress.handed.count_one()
        batch = batch if self._device is None else self._moved_to(self._device, batch)
        self._recorder.end()
        return batch


def _timed(make: BatchMaker, recorder: StatsRecorder) -> Callable[[object], object]:
    """Return the training process's `collate_fn`, which records when it is called."""
    memory = HostMemory(make.finishes_on_device)

    def collate(fetched: object) -> object:
        recorder.fetched(count_samples(fetched, make.is_batched))
        return make(fetched, memory)

    return collate
