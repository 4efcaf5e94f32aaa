"""Datasets that fill a batch themselves: `fetch_into(indices, out)` instead of samples and collation.

The method returns what `default_collate` would return for the samples at these indices, or NotImplemented if
they must be fetched one by one. `out.empty` allocates tensors of the batch: in shared memory in a worker, in
ordinary memory otherwise. The method is used only if the batch would be made by `default_collate` and no
subclass overrides `__getitem__` or `__getitems__` below it.

A collate function may have a method `collate_into(samples, out)`, which allocates tensors in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import Dataset

from fastload.datasets.within import is_plain_subset
from fastload.transforms.draws import epoch_seed

if TYPE_CHECKING:
    from fastload.datasets.batch import BatchMemory


class SeededIndices(NamedTuple):
    """Indices of one batch, and the seed that transforms draw from."""

    seed: int
    indices: Any


class SeededDataset(Dataset[Any]):
    """Wrapper of a dataset whose transforms draw from the epoch's seed.

    If `fills`, it returns the indices themselves, because a `BatchMaker` fills the batch later.
    """

    def __init__(self, dataset: Any, fills: bool) -> None:
        self.dataset = dataset
        self._fills = fills

    def __getitem__(self, seeded: SeededIndices) -> Any:
        with epoch_seed(seeded.seed):
            return self.dataset[seeded.indices]

    def __getitems__(self, seeded: SeededIndices) -> Any:
        if self._fills:
            return seeded
        with epoch_seed(seeded.seed):
            return _fetch_samples(self.dataset, seeded.indices)


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
            into = getattr(self._collate_fn, "collate_into", None)
            return self._collate_fn(fetched) if into is None else into(fetched, memory)
        with epoch_seed(fetched.seed):
            dataset, indices = innermost(self._dataset, fetched.indices)
            batch = dataset.fetch_into(indices, memory)
            if batch is NotImplemented:
                batch = self._collate_fn(_fetch_samples(self._dataset, fetched.indices))
        return batch


def innermost(dataset: Any, indices: Sequence[int] = ()) -> tuple[Any, Sequence[int]]:
    """Return the dataset that a Subset, or a Subset of one, refers to, and the indices there."""
    while is_plain_subset(dataset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def can_fill_batches(dataset: Any) -> bool:
    """Return whether a dataset, or the one that it is a Subset of, has a usable `fetch_into`."""
    for base in type(innermost(dataset)[0]).__mro__:
        if "fetch_into" in vars(base):
            return True
        if "__getitem__" in vars(base) or "__getitems__" in vars(base):
            return False
    return False


def uses_epoch_seed(dataset: Any) -> bool:
    """Return whether a dataset, or one that it contains, has transforms that draw from the epoch's seed."""
    seen: set[int] = set()
    parts = [dataset]
    while parts:
        part = parts.pop()
        if hasattr(type(part), "fetch_into"):
            return True
        seen.add(id(part))
        # Plain attributes only: this must not evaluate a property of a user's dataset.
        attributes = getattr(part, "__dict__", {})
        several = attributes.get("datasets")
        inner = [attributes.get("dataset"), *(several if isinstance(several, (list, tuple)) else ())]
        parts += [part for part in inner if isinstance(part, Dataset) and id(part) not in seen]
    return False


def _fetch_samples(dataset: Any, indices: Sequence[int]) -> Any:
    # The same as in torch's fetcher.
    if getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(indices)
    return [dataset[index] for index in indices]
