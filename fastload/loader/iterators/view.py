"""A loader as torch's iterators are to see it, and what both of ours do around them."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, IterDataPipe, Subset, TensorDataset
from torch.utils.data._utils.collate import default_collate
from torch.utils.data.dataloader import (
    _DatasetKind,
)

from fastload.loader.clock import StepClock
from fastload.loader.device import moved_to
from fastload.loader.iterators.start import Start
from fastload.loader.resume import TRANSFORMS, DrawsAhead, Progress, SkippingSampler, generators_of, mixed
from fastload.loader.transport.filling import (
    BatchMaker,
    SeededDataset,
    SeededSampler,
    draws_by_seed,
    fills_batches,
    innermost,
    prefetcher,
)
from fastload.loader.transport.ledger import (
    SendingSampler,
)
from fastload.loader.transport.seeding import TaskSampler
from fastload.loader.transport.stateful import StatefulIterable


class View:
    """A loader in which some settings are replaced for torch's iterators to read.

    Attributes:
        make: What makes a batch of what is fetched.
        stateful: What stands for an iterable dataset, None for another one.
        finish: What is done to a batch on its device, if anything.
        is_seeded: Whether the dataset's transforms draw from the epoch's seed.
        draws_nothing: Says whether making a batch is known to leave the global generators alone.
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
        self.draws_nothing = _draws_nothing(loader, self.make.fills)
        sampler = loader._index_sampler
        self._is_sent = start.setting.num_workers > 0
        self._reads = start.reads
        self._seeds_batches = start.seeds_batches
        if self.stateful is not None:
            self.dataset: Any = self.stateful
        elif self.is_seeded:
            self.dataset = SeededDataset(loader.dataset, self.make.fills)
        if start.seeds_batches or start.order is not None:
            # Whoever goes on with an order that others have begun counts batches in it, and what is decided
            # is not to show.
            self.in_order = True
        if start.order is not None:
            self._index_sampler = self._sent(Rest(start.order))
        else:
            numbers: Callable[[], Iterator[int]] = itertools.count
            if self.stateful is None and (progress.first or progress.skipped):
                sampler = SkippingSampler(sampler, progress)
                numbers = sampler.numbers
            self._index_sampler = self.sampler_of(sampler, numbers)
        if start.seeds is not None:
            self.generator = start.seeds

    def sampler_of(self, sampler: Any, numbers: Callable[[], Iterator[int]] = itertools.count) -> Any:
        """An index sampler that also says what batches, and the dataset's transforms, draw from.

        Args:
            sampler: The sampler of an epoch's batches.
            numbers: Gives their numbers in the epoch.
        """
        iterator = self._iterator
        if self._seeds_batches and (generators := generators_of(self._loader)):
            sampler = WatchedOrder(sampler, numbers, generators, iterator)
        if self.is_seeded:
            is_read_ahead = self._reads and self._loader._auto_collation
            prefetch = prefetcher(self._loader.dataset) if is_read_ahead else None
            sampler = SeededSampler(sampler, lambda: epoch_seed(iterator()), prefetch)
        if self._seeds_batches:
            sampler = TaskSampler(sampler, numbers, lambda: epoch_seed(iterator()))
        return self._sent(sampler)

    def _sent(self, sampler: Any) -> Any:
        return SendingSampler(sampler) if self._is_sent else sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class WatchedOrder:
    """An index sampler of which is remembered what each batch draws from generators.

    Args:
        sampler: The sampler of an epoch's batches.
        numbers: Gives their numbers in the epoch.
        generators: Those of the loader and its samplers.
        iterator: Gives the iterator whose epoch it is.
    """

    def __init__(
        self,
        sampler: Any,
        numbers: Callable[[], Iterator[int]],
        generators: list[torch.Generator],
        iterator: Callable[[], Any],
    ) -> None:
        self._sampler = sampler
        self._numbers = numbers
        self._generators = generators
        self._iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        progress: Progress = self._iterator()._progress
        progress.ahead = DrawsAhead(self._generators, lambda: progress.position)
        return progress.ahead.watch(iter(self._sampler), self._numbers())

    def __len__(self) -> int:
        return len(self._sampler)


class Rest:
    """The rest of an order that others draw from too: iterating it goes on, and does not begin anew."""

    def __init__(self, order: Iterator[Any]) -> None:
        self._order = order

    def __iter__(self) -> Iterator[Any]:
        return self._order


def epoch_seed(iterator: Any) -> int:
    """What an epoch's batches draw from: the loader's seed, else the one that the workers' come from."""
    progress = iterator._progress
    if progress.epoch_seed is None:
        progress.epoch_seed = mixed(base_seed(iterator), progress.epoch, TRANSFORMS)
    seed: int = progress.epoch_seed
    return seed


def base_seed(iterator: Any) -> int:
    """The seed that an epoch's numbers come from: torch's, of when the workers were started that live on."""
    progress = iterator._progress
    if progress.base_seed is None:
        progress.base_seed = iterator._base_seed
    seed: int = progress.base_seed
    return seed


def arrived(batch: Any, device: torch.device, finish: Callable[[Any], Any] | None, clock: StepClock) -> Any:
    """A batch on its device, finished there."""
    begun = time.perf_counter()
    batch = moved_to(batch, device)
    clock.copying_s += time.perf_counter() - begun
    return finished(batch, finish)


def finished(batch: Any, finish: Callable[[Any], Any] | None) -> Any:
    """A batch of images and targets after what is left to be done on its device."""
    if finish is not None and type(batch) is list and len(batch) == 2:
        batch[0] = finish(batch[0])
    return batch


def replay(iterator: Any, next_data: Callable[[], Any], progress: Progress) -> None:
    """Brings a new iterator to where an epoch was left, if its sampler has not done so."""
    iterator._num_yielded = progress.first
    if iterator._dataset_kind == _DatasetKind.Iterable and not progress.workers:
        # A dataset that cannot tell where it is begins anew: what has been handed out is loaded again.
        with contextlib.suppress(StopIteration):
            for _ in range(progress.first):
                next_data()


def profile_name(torchs: type) -> str:
    """The name under which torch's profiler lists an iterator: that of torch's own class."""
    return f"enumerate(DataLoader)#{torchs.__name__}.__next__"


def _maker(loader: Any, device: torch.device | None) -> BatchMaker:
    collates_by_default = loader.collate_fn is default_collate and loader._auto_collation
    is_filled = collates_by_default and fills_batches(loader.dataset)
    has_finish = device is not None and is_filled and innermost(loader.dataset, "finish") is not None
    return BatchMaker(loader.collate_fn, loader.dataset if is_filled else None, has_finish)


def _draws_nothing(loader: Any, fills: bool) -> Callable[[], bool]:
    dataset = loader.dataset
    while type(dataset) is Subset:
        dataset = dataset.dataset
    if fills and type(dataset).__module__.startswith("fastload."):
        # Its transforms may be changed at any time.
        return lambda: bool(dataset.counts_draws)
    is_plain = type(dataset) is TensorDataset and all(type(part) is torch.Tensor for part in dataset.tensors)
    has_own_collate = loader._auto_collation and loader.collate_fn is not default_collate
    return lambda: is_plain and not has_own_collate


def _stateful(loader: Any, progress: Progress) -> StatefulIterable | None:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) and not isinstance(dataset, IterDataPipe):
        return StatefulIterable(dataset, progress.workers)
    return None
