"""Announcement of an epoch's later batches to a dataset that reads ahead.

Only orders that are fixed once an epoch has begun are announced: those of torch's own samplers without
replacement, and of ShardedSampler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sized
from typing import Any

from torch.utils.data import RandomSampler, SequentialSampler

from fastload.contracts import AnnouncesBatches, ReadsAhead
from fastload.loader._arguments import LoaderView
from fastload.loader._transport.filling import innermost, makes_batches
from fastload.loader.sharded_sampler import ShardedSampler

# The indices of this many batches take about 10 MB.
_MOST_BATCHES = 10_000


def reads_ahead(view: LoaderView, position: Callable[[], int], in_flight: int) -> ReadsAhead | None:
    """Return the result of the dataset's `read_ahead`; None if it has none, or the order is not fixed."""
    dataset, _ = innermost(view.dataset)
    if not (makes_batches(dataset) and _has_fixed_order(view)):
        return None
    return dataset.read_ahead(position, in_flight) if isinstance(dataset, AnnouncesBatches) else None


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


def _has_fixed_order(view: LoaderView) -> bool:
    sampler = view.sample_sampler
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) in (SequentialSampler, ShardedSampler)
