"""Arguments of a loader and of its epochs, as strategies and iterators read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, IterableDataset

from fastload.loader._resume.progress import Progress
from fastload.loader.clock import StepClock

if TYPE_CHECKING:
    from fastload.loader._iterators import WorkersIterator
    from fastload.loader.dataloader import DataLoader


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """torch's parameters that change only the speed."""

    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False


@dataclass(frozen=True, slots=True)
class LoaderView:
    """A loader's arguments at the start of an epoch, under torch's names.

    Attributes:
        explicit: The values that the user has set among the decidable parameters, `device` and `cache`.
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
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    generator: torch.Generator | None
    in_order: bool
    batches: int | None
    device: torch.device | None
    thread: int
    attributes: Mapping[str, Any]

    @property
    def is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def is_batched(self) -> bool:
        return self.batch_sampler is not None

    @property
    def index_sampler(self) -> Any:
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


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The input of an epoch's iterator: the loader sets the first three fields, its strategy the others.

    Attributes:
        progress: The epoch's progress, which the iterator keeps up to date.
        clock: The epoch's clock.
        worker_seeds: Source of the workers' seeds; None: the loader's generator.
        order: The rest of the epoch's order, if another iterator has begun it.
        seeds_batches: True if random numbers are seeded per batch, so that all processes draw the same.
        after_first: Called once by a WorkersIterator, with itself, after its first batch.
    """

    progress: Progress
    clock: StepClock
    worker_seeds: torch.Generator | None
    options: WorkerOptions = WorkerOptions()
    order: Iterator[Any] | None = None
    seeds_batches: bool = False
    after_first: Callable[[WorkersIterator], None] | None = None


class Unset(int):
    """Value of a parameter that the user has not set: torch's default, or the decided value.

    A loader created from another loader's attributes, as Lightning does, keeps the parameter unset.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Unset, (int(self),)


UNSET: Any = Unset(0)


def is_explicit(value: Any) -> bool:
    return value is not None and not isinstance(value, Unset)


class DecidedAttribute:
    """An attribute of a loader: the user's value or, if that is unset, the decided one.

    The user's value is in the instance's `__dict__`, from which Lightning re-creates loaders.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: DataLoader[Any] | None, owner: type) -> Any:
        if instance is None:
            return self
        try:
            value = vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        if is_explicit(value):
            return value
        strategy = instance._strategy
        decided = value if strategy is None else getattr(strategy.options, self._name)
        return None if decided is None else Unset(decided)

    def __set__(self, instance: DataLoader[Any], value: Any) -> None:
        vars(instance)[self._name] = value
