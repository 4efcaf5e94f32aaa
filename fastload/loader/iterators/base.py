"""Common parts of the loader's iterators: their base, the order of batches, and the view that torch reads."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    IterDataPipe,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

from fastload.contracts import AnnouncesBatches, DrawsFromEpochSeed, FinishesBatches, Prefetches, ReadsAhead
from fastload.loader.arguments import LoaderView, WorkerOptions
from fastload.loader.clock import StepClock
from fastload.loader.device import moved_to
from fastload.loader.resume.dataset_states import StatefulIterable, WorkerCopy, is_stateful
from fastload.loader.resume.drawing import (
    TRANSFORMS,
    WORKERS,
    are_equal,
    derived_seed,
    generators_of,
    start_state,
)
from fastload.loader.resume.progress import Progress
from fastload.loader.sharded_sampler import ShardedSampler
from fastload.loader.transport.making import (
    BatchMaker,
    BatchTask,
    SampleSource,
    batch_seed,
    can_fill_batches,
    innermost,
    makes_batches,
)

_NO_WORKERS = WorkerOptions()

# Batches announced to a dataset that reads ahead: their indices take about 10 MB.
_MOST_BATCHES = 10_000


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


class EpochIterator:
    """Iterator of an epoch: the part that the loader's two iterators have in common."""

    clock: StepClock
    _base_seed: Any
    _drawn_seed: int
    _device: torch.device | None
    _finish: Callable[[Any], object] | None
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
        seeds = self.progress.seeds
        if seeds.base is None:
            seeds.base = self._drawn_seed
        return seeds.base

    def epoch_seed(self) -> int:
        """Return the seed of the epoch's batches: the loader's, else one derived from torch's base seed."""
        seeds = self.progress.seeds
        if seeds.batches is None:
            seeds.batches = derived_seed(self.base_seed(), self.progress.epoch, TRANSFORMS)
        return seeds.batches

    def _finished(self, batch: object) -> object:
        """Return a batch after the dataset's last step, which is made on the batch's device."""
        if self._finish is not None and type(batch) is list and len(batch) == 2:
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


class BatchOrder:
    """Index sampler that yields a BatchTask for each of an epoch's remaining batches.

    `iterator`, a weak proxy, knows the progress and the seed of its latest epoch.

    Attributes:
        draws_at_once: True if the sampler made its draws in `__iter__`; most samplers draw later.
    """

    def __init__(self, view: LoaderView, start: EpochStart, iterator: EpochIterator) -> None:
        self._view = view
        self._seeds_batches = start.seeds_batches
        self._iterator = iterator
        inner, _ = innermost(view.dataset)
        may_prefetch = makes_batches(inner) and view.is_batched
        self._in_flight = max(1, start.options.num_workers * (start.options.prefetch_factor or 1))
        self._prefetch = inner.prefetch if may_prefetch and isinstance(inner, Prefetches) else None
        self._generators = generators_of(view) if start.seeds_batches else []
        self.draws_at_once = False
        # The latest epoch's, held until the next epoch begins or this iterator is dropped.
        self._ahead: ReadsAhead | None = None

    def __iter__(self) -> Iterator[BatchTask]:
        # Called here, not with the first batch, because a sampler may make its draws in `__iter__`.
        batches: Iterator[object] = iter(self._view.index_sampler)
        progress = self._iterator.progress
        if type(self._view.index_sampler) is not BatchSampler:
            self.draws_at_once = not are_equal(start_state(self._view), progress.seeds.start)
        # An iterable dataset has an endless sampler, and its batches are skipped by reading them.
        first, skipped = (
            (0, ()) if self._view.is_iterable else (progress.handed.first, progress.handed.skipped)
        )
        iterator = self._iterator
        self._ahead = reads_ahead(self._view, lambda: iterator.progress.handed.position, self._in_flight)
        if self._ahead is not None:
            batches = looking_ahead(self._view, batches, first, self._ahead)
        if self._generators:
            draws = DrawsAhead(self._generators, progress)
            batches, progress.take_back_draws = draws.drawn(batches), draws.take_back
        return self._remaining(batches, first, frozenset(skipped))

    def __len__(self) -> int:
        return len(self._view.index_sampler)

    def _remaining(self, batches: Iterator[Any], first: int, skipped: frozenset[int]) -> Iterator[BatchTask]:
        seed, stream = self._iterator.epoch_seed(), self._iterator.progress.seeds.stream
        for number, indices in enumerate(batches):
            if number < first or number in skipped:
                continue
            if self._prefetch is not None:
                # Only a hint: reading the samples will raise the error of wrong indices.
                with contextlib.suppress(Exception):
                    self._prefetch(innermost(self._view.dataset, indices)[1])
            yield BatchTask(indices, seed, batch_seed(seed, number, stream) if self._seeds_batches else None)


def reads_ahead(view: LoaderView, position: Callable[[], int], in_flight: int) -> ReadsAhead | None:
    """Return the result of the dataset's `read_ahead`; None if it has none, or the order is not fixed."""
    dataset, _ = innermost(view.dataset)
    sampler = view.sample_sampler
    is_fixed = type(sampler) in (SequentialSampler, ShardedSampler)
    if type(sampler) is RandomSampler:
        is_fixed = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    if not (is_fixed and makes_batches(dataset) and isinstance(dataset, AnnouncesBatches)):
        return None
    return dataset.read_ahead(position, in_flight)


