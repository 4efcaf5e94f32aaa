"""Orders of an epoch's batches: with a task for each, read ahead, taken back, or shared by two iterators."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from fastload.contracts import AnnouncesBatches, Prefetches, ReadsAhead, implements
from fastload.loader.arguments import LoaderView
from fastload.loader.resume.drawing import are_equal, generators_of, start_state
from fastload.loader.resume.progress import Progress
from fastload.loader.sharded_sampler import ShardedSampler
from fastload.loader.transport.making import innermost, makes_batches
from fastload.loader.transport.seeding import BatchTask, batch_seed

_T = TypeVar("_T")

# Batches announced to a dataset that reads ahead: their indices take about 10 MB.
_MOST_BATCHES = 10_000


class BatchOrder:
    """Index sampler that yields a BatchTask for each of an epoch's remaining batches.

    Args:
        seeds_batches: True if random numbers are seeded per batch.
        draws_nothing: True if making a batch uses none.
        in_flight: Batches that are loaded at once.
        progress, epoch_seed: Return those of the iterator's latest epoch.
    """

    def __init__(
        self,
        view: LoaderView,
        seeds_batches: bool,
        draws_nothing: bool,
        in_flight: int,
        progress: Callable[[], Progress],
        epoch_seed: Callable[[], int],
    ) -> None:
        self._view = view
        self._seeds_batches = seeds_batches and not draws_nothing
        self._in_flight = in_flight
        self._progress = progress
        self._epoch_seed = epoch_seed
        inner, _ = innermost(view.dataset)
        may_prefetch = makes_batches(inner) and view.is_batched
        is_prefetching = may_prefetch and implements(inner, Prefetches.prefetch)
        self._prefetch = inner.prefetch if is_prefetching else None
        self._generators = generators_of(view) if seeds_batches else []
        # The latest epoch's, held until the next epoch begins or this iterator is dropped.
        self._ahead: ReadsAhead | None = None

    def __iter__(self) -> Iterator[BatchTask]:
        progress = self._progress()
        may_draw = type(self._view.index_sampler) is not BatchSampler and not progress.seeds.is_drawn
        before = start_state(self._view) if may_draw else {}
        # Called here, not with the first batch, because a sampler may make its draws in `__iter__`.
        batches: Iterator[Sequence[int]] = iter(self._view.index_sampler)
        if may_draw and not are_equal(start_state(self._view), before):
            progress.seeds.begin_draw(progress.seeds.start or before)
        # An iterable dataset has an endless sampler, and its batches are skipped by reading them.
        handed = progress.handed
        first, skipped = (0, ()) if self._view.is_iterable else (handed.first, handed.skipped)
        latest = self._progress
        self._ahead = reads_ahead(self._view, lambda: latest().handed.position, self._in_flight)
        if self._ahead is not None:
            batches = looking_ahead(self._view, batches, first, self._ahead)
        if self._generators:
            draws = DrawsAhead(self._generators, progress)
            batches, progress.take_back_draws = draws.drawn(batches), draws.take_back
        return self._remaining(batches, first, frozenset(skipped))

    def __len__(self) -> int:
        return len(self._view.index_sampler)

    def _remaining(
        self, batches: Iterator[Sequence[int]], first: int, skipped: frozenset[int]
    ) -> Iterator[BatchTask]:
        seed, stream = self._epoch_seed(), self._progress().seeds.stream
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
    if not (is_fixed and makes_batches(dataset) and implements(dataset, AnnouncesBatches.read_ahead)):
        return None
    announcing: AnnouncesBatches = dataset
    return announcing.read_ahead(position, in_flight)


def looking_ahead(view: LoaderView, batches: Iterator[Any], first: int, ahead: ReadsAhead) -> Iterator[Any]:
    """Yield the batches of an epoch, of which those from `first` on are announced to `ahead`."""
    sampler: Sized = view.index_sampler
    drawn: deque[Any] = deque()
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

    def drawn(self, order: Iterator[_T]) -> Iterator[_T]:
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


class SharedOrder:
    """Rest of an epoch's order; when workers iterate it, `sent` keeps the indices of outstanding batches."""

    def __init__(self, rest: Iterator[object]) -> None:
        self.rest = rest
        self.sent: deque[object] = deque()
        #: True once workers have drawn all of the order.
        self.is_drawn = False

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        try:
            index = next(self.rest)
        except StopIteration:
            self.is_drawn = True
            raise
        self.sent.append(index)
        return index

    def draw_first(self) -> None:
        """Let the sampler draw its random numbers now, at the beginning of the epoch."""
        self.rest = itertools.chain(list(itertools.islice(self.rest, 1)), self.rest)

    def take_back_first(self) -> None:
        """Put back the indices of the first outstanding batch, to be drawn next."""
        self.rest = itertools.chain([self.sent.popleft()], self.rest)

    def take_back(self) -> None:
        """Put back the indices of all outstanding batches, to be drawn next."""
        if self.sent:
            self.is_drawn = False
        self.rest = itertools.chain(list(self.sent), self.rest)
        self.sent.clear()
