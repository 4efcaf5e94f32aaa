"""Making of a batch, in any process: its samples, datasets that fill it, and collation.

A dataset may fill a batch itself, by `fetch_into(indices, out)`, instead of samples and collation. The method
returns what `default_collate` would return for the samples at these indices, or NotImplemented if they must
be fetched one by one. `out.empty` allocates tensors of the batch: in shared memory in a worker, in ordinary
memory otherwise. The method is used only if the batch would be made by `default_collate` and no subclass
overrides `__getitem__` or `__getitems__` below it. A collate function may have a method
`collate_into(samples, out)`, which allocates tensors in the same way. Methods whose parameters have other
names are the user's own, and are not called.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils.data import Dataset, get_worker_info

from fastload.contracts import BatchMemory, CollatesInto, FillsBatches, implements
from fastload.datasets.batch import HostMemory
from fastload.datasets.compiled.stand_in import StandIn
from fastload.datasets.within import is_plain_subset
from fastload.loader.clock import StatsRecorder, count_samples, process_recorder, use_recorder
from fastload.loader.resume.dataset_states import BatchWithState, StatefulIterable, WorkerCopy
from fastload.loader.torch_private import collate_tensor_fn, default_collate_fn_map
from fastload.loader.transport.memory import Arena
from fastload.loader.transport.serialization import BatchSerializer, is_plain
from fastload.system.memory import keep_freed_memory
from fastload.transforms.draws import EpochDraws, current_draws


class SampleSource(Dataset[object]):
    """Wrapper of a map-style dataset that tells transforms which sample is being made.

    If `fills`, it returns the indices themselves, because a `BatchMaker` fills the batch later.
    """

    def __init__(self, dataset: Dataset[object], fills: bool) -> None:
        self.dataset = dataset
        self._fills = fills
        self._begins_samples = not can_fill_batches(dataset)

    def __getitem__(self, index: int) -> object:
        _draws().begin([index], True)
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> object:
        return indices if self._fills else _fetch_samples(self.dataset, indices, self._begins_samples)


class BatchMaker:
    """Makes a batch: collates fetched samples, or has `dataset` fill the batch at the fetched indices.

    Unless `is_batched`, what is fetched is one sample.
    """

    def __init__(
        self,
        collate_fn: Callable[[Any], object],
        is_batched: bool,
        dataset: Dataset[object] | None = None,
        finishes_on_device: bool = False,
    ) -> None:
        self.is_batched = is_batched
        self._collate_fn = collate_fn
        is_into = implements(collate_fn, CollatesInto.collate_into)
        self._collates_into = cast(CollatesInto, collate_fn) if is_into else None
        self._dataset = dataset
        self.finishes_on_device = finishes_on_device

    def __call__(self, fetched: Any, memory: BatchMemory) -> object:
        """Return the batch; tensors that the dataset fills are allocated from `memory`."""
        if self._dataset is None:
            if self._collates_into is not None:
                return self._collates_into.collate_into(samples=fetched, out=memory)
            return self._collate_fn(fetched)
        dataset, indices = innermost(self._dataset, fetched)
        _draws().begin(indices, False)
        batch = dataset.fetch_into(indices=indices, out=memory)
        if batch is NotImplemented:
            return self._collate_fn(_fetch_samples(dataset, indices, begins_samples=False))
        return batch


def innermost(dataset: object, indices: Sequence[int] = ()) -> tuple[Any, Sequence[int]]:
    """Return the dataset that a Subset, or a Subset of one, refers to, and the indices there."""
    while is_plain_subset(dataset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def can_fill_batches(dataset: object) -> bool:
    """Return whether a dataset, or the one that it is a Subset of, has a usable `fetch_into`."""
    inner, _ = innermost(dataset)
    if not makes_batches(inner):
        return False
    for base in type(inner).__mro__:
        if "fetch_into" in vars(base):
            return True
        if "__getitem__" in vars(base) or "__getitems__" in vars(base):
            return False
    return False


def makes_batches(dataset: object) -> bool:
    """Return whether a dataset's class fills batches, so that its other methods are those of the contracts.

    Others may have methods of equal names, or forward the attributes of a dataset inside.
    """
    return implements(dataset, FillsBatches.fetch_into)


def _fetch_samples(dataset: Any, indices: Sequence[int], begins_samples: bool) -> object:
    # The same as in torch's fetcher.
    of_loader, draws = indices, _draws()
    dataset, indices = innermost(dataset, indices)
    if getattr(dataset, "__getitems__", None):
        draws.begin(indices, begins_samples)
        samples = dataset.__getitems__(indices)
    else:
        samples = [dataset[index] for index in draws.each(indices)]
    draws.begin_collating(of_loader)
    return samples


def _draws() -> EpochDraws:
    draws = current_draws()
    assert draws is not None
    return draws


class WorkerCollate:
    """A worker's `collate_fn`; its `begin_worker` is the `worker_init_fn`.

    Tensors that `default_collate` stacks are stacked in their slot, even if a custom collate_fn calls it;
    everything else is copied there afterwards. Without an arena, batches are sent in torch's own way.
    """

    def __init__(
        self,
        make: BatchMaker,
        arena: Arena | None,
        stateful: StatefulIterable | WorkerCopy | None,
        init_fn: Callable[[int], None] | None,
    ) -> None:
        self._make = make
        self._arena = arena
        self._stateful = stateful
        self._init_fn = init_fn
        self._serializer: BatchSerializer | None = None

    def begin_worker(self, worker_id: int) -> None:
        """Apply fastload's own settings to a worker, and call the user's `worker_init_fn`."""
        _limit_opencv_to_one_thread()
        keep_freed_memory()  # a spawned worker inherits no setting
        worker = get_worker_info()
        # get_worker_info() must show the user's dataset, not a wrapper; its class forbids plain assignment.
        if worker is not None and isinstance(worker.dataset, SampleSource | StatefulIterable):
            source = worker.dataset.dataset
            users = source.theirs if isinstance(source, StandIn) else source
            object.__setattr__(worker, "dataset", users)
        if self._init_fn is not None:
            self._init_fn(worker_id)
        if self._stateful is not None:
            self._stateful.begin_worker(worker_id)
        if self._arena is None:
            return
        use_recorder(StatsRecorder(memoryview(self._arena.worker_stats[worker_id])))
        self._serializer = BatchSerializer(self._arena, worker_id, self._make.finishes_on_device)
        # torch documents this table as the way to change default_collate; a custom function in it stays.
        if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
            default_collate_fn_map[torch.Tensor] = functools.partial(_stack_in_slot, self._serializer)

    def __call__(self, fetched: object) -> object:
        """Return the object to put into the queue for the fetched samples."""
        serializer = self._serializer
        if serializer is None:
            return self._batch(fetched, HostMemory(self._make.finishes_on_device))
        recorder = process_recorder()
        recorder.fetched(count_samples(fetched, self._make.is_batched))
        serializer.begin()
        try:
            sent = serializer.serialize(self._batch(fetched, serializer))
        finally:
            serializer.end()
        recorder.end()
        return sent

    def _batch(self, fetched: object, memory: BatchMemory) -> object:
        batch = self._make(fetched, memory)
        worker = get_worker_info()
        if self._stateful is None or worker is None or (state := self._stateful.state()) is None:
            return batch
        return BatchWithState(batch, worker.id, state)


def _stack_in_slot(
    serializer: BatchSerializer, samples: Sequence[torch.Tensor], *, collate_fn_map: object = None
) -> torch.Tensor:
    """Replacement for torch's `collate_tensor_fn` that stacks into a slot."""
    first = samples[0]
    out = None
    if is_plain(first):
        out = serializer.empty_or_none((len(samples), *first.shape), first.dtype)
    if out is not None:
        with contextlib.suppress(Exception):
            return torch.stack(samples, 0, out=out)  # type: ignore[arg-type]
    # Also for samples that cannot be stacked: torch's own function raises the error that users know.
    stacked: torch.Tensor = collate_tensor_fn(samples, collate_fn_map=collate_fn_map)
    return stacked


def _limit_opencv_to_one_thread() -> None:
    # There is a worker for each CPU, and threads may hang after a fork (opencv/opencv 15277).
    opencv = sys.modules.get("cv2")
    if opencv is None:
        # OpenCV reads this variable when it is imported.
        os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")
        return
    with contextlib.suppress(AttributeError):
        opencv.setNumThreads(0)
