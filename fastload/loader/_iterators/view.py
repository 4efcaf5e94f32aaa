"""The loader as torch's iterators read it, and steps that both iterators share."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterDataPipe, TensorDataset, default_collate

from fastload.loader._device import moved_to
from fastload.loader._iterators.order import BatchOrder
from fastload.loader._resume.drawing import TRANSFORMS, mixed
from fastload.loader._resume.progress import Progress
from fastload.loader._strategy import EpochStart, LoaderView
from fastload.loader._transport.filling import (
    BatchMaker,
    SeededDataset,
    can_fill_batches,
    innermost,
    uses_epoch_seed,
)
from fastload.loader._transport.stateful import StatefulIterable
from fastload.loader.clock import StepClock


class TorchView:
    """A loader for torch's iterators to read, under torch's names.

    Attributes:
        make: Makes a batch of fetched samples or indices.
        stateful: The wrapper of an iterable dataset; None for another one.
        finish: The dataset's last step on a batch that is on its device, if any.
        order: Order of the epoch's remaining batches, and of all batches of later epochs.
        draws_nothing: Returns whether making a batch is known to leave the global generators alone.
    """

    def __init__(self, view: LoaderView, start: EpochStart, iterator: Any) -> None:
        self._view = view
        options, dataset = start.options, view.dataset
        inner, _ = innermost(dataset)
        has_own_collate = view.is_batched and view.collate_fn is not default_collate
        fills = view.is_batched and not has_own_collate and can_fill_batches(dataset)
        has_finish = fills and view.device is not None and hasattr(inner, "finish")
        self.make = BatchMaker(view.collate_fn, dataset if fills else None, has_finish)
        self.finish = inner.finish if has_finish else None
        self.draws_nothing: Callable[[], bool] = lambda: not has_own_collate and _is_plain(inner)
        if fills and type(inner).__module__.startswith("fastload."):
            # Asked for each batch, because its transforms may be changed at any time.
            self.draws_nothing = lambda: bool(inner.counts_draws)
        self.stateful: StatefulIterable | None = None
        is_seeded = False
        if view.is_iterable and not isinstance(dataset, IterDataPipe):
            dataset = self.stateful = StatefulIterable(dataset, start.progress.workers)
        elif uses_epoch_seed(dataset):
            is_seeded = True
            dataset = SeededDataset(dataset, fills)
        self.num_workers, self.prefetch_factor = options.num_workers, options.prefetch_factor
        self.pin_memory, self.persistent_workers = options.pin_memory, options.persistent_workers
        self.dataset: Any = dataset
        self.collate_fn: Any = view.collate_fn
        self.worker_init_fn: Any = view.worker_init_fn
        self.multiprocessing_context = view.multiprocessing_context
        self.generator = view.generator if start.worker_seeds is None else start.worker_seeds
        # An order that another iterator began is counted in batches, and decisions must not show.
        self.in_order = view.in_order or start.seeds_batches or start.order is not None
        self._auto_collation = view.is_batched
        this = weakref.proxy(iterator)
        self.order = BatchOrder(view, start, is_seeded, lambda: this._progress, lambda: epoch_seed(this))
        self._index_sampler: Any = self.order if start.order is None else start.order

    def __getattr__(self, name: str) -> Any:
        try:
            return self._view.attributes[name]
        except KeyError:
            raise AttributeError(name) from None


def epoch_seed(iterator: Any) -> int:
    """Return the seed of an epoch's batches: the loader's, else one mixed from torch's base seed."""
    progress: Progress = iterator._progress
    if progress.epoch_seed is None:
        progress.epoch_seed = mixed(base_seed(iterator), progress.epoch, TRANSFORMS)
    return progress.epoch_seed


def base_seed(iterator: Any) -> int:
    """Return torch's base seed of an epoch; persistent workers keep that of their first one."""
    progress: Progress = iterator._progress
    if progress.base_seed is None:
        progress.base_seed = int(iterator._base_seed)
    return progress.base_seed


def to_device(batch: Any, device: torch.device, finish: Callable[[Any], Any] | None, clock: StepClock) -> Any:
    """Return a batch on its device, finished there."""
    begun = time.perf_counter()
    batch = moved_to(batch, device)
    clock.copying_s += time.perf_counter() - begun
    return finished(batch, finish)


def finished(batch: Any, finish: Callable[[Any], Any] | None) -> Any:
    """Return a batch after the dataset's last step on its device."""
    if finish is not None and type(batch) is list and len(batch) == 2:
        batch[0] = finish(batch[0])
    return batch


def replay(iterator: Any, is_iterable: bool, next_data: Callable[[], Any], progress: Progress) -> None:
    """Bring a new iterator to where an epoch was left, if its sampler has not done so."""
    iterator._num_yielded = progress.first
    if is_iterable and not progress.workers:
        # A dataset without a state starts from its beginning: the batches handed out are loaded again.
        with contextlib.suppress(StopIteration):
            for _ in range(progress.first):
                next_data()


def _is_plain(dataset: Any) -> bool:
    return type(dataset) is TensorDataset and all(type(part) is torch.Tensor for part in dataset.tensors)
