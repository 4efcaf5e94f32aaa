"""Interface of the strategies by which a loader begins its epochs.

A loader has one strategy at a time: loading in the training process, in workers, in the way that was measured
to be best, or on the device. A strategy reads a view of the loader, returns iterators and plans, and has no
reference to the loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from fastload.loader._resume.progress import Progress
from fastload.loader.clock import StepClock

if TYPE_CHECKING:
    from fastload.loader._caching import LoaderCache
    from fastload.loader._tuning.plan import Plan


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
        explicit: The parameters that the user has set, of those that can be decided; also device and cache.
        is_iterable: Whether the dataset is an IterableDataset.
        batches: Batches per epoch; None if unknown or not needed.
        device: The device for batches, checked; None for the CPU's memory.
        thread: Identifier of the thread that created the loader.
        attributes: All other attributes that torch's iterators may read.
    """

    explicit: Mapping[str, Any]
    dataset: Any
    is_iterable: bool
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
    def is_batched(self) -> bool:
        return self.batch_sampler is not None

    @property
    def index_sampler(self) -> Any:
        # Without batching, it draws the index of a sample.
        return self.sampler if self.batch_sampler is None else self.batch_sampler


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The input of an epoch's iterator: the loader sets the first three fields, its strategy the others.

    Attributes:
        progress: The epoch's progress, which the iterator keeps up to date.
        clock: The epoch's clock.
        worker_seeds: Source of the workers' seeds; None: the loader's generator.
        order: The rest of the epoch's order, if another iterator has begun it.
        reads_samples: Whether samples are read; if not, nothing is read ahead.
        seeds_batches: Whether the random numbers of a batch are seeded per batch, equal in every process.
        watch: Called with a WorkersIterator after its first batch, and again after as many batches as it
            returned.
    """

    progress: Progress
    clock: StepClock
    worker_seeds: torch.Generator | None
    options: WorkerOptions = WorkerOptions()
    order: Iterator[Any] | None = None
    reads_samples: bool = True
    seeds_batches: bool = False
    watch: Callable[[Any], int] | None = None


class EpochIterator(Protocol):
    """An iterator of one epoch."""

    clock: StepClock

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def draw_first(self) -> None:
        """Let the sampler make its draws of the epoch's beginning."""


class EpochStrategy(Protocol):
    """A way of beginning a loader's epochs."""

    @property
    def explicit(self) -> Mapping[str, Any]:
        """The explicit parameters that the strategy was chosen for."""

    @property
    def options(self) -> WorkerOptions:
        """The values that the loader's attributes show; no workers while their number is not settled."""

    @property
    def plan(self) -> Plan:
        """Each choice and the measurement behind it, apart from the cache."""

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        """Decide how the next epoch begins; called before each epoch, also with persistent workers.

        A cache is open. If it is `"auto"`, it is decided here, or by an epoch that measures.
        """

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        """Return an epoch's iterator."""
