"""Contracts between rooms: read this first.

A loader asks a dataset only for `dataset[index]`. One that can do more keeps some of the contracts below;
`PackedDataset` keeps all of them. A user's dataset may have methods of equal names for other purposes, so a
method counts only if it takes parameters of the contract's names (`implements`), and the loader looks for the
others only in a dataset that fills batches; a ShardedSampler asks any dataset for `LiesInShards`.

    indices ──Prefetches──▶ the disk reads ahead
    indices ──FillsBatches──▶ a batch in BatchMemory ──FinishesBatches──▶ the batch on its device
    samples ──CollatesInto──▶ a batch in BatchMemory

Images are (batch, channels, height, width); indices are those of `dataset[index]`, within a `Subset` already
translated to those of its dataset. Contracts of one room lie in it, from the file to the model:

    layouts        `sources.layouts` (all), `sources.protocol` (reading), `sources.writing` (unpacking)
    packing        `sources.file_source.ReadsFiles`, for a dataset whose samples are files
    shards         `shards.container`
    encodings      `images.encodings`, and `images.region` for whatever pixels can be asked for by region
    transforms     `transforms.transform`
    samples        `datasets.batch` (a batch's images), `datasets.cache.sample_cache`
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


class BatchMemory(Protocol):
    """Allocator of a batch's tensors: shared memory in a worker, ordinary memory in the training process.

    The memory belongs to the batch, and is used again once no tensor of the batch is left: whoever fills it
    keeps no reference.
    """

    finishes_on_device: bool
    """True if the batch moves to a device, and `FinishesBatches.finish` is called there."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialised, contiguous tensor on the CPU."""


class FillsBatches(Protocol):
    """A dataset that makes a complete batch at once."""

    def fetch_into(self, indices: Sequence[int], out: BatchMemory) -> object:
        """Return the result of `default_collate` for the samples, in tensors that `out` allocates.

        Returns NotImplemented if they must be fetched one by one. Raises what `dataset[index]` raises.
        """


class FinishesBatches(Protocol):
    """A dataset that leaves the last step of a batch to its device, if `out.finishes_on_device`.

    Nothing marks the batches whose last step was left, so it must show in the images themselves: the datasets
    of this library leave it only to uint8 images, which it makes floating point.
    """

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        """Return the final images, given the first part of a batch on the device.

        Called for each batch that is a list whose first part is a tensor, also if its samples were made one
        by one: final images are returned unchanged.
        """


class Prefetches(Protocol):
    """A dataset that can ask the system to read samples ahead."""

    def prefetch(self, indices: Sequence[int]) -> None:
        """Start reading samples that are needed soon, without waiting; called in the training process."""


class ReadsAhead(Protocol):
    """Reader of an epoch's later batches in the background; it stops once the loader drops it."""

    @property
    def is_full(self) -> bool:
        """True as long as no more batches should be announced."""

    def want(self, batch: int, indices: Sequence[int]) -> None:
        """Announce a later batch; called in the order of the epoch."""


class AnnouncesBatches(Protocol):
    """A dataset that wants to know the order of an epoch, such as one whose shards are fetched from a URL."""

    def read_ahead(self, position: Callable[[], int], in_flight: int) -> ReadsAhead | None:
        """Return the reader of an epoch, or None if the dataset needs none.

        `position` returns the number of batches that have been handed out; `in_flight` are loaded at once.
        """


@runtime_checkable
class LiesInShards(Protocol):
    """A dataset whose samples lie in shards, which are read fastest one after the other."""

    @property
    def shard_sizes(self) -> Sequence[int]:
        """The number of samples in each shard; indices count through all of them."""


@runtime_checkable
class KnowsLimits(Protocol):
    """A dataset that knows what of this process makes reading it slow."""

    @property
    def limits(self) -> Sequence[str]:
        """Such limits, as sentences with the remedy; a loader's plan shows them."""


@runtime_checkable
class DrawsFromEpochSeed(Protocol):
    """A dataset that knows where its random numbers come from."""

    @property
    def draws_from_epoch_seed_only(self) -> bool:
        """True if making samples of an epoch that has a seed uses no global random generator."""


class CollatesInto(Protocol):
    """A collate function that can write a batch into given memory."""

    def collate_into(self, samples: Sequence[object], out: BatchMemory) -> object:
        """Return the batch that the function itself would return, in tensors that `out` allocates."""


def implements(owner: object, method: Callable[..., object]) -> bool:
    """Return whether an object's class has a contract's method, with parameters of the same names.

    Args:
        owner: A dataset, or a collate function.
        method: The method of the contract, such as `FillsBatches.fetch_into`.
    """
    # An attribute of the object alone may be that of a dataset inside, to which the object forwards.
    if not callable(getattr(type(owner), method.__name__, None)):
        return False
    names = list(inspect.signature(method).parameters)[1:]
    try:
        inspect.signature(getattr(owner, method.__name__)).bind(**dict.fromkeys(names))
    except (TypeError, ValueError):  # other parameters, or unknown ones
        return False
    return True