def looking_ahead(
    view: LoaderView, batches: Iterator[Any], first: int, ahead: ReadsAhead
) -> Iterator[object]:
    """Yield the batches of an epoch, of which those from `first` on are announced to `ahead`."""
    sampler: Sized = view.index_sampler
    drawn: deque[object] = deque()
    # RandomSampler draws random numbers after its last batch, so that one is drawn only when it is due.
    count = len(sampler) - isinstance(view.sample_sampler, RandomSampler)
    numbered = zip(range(count), batches, strict=False)
    while True:
        while len(drawn) < _MOST_BATCHES and not (drawn and ahead.is_full) and (pair := next(numbered, None)):
            number, indices = pair
            drawn.append(indices)
            if number >= first:
                ahead.want(number, innermost(view.dataset, indices if view.is_batched else [indices])[1])
        if not drawn:
            break
        yield drawn.popleft()
    yield from batches


class DrawsAhead:
    """Draws an epoch's order, and can take back draws for batches that have not been handed out.

    Workers receive indices ahead of time, and how far ahead depends on measured times. If an epoch is left
    early, the order of the next one must not depend on that. Recording the states takes 7 µs per batch.
    """

    def __init__(self, generators: list[torch.Generator], progress: Progress) -> None:
        self._generators = generators
        self._progress = progress
        # The numbers of batches whose draw changed the generators, and the states before that.
        self._draws: deque[tuple[int, list[torch.Tensor]]] = deque()
        # The states after the latest draw that has not been taken back.
        self._latest: list[torch.Tensor] = []

    def drawn(self, order: Iterator[object]) -> Iterator[object]:
        """Yield the batches of an epoch's order, drawn one by one."""
        for number in itertools.count():
            before = self._states()
            try:
                batch = next(order)
            except StopIteration:
                return
            finally:
                self._note(number, before)
            yield batch

    def _note(self, number: int, before: list[torch.Tensor]) -> None:
        after = self._states()
        if _are_all_equal(before, after):
            return
        if not _are_all_equal(self._latest, before):
            self._draws.clear()  # others have drawn in between: earlier draws cannot be taken back
        while self._draws and self._draws[0][0] < self._progress.handed.position:
            self._draws.popleft()
        self._draws.append((number, before))
        self._latest = after

    def take_back(self) -> None:
        """Put the generators back to before the draws ahead, unless others have drawn since."""
        position = self._progress.handed.position
        ahead = [before for number, before in self._draws if number >= position]
        self._draws.clear()
        if ahead and _are_all_equal(self._latest, self._states()):
            self._latest = ahead[0]
            for generator, state in zip(self._generators, ahead[0], strict=True):
                generator.set_state(state)

    def _states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self._generators]


def _are_all_equal(states: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, states, others))


class TorchView:
    """The loader that torch's iterators read: a view with some settings replaced, under torch's names.

    Attributes:
        make: Makes a batch of fetched samples or indices.
        stateful: The state of an iterable dataset, or of a map-style one that workers load; None: none.
        finish: The dataset's last step, for a batch that has been moved to its device; None if it has none.
        order: Order of the epoch's remaining batches, and of all batches of later epochs.
        draws_nothing: True if making a batch is known not to use the global generators.
    """

    def __init__(self, view: LoaderView, start: EpochStart, iterator: EpochIterator) -> None:
        vars(self).update(view.attributes)
        options, dataset = start.options, view.dataset
        inner, _ = innermost(dataset)
        has_own_collate = view.is_batched and view.collate_fn is not default_collate
        fills = view.is_batched and not has_own_collate and can_fill_batches(dataset)
        may_finish = fills and view.device is not None
        self.finish = inner.finish if may_finish and isinstance(inner, FinishesBatches) else None
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
        is_stored = calls_no_code and returns_stored
        if not (view.is_iterable or is_stored):
            if options.num_workers and not start.seeds_batches and is_stateful(dataset):
                self.stateful = WorkerCopy(dataset, start.progress.dataset.workers)
            dataset = SampleSource(dataset, fills)
        self.draws_nothing = is_stored or (
            calls_no_code
            and makes_batches(inner)
            and isinstance(inner, DrawsFromEpochSeed)
            and inner.draws_from_epoch_seed_only
        )
        self.num_workers, self.prefetch_factor = options.num_workers, options.prefetch_factor
        self.pin_memory, self.persistent_workers = options.pin_memory, options.persistent_workers
        self.dataset: Any = dataset
        self.collate_fn: Any = view.collate_fn
        self.worker_init_fn: Any = view.worker_init_fn
        self.multiprocessing_context = view.multiprocessing_context
        self.generator = view.generator if start.worker_seeds is None else start.worker_seeds
        # A shared order requires it, because batches are counted, and no decision may change their order.
        self.in_order = view.in_order or start.seeds_batches or start.order is not None
        self._auto_collation = view.is_batched
        self.order = BatchOrder(view, start, weakref.proxy(iterator))
        self._index_sampler: Any = self.order if start.order is None else start.order
