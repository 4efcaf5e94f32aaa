"""Loaders of several ranks: the sampler of `sharded=True`, and checks of what each rank gets."""

from __future__ import annotations

import warnings
from typing import Any, Protocol, TypeVar

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from fastload.errors import OptionError
from fastload.loader.sharded_sampler import ShardedSampler
from fastload.loader.sharding import torch_ranks

_Batches = TypeVar("_Batches")


class MayBeSharded(Protocol):
    """A fastload DataLoader."""

    sharded: bool | None
    sampler: Any
    batch_sampler: Any

    @property
    def last_epoch(self) -> object:
        """Times of the latest epoch; None before the first batch."""


class NotPrepared:
    """Attribute `_is_accelerate_prepared`, which Accelerate's `prepare` reads, and sets on its own loaders.

    `prepare` divides the batches of a loader among ranks. Reading the attribute raises OptionError if a
    ShardedSampler has done so already: each rank would get only a part of its part.
    """

    def __get__(self, loader: DataLoader[object] | None, owner: type) -> bool:
        if loader is not None:
            for sampler in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
                if isinstance(sampler, ShardedSampler) and sampler.ranks[0] > 1:
                    raise OptionError(
                        "Accelerate's prepare() would divide this rank's batches among ranks again: leave "
                        "sharded=True and ShardedSampler out, or do not prepare this loader, and give it "
                        "device=accelerator.device"
                    )
        return False


def sharded_arguments(
    dataset: Dataset[object],
    batch_size: int | None,
    shuffle: bool | None,
    sampler: object,
    batch_sampler: _Batches,
    seed: int | None,
    drop_last: bool,
    ends: str | None,
) -> tuple[None, ShardedSampler | None, _Batches | None]:
    """Return `shuffle`, `sampler` and `batch_sampler` of a DataLoader with `sharded=True`.

    Frameworks create the loader again: with its ShardedSampler, with a batch sampler of their own around it,
    or with torch's SequentialSampler in its place, as Lightning does for `predict` and `overfit_batches`.

    Raises:
        OptionError: Another sampler is given, or the dataset has none.
    """
    if isinstance(sampler, ShardedSampler):
        return None, sampler, None
    if isinstance(getattr(batch_sampler, "sampler", None), ShardedSampler):
        return None, None, batch_sampler
    if batch_sampler is not None or not (sampler is None or type(sampler) is SequentialSampler):
        raise OptionError(
            "sharded=True makes a ShardedSampler: leave sampler and batch_sampler out; for samples drawn by "
            "weights or classes, leave sharded out and give sampler=ShardedSampler(dataset, sample_weights=…)"
        )
    if isinstance(dataset, IterableDataset):
        raise OptionError(
            "sharded=True needs a map-style dataset: an iterable one has no indices, so its __iter__ has to "
            "yield the part of its rank and of torch.utils.data.get_worker_info(); leave sharded out "
            '("Iterable datasets" on the documentation\'s page on several GPUs shows how)'
        )
    if batch_size is None:
        raise OptionError("sharded=True needs a batch_size")
    made = ShardedSampler(dataset, shuffle=bool(shuffle), seed=seed or 0, drop_last=drop_last, ends=ends)
    return None, made, None


def warn_if_not_sharded(loader: MayBeSharded) -> None:
    """Warn before the first epoch, on one of several ranks, if each loads all and `sharded` was left unset.

    Other samplers than those that torch's loader makes may know of ranks.
    """
    ranks, rank = torch_ranks()
    if loader.sharded is not None or ranks == 1 or rank != 0 or loader.last_epoch is not None:
        return
    has_torchs_batches = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    if has_torchs_batches and type(loader.sampler) in (RandomSampler, SequentialSampler):
        warnings.warn(
            f"each of {ranks} ranks loads all {len(loader.sampler):,} samples, as with torch's DataLoader "
            "without a DistributedSampler: give sharded=True for a part each, or sharded=False if that is "
            "what you want",
            RuntimeWarning,
            stacklevel=3,
        )
