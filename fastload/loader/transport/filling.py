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

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch.utils.data import Dataset, Subset

from fastload.system.buffers import recycled_tensor
from fastload.transforms.draws import epoch_seed

if TYPE_CHECKING:
    from fastload.datasets.batch import BatchMemory


Fill: TypeAlias = "Callable[[Sequence[int], BatchMemory], Any]"


class OrdinaryMemory:
    """Memory of the process itself.

    Args:
        finishes_on_device: See `fastload.datasets.batch.BatchMemory`.
    """

    def __init__(self, finishes_on_device: bool = False) -> None:
        self.finishes_on_device = finishes_on_device

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised, contiguous tensor on the CPU."""
        return recycled_tensor(shape, dtype)


class SeededIndices(NamedTuple):
    """What is to be fetched for one batch: the indices, with the seed that transforms draw from."""

    seed: int
    indices: Any


class SeededSampler:
    """An index sampler that says with each batch what transforms are to draw from.

    Args:
        sampler: The sampler of an epoch's batches.
        seed: The epoch's.
        prefetch: Told what has been drawn: it will be read soon.
    """

    def __init__(
        self, sampler: Any, seed: Callable[[], int], prefetch: Callable[[Any], None] | None = None
    ) -> None:
        self._sampler = sampler
        self._seed = seed
        self._prefetch = prefetch

    def __iter__(self) -> Iterator[SeededIndices]:
        for indices in self._sampler:
            if self._prefetch is not None:
                # A hint only: whatever is wrong with these indices, reading them will tell.
                with contextlib.suppress(Exception):
                    self._prefetch(indices)
            yield SeededIndices(self._seed(), indices)

    def __len__(self) -> int:
        return len(self._sampler)


class SeededDataset(Dataset[Any]):
    """Stands in a fetcher for a dataset whose transforms draw from the epoch's seed.

    Args:
        dataset: The dataset.
        fills: Whether a batch is filled by it later; then what is fetched are the indices.
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
            return _samples(self.dataset, seeded.indices)


class BatchMaker:
    """Makes a batch of what a fetcher has fetched: collates samples, or has the dataset fill it.

    Args:
        collate_fn: Collates samples.
        dataset: A dataset for which `fills_batches` holds, and of which indices are fetched; None:
            samples are fetched.
        finishes_on_device: See `fastload.datasets.batch.BatchMemory`.
    """

    def __init__(
        self, collate_fn: Callable[[Any], Any], dataset: Any = None, finishes_on_device: bool = False
    ) -> None:
        self._collate_fn = collate_fn
        self._dataset = dataset
        self._fill = None if dataset is None else _fill(dataset)
        self.finishes_on_device = finishes_on_device

    @property
    def fills(self) -> bool:
        """Whether what it is given are indices."""
        return self._fill is not None

    def __call__(self, fetched: Any, memory: BatchMemory) -> Any:
        """Makes the batch; what the dataset fills lies in `memory`."""
        if self._fill is None:
            return self._collate_fn(fetched)
        with epoch_seed(fetched.seed):
            batch = self._fill(fetched.indices, memory)
            if batch is NotImplemented:
                batch = self._collate_fn(_samples(self._dataset, fetched.indices))
        return batch


def fills_batches(dataset: Any) -> bool:
    """Whether a dataset, or the one that it is a Subset of, can be asked to fill a batch."""
    return _fill(dataset) is not None


def draws_by_seed(dataset: Any) -> bool:
    """Whether a dataset, or one that it is made of, has transforms that draw from the epoch's seed."""
    seen: set[int] = set()
    parts = [dataset]
    while parts:
        part = parts.pop()
        if hasattr(type(part), "fetch_into"):
            return True
        seen.add(id(part))
        # Looked up where plain attributes are: what a dataset of yours computes is not to be run for this.
        attributes = getattr(part, "__dict__", {})
        inner = [attributes.get("dataset"), *_as_list(attributes.get("datasets"))]
        parts += [part for part in inner if isinstance(part, Dataset) and id(part) not in seen]
    return False


def innermost(dataset: Any, name: str) -> Callable[[Any], Any] | None:
    """A method of a dataset that fills batches, or of the one that it is a Subset of; None without one."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return getattr(dataset, name, None)


def prefetcher(dataset: Any) -> Callable[[Any], None] | None:
    """What is told which indices will be read soon, if a dataset wants to know."""
    prefetch = innermost(dataset, "prefetch")
    if prefetch is None or type(dataset) is not Subset:
        return prefetch
    return lambda indices: prefetch(_inner_indices(dataset, indices))


def _as_list(parts: Any) -> list[Any]:
    return list(parts) if isinstance(parts, (list, tuple)) else []


def _inner_indices(dataset: Any, indices: Sequence[int]) -> Sequence[int]:
    while type(dataset) is Subset:
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return indices


def _fill(dataset: Any) -> Fill | None:
    if type(dataset) is Subset:
        fill = _fill(dataset.dataset)
        return None if fill is None else _SubsetFill(fill, dataset)
    return dataset.fetch_into if _has_valid_fetch_into(type(dataset)) else None


def _samples(dataset: Any, indices: Sequence[int]) -> Any:
    """The samples at some indices, as torch's fetcher gets them."""
    if getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(indices)
    return [dataset[index] for index in indices]


class _SubsetFill:
    def __init__(self, fill: Fill, dataset: Subset[Any]) -> None:
        self._fill = fill
        self._dataset = dataset

    def __call__(self, indices: Sequence[int], out: BatchMemory) -> Any:
        return self._fill([self._dataset.indices[index] for index in indices], out)


def _has_valid_fetch_into(kind: type) -> bool:
    for base in kind.__mro__:
        if "fetch_into" in vars(base):
            return True
        if "__getitem__" in vars(base) or "__getitems__" in vars(base):
            return False
    return False
