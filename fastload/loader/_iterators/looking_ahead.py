"""Announcement of an epoch's later batches to a dataset that reads ahead.

Only orders are used that are known once they have begun: those of torch's own samplers without replacement,
and of ShardedSampler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, Protocol

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from fastload.loader._arguments import LoaderView
from fastload.loader._transport.filling import innermost
from fastload.loader.sharded_sampler import ShardedSampler

# Their indices take some 10 MB.
_MOST_BATCHES = 10_000


class ReadsAhead(Protocol):
    """Result of a dataset's `read_ahead(position)`, which may also be None.

    `position` returns the number of batches that have been handed out.
    """

    @property
    def is_full(self) -> bool:
        """True once no more batches can be wanted."""

    def want(self, batch: int, indices: Sequence[int]) -> None:
        """Add a later batch; called in the order of the epoch, before `start`."""

    def start(self) -> None:
        """Start to read ahead."""


def reads_ahead(view: LoaderView, position: Callable[[], int]) -> ReadsAhead | None:
    """Return what the dataset's `read_ahead` returns; None if it has none, or the order is not known."""
    dataset, _ = innermost(view.dataset)
    read_ahead: Callable[..., ReadsAhead | None] | None = getattr(dataset, "read_ahead", None)
    return read_ahead(position) if read_ahead is not None and _is_known(view) else None


def looking_ahead(view: LoaderView, batches: Iterator[Any], first: int, ahead: ReadsAhead) -> Iterator[Any]:
    """Yield the batches of an epoch, of which those from `first` on are announced to `ahead`."""
    sampler: Sized = view.index_sampler
    drawn: deque[Any] = deque()
    # The last batch is drawn when it is due: some samplers draw random numbers after it.
    while len(drawn) < min(len(sampler) - 1, _MOST_BATCHES) and not ahead.is_full:
        try:
            drawn.append(next(batches))
        except StopIteration:
            break
        if len(drawn) > first:
            indices = drawn[-1] if view.is_batched else [drawn[-1]]
            ahead.want(len(drawn) - 1, innermost(view.dataset, indices)[1])
    ahead.start()
    while drawn:
        yield drawn.popleft()
    yield from batches


def _is_known(view: LoaderView) -> bool:
    sampler = view.index_sampler
    if type(sampler) is BatchSampler:
        sampler = sampler.sampler
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) in (SequentialSampler, ShardedSampler)
