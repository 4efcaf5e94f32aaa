"""Datasets that fill a batch themselves: `fetch_into(indices, out)` in place of samples and collation.

    class Frames(torch.utils.data.Dataset):
        def fetch_into(self, indices, out):
            frames = out.empty((len(indices), 3, 64, 64), torch.uint8)
            self.decoder.decode(indices, into=frames.numpy())
            return [frames, out.empty((len(indices),), torch.int64).fill_(0)]

It returns what `default_collate` would make of the samples at those indices, or NotImplemented, and then
the samples are fetched one by one. `out.empty` makes tensors where the batch is to lie: in shared memory
in a worker, in ordinary memory elsewhere. It is asked only where the batch would be made by
`default_collate`, and where no subclass has changed `__getitem__` or `__getitems__` beneath it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import Dataset, Subset


class BatchMemory(Protocol):
    """Where a batch's tensors are made."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised, contiguous tensor on the CPU."""


Fill = Callable[[Sequence[int], BatchMemory], Any]


class OrdinaryMemory:
    """Memory of the process itself."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised, contiguous tensor on the CPU."""
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")


class BatchMaker:
    """Makes a batch of what a fetcher has fetched: collates samples, or has the dataset fill it.

    Args:
        collate_fn: Collates samples.
        dataset: A dataset for which `fills_batches` holds, and of which indices are fetched; None:
            samples are fetched.
    """

    def __init__(self, collate_fn: Callable[[Any], Any], dataset: Any = None) -> None:
        self._collate_fn = collate_fn
        self._dataset = dataset
        self._fill = None if dataset is None else _fill(dataset)

    @property
    def fills(self) -> bool:
        """Whether what it is given are indices."""
        return self._fill is not None

    def __call__(self, fetched: Any, memory: BatchMemory) -> Any:
        """Makes the batch; what the dataset fills lies in `memory`."""
        if self._fill is None:
            return self._collate_fn(fetched)
        batch = self._fill(fetched, memory)
        return self._collate_fn(_samples(self._dataset, fetched)) if batch is NotImplemented else batch


class IndicesOnly(Dataset[Any]):
    """Stands in a fetcher for a dataset that fills batches: what it fetches are the indices.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitems__(self, indices: Sequence[int]) -> Sequence[int]:
        return indices


def fills_batches(dataset: Any) -> bool:
    """Whether a dataset, or the one that it is a Subset of, can be asked to fill a batch."""
    return _fill(dataset) is not None


def _fill(dataset: Any) -> Fill | None:
    if type(dataset) is Subset:
        fill = _fill(dataset.dataset)
        return None if fill is None else _SubsetFill(fill, dataset.indices)
    return dataset.fetch_into if _has_valid_fetch_into(type(dataset)) else None


def _samples(dataset: Any, indices: Sequence[int]) -> Any:
    """The samples at some indices, as torch's fetcher gets them."""
    if getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(indices)
    return [dataset[index] for index in indices]


class _SubsetFill:
    def __init__(self, fill: Fill, indices: Sequence[int]) -> None:
        self._fill = fill
        self._indices = indices

    def __call__(self, indices: Sequence[int], out: BatchMemory) -> Any:
        return self._fill([self._indices[index] for index in indices], out)


def _has_valid_fetch_into(kind: type) -> bool:
    for base in kind.__mro__:
        if "fetch_into" in vars(base):
            return True
        if "__getitem__" in vars(base) or "__getitems__" in vars(base):
            return False
    return False
