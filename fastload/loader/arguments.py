"""Arguments of a loader, as strategies and iterators read them, and the values that its user left unset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """torch's parameters that change only the speed."""

    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False


# Attributes of a loader that its view has under the same names.
VIEWED = (
    "batch_size", "batch_sampler", "sampler", "collate_fn", "worker_init_fn",
    "multiprocessing_context", "generator", "in_order",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoaderView:
    """A loader's arguments at the start of an epoch, under torch's names.

    Attributes:
        explicit: The values of `device`, `cache` and the decided parameters that the user has set.
        batches: Batches per epoch; None if unknown or not needed.
        device: The device for batches, checked; None for the CPU's memory.
        thread: Identifier of the thread that created the loader.
        attributes: All other attributes that torch's iterators may read.
    """

    explicit: Mapping[str, Any]
    dataset: Any
    batch_size: int | None
    batch_sampler: Any
    sampler: Any
    collate_fn: Callable[[Any], object]
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: BaseContext | None
    generator: torch.Generator | None
    in_order: bool
    batches: int | None
    device: torch.device | None
    thread: int
    attributes: Mapping[str, object]

    @property
    def is_iterable(self) -> bool:
        """True for an iterable dataset, which has no indices."""
        return isinstance(self.dataset, IterableDataset)

    @property
    def is_batched(self) -> bool:
        """True unless `batch_size=None`."""
        return self.batch_sampler is not None

    @property
    def index_sampler(self) -> Any:
        """The sampler that an epoch reads: of batches, or of single indices without batching."""
        # Without batching, each index is drawn from the sampler itself.
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def sample_sampler(self) -> Any:
        """The index sampler or, if that is torch's BatchSampler, the sampler inside it."""
        sampler = self.index_sampler
        return sampler.sampler if type(sampler) is BatchSampler else sampler

    @property
    def hands_samples(self) -> bool:
        """True if each item is one sample: without batching, a dataset may also make batches itself."""
        return not (self.is_batched or self.is_iterable or isinstance(self.sampler, BatchSampler))


def count_batches(loader: DataLoader[object]) -> int | None:
    """Return the batches of a loader's epoch; None if unknown."""
    # torch remembers that an iterable dataset's length was read, and warns if more samples come.
    if not isinstance(loader.dataset, IterableDataset):
        with contextlib.suppress(Exception):
            return len(loader)
    return None


class Unset(int):
    """Value of a parameter that the user has not set: torch's default, or the decided value.

    A loader created from another loader's attributes, as Lightning does, keeps the parameter unset.
    """

    __slots__ = ()


UNSET: Any = Unset(0)


def is_explicit(value: object) -> bool:
    """Return True if the user has set this argument."""
    return value is not None and not isinstance(value, Unset)


class DecidedAttribute:
    """An attribute of a loader: the user's value or, if that is unset, the one that its strategy has decided.

    The user's value is in the instance's `__dict__`, from which Lightning re-creates loaders.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        attributes = vars(instance)
        if self._name not in attributes:
            raise AttributeError(self._name)
        value, strategy = attributes[self._name], attributes.get("_strategy")
        if is_explicit(value):
            return value
        decided = value if strategy is None else getattr(strategy.options, self._name)
        return None if decided is None else Unset(decided)

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self._name] = value
