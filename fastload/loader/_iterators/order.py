"""Order of an epoch's remaining batches, each with the seeds that it needs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler

from fastload.loader._resume import DrawsAhead, Progress, generators_of, has_drawn
from fastload.loader._strategy import EpochStart, LoaderView
from fastload.loader._transport.filling import SeededIndices, innermost
from fastload.loader._transport.seeding import BatchTask, batch_seed


class BatchOrder:
    """Index sampler of an epoch's remaining batches; each is a BatchTask for workers, or if it has a seed.

    `progress` and `epoch_seed` return those of the iterator's latest epoch.

    Attributes:
        is_seeded: Whether the dataset has transforms that draw from the epoch's seed.
        draws_at_once: Whether the sampler drew when it was asked for an iterator; most draw later.
    """

    def __init__(
        self,
        view: LoaderView,
        start: EpochStart,
        is_seeded: bool,
        progress: Callable[[], Progress],
        epoch_seed: Callable[[], int],
    ) -> None:
        self._view = view
        self.dataset = view.dataset
        self.is_seeded = is_seeded
        self.seeds_batches = start.seeds_batches
        self.makes_tasks = start.seeds_batches or start.options.num_workers > 0
        self.epoch_seed = epoch_seed
        self._progress = progress
        is_read_ahead = is_seeded and start.reads_samples and view.is_batched
        self.prefetch = getattr(innermost(view.dataset)[0], "prefetch", None) if is_read_ahead else None
        self._generators = generators_of(view) if start.seeds_batches else []
        self.draws_at_once = False

    def __iter__(self) -> Iterator[Any]:
        # Here, not with the first batch: a sampler that draws when it is asked for an iterator does so now.
        batches: Iterator[Any] = iter(self._view.index_sampler)
        progress = self._progress()
        if type(self._view.index_sampler) is not BatchSampler:
            self.draws_at_once = has_drawn(self._view, progress.start)
        if self._generators:
            progress.ahead = DrawsAhead(self._generators, lambda: progress.position)
        # The sampler of an iterable dataset is endless, and its batches are skipped by reading them.
        first, skipped = (0, ()) if self._view.is_iterable else (progress.first, progress.skipped)
        if self.makes_tasks or self.is_seeded or first or skipped:
            return _RemainingBatches(self, batches, first, skipped, progress.ahead)
        return batches

    def __len__(self) -> int:
        return len(self._view.index_sampler)


class _RemainingBatches:
    """Iterator of the batches that have not been handed out."""

    def __init__(
        self,
        order: BatchOrder,
        batches: Iterator[Any],
        first: int,
        skipped: tuple[int, ...],
        ahead: DrawsAhead | None,
    ) -> None:
        self._order = order
        self._batches = batches
        self._first = first
        self._skipped = frozenset(skipped)
        self._ahead = ahead
        self._drawn = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            number = self._drawn
            self._drawn += 1
            indices = next(self._batches) if self._ahead is None else self._ahead.draw(number, self._batches)
            if number >= self._first and number not in self._skipped:
                return self._task(number, indices)

    def _task(self, number: int, indices: Any) -> Any:
        order = self._order
        if order.prefetch is not None:
            # Only a hint: reading the samples will raise the error of wrong indices.
            with contextlib.suppress(Exception):
                order.prefetch(innermost(order.dataset, indices)[1])
        if order.is_seeded:
            indices = SeededIndices(order.epoch_seed(), indices)
        if not order.makes_tasks:
            return indices
        return BatchTask(indices, batch_seed(order.epoch_seed(), number) if order.seeds_batches else None)
