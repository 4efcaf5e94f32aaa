"""Order of an epoch's remaining batches, each with the seeds that it needs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler

from fastload.loader._arguments import EpochStart, LoaderView
from fastload.loader._resume.drawing import DrawsAhead, generators_of, has_drawn
from fastload.loader._transport.filling import SeededIndices, innermost
from fastload.loader._transport.seeding import BatchTask, batch_seed

if TYPE_CHECKING:
    from fastload.loader._iterators.base import EpochIterator


class BatchOrder:
    """Index sampler of an epoch's remaining batches: a BatchTask for each, if for workers or with a seed.

    `is_seeded` tells whether the dataset has transforms that draw from the epoch's seed. `iterator`, a weak
    proxy, knows the progress and the seed of its latest epoch.

    Attributes:
        draws_at_once: Whether the sampler made its draws in `__iter__`; most samplers draw later.
    """

    def __init__(self, view: LoaderView, start: EpochStart, is_seeded: bool, iterator: EpochIterator) -> None:
        self._view = view
        self._is_seeded = is_seeded
        self._seeds_batches = start.seeds_batches
        self._makes_tasks = start.seeds_batches or start.options.num_workers > 0
        self._iterator = iterator
        is_read_ahead = is_seeded and start.reads_samples and view.is_batched
        self._prefetch = getattr(innermost(view.dataset)[0], "prefetch", None) if is_read_ahead else None
        self._generators = generators_of(view) if start.seeds_batches else []
        self.draws_at_once = False

    def __iter__(self) -> Iterator[Any]:
        # Called here, not with the first batch, because a sampler may make its draws in `__iter__`.
        batches: Iterator[Any] = iter(self._view.index_sampler)
        progress = self._iterator.progress
        if type(self._view.index_sampler) is not BatchSampler:
            self.draws_at_once = has_drawn(self._view, progress.start)
        if self._generators:
            progress.ahead = DrawsAhead(self._generators, progress)
        # An iterable dataset has an endless sampler, and its batches are skipped by reading them.
        first, skipped = (0, ()) if self._view.is_iterable else (progress.first, progress.skipped)
        if self._makes_tasks or self._is_seeded or first or skipped:
            return self._remaining(batches, first, frozenset(skipped), progress.ahead)
        return batches

    def __len__(self) -> int:
        return len(self._view.index_sampler)

    def _remaining(
        self, batches: Iterator[Any], first: int, skipped: frozenset[int], ahead: DrawsAhead | None
    ) -> Iterator[Any]:
        for number in itertools.count():
            try:
                indices = next(batches) if ahead is None else ahead.draw(number, batches)
            except StopIteration:
                return
            if number >= first and number not in skipped:
                yield self._task(number, indices)

    def _task(self, number: int, indices: Any) -> Any:
        if self._prefetch is not None:
            # Only a hint: reading the samples will raise the error of wrong indices.
            with contextlib.suppress(Exception):
                self._prefetch(innermost(self._view.dataset, indices)[1])
        if self._is_seeded:
            indices = SeededIndices(self._iterator.epoch_seed(), indices)
        if not self._makes_tasks:
            return indices
        seed = batch_seed(self._iterator.epoch_seed(), number) if self._seeds_batches else None
        return BatchTask(indices, seed)
