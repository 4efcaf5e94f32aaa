"""Datasets that fill a batch themselves: `fetch_into(indices, out)` instead of samples and collation.

The method returns what `default_collate` would return for the samples at these indices, or NotImplemented if
they must be fetched one by one. `out.empty` allocates tensors of the batch: in shared memory in a worker, in
ordinary memory otherwise. The method is used only if the batch would be made by `default_collate` and no
subclass overrides `__getitem__` or `__getitems__` below it.

A collate function may have a method `collate_into(samples, out)`, which allocates tensors in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from fastload.contracts import BatchMemory, CollatesInto
from fastload.datasets.within import is_plain_subset
from fastload.transforms.draws import EpochDraws, current_draws


class SampleSource(Dataset[Any]):
    """Wrapper of a map-style dataset that tells transforms which sample is being made.

    If `fills`, it returns the indices themselves, because a `BatchMaker` fills the batch later.
    """

    def __init__(self, dataset: Any, fills: bool) -> None:
        self.dataset = dataset
        self._fills = fills

    def __getitem__(self, index: Any) -> Any:
        _draws().begin([index], True)
        return self.dataset[index]

    def __getitems__(self, indices: Any) -> Any:
        return indices if self._fills else _fetch_samples(self.dataset, indices)


class BatchMaker:
    """Makes a batch: collates fetched samples, or has `dataset` fill the batch at the fetched indices.

    Unless `is_batched`, what is fetched is one sample.
    """

    def __init__(
        self,
        collate_fn: Callable[[Any], Any],
        is_batched: bool,
        dataset: Any = None,
        finishes_on_device: bool = False,
    ) -> None:
        self.is_batched = is_batched
        self._collate_fn = collate_fn
        self._dataset = dataset
        self.finishes_on_device = finishes_on_device

    def __call__(self, fetched: Any, memory: BatchMemory) -> Any:
        """Return the batch; tensors that the dataset fills are allocated from `memory`."""
        if self._dataset is None:
            if isinstance(self._collate_fn, CollatesInto):
                return self._collate_fn.collate_into(fetched, memory)
            return self._collate_fn(fetched)
        dataset, indices = innermost(self._dataset, fetched)
        _draws().begin(indices, False)
        batch = dataset.fetch_into(indices, memory)
        return self._collate_fn(_fetch_samples(dataset, indices)) if batch is NotImplemented else batch


def innermost(dataset: Any, indices: Sequence[int] = ()) -> tuple[Any, Sequence[int]]:
    """Return the dataset that a Subset, or a Subset of one, refers to, and the indices there."""
    while is_plain_subset(dataset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def can_fill_batches(dataset: object) -> bool:
    """Return whether a dataset, or the one that it is a Subset of, has a usable `fetch_into`."""
    for base in type(innermost(dataset)[0]).__mro__:
        if "fetch_into" in vars(base):
            return True
        if "__getitem__" in vars(base) or "__getitems__" in vars(base):
            return False
    return False


def makes_batches(dataset: object) -> bool:
    """Return whether a dataset is one of this library or compiled: the user's own may have equal names."""
    return hasattr(type(dataset), "fetch_into")


def _fetch_samples(dataset: Any, indices: Sequence[Any]) -> Any:
    # The same as in torch's fetcher.
    of_loader, draws = indices, _draws()
    dataset, indices = innermost(dataset, indices)
    if getattr(dataset, "__getitems__", None):
        draws.begin(indices, not can_fill_batches(dataset))
        samples = dataset.__getitems__(indices)
    else:
        samples = [dataset[index] for index in draws.each(indices)]
    draws.begin_collating(of_loader)
    return samples


def _draws() -> EpochDraws:
    draws = current_draws()
    assert draws is not None
    return draws
