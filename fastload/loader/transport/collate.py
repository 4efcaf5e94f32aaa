"""What a worker does with what it has fetched: makes it a batch, in slots, and sends that."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from fastload.loader.transport.filling import BatchMaker, OrdinaryMemory, SeededDataset
from fastload.loader.transport.ledger import Ledger, keep, kept, samples_in
from fastload.loader.transport.memory import Arena
from fastload.loader.transport.parcel import Packer, is_plain
from fastload.loader.transport.stateful import Stamped, StatefulIterable

if TYPE_CHECKING:
    from fastload.datasets.batch import BatchMemory

# Half of what a pipe holds before it has to be emptied.
_SHORT_TEXT = 32768


class WorkerCollate:
    """A worker's `collate_fn`.

    Tensors that `default_collate` stacks are stacked in their slot, also where the user's own collate_fn
    calls it. Everything else is moved there afterwards.

    Args:
        make: Makes a batch of what was fetched.
        arena: The memory shared with the training process; None: batches go torch's way.
        stateful: A dataset whose state is to travel with each batch.
    """

    def __init__(
        self, make: BatchMaker, arena: Arena | None, stateful: StatefulIterable | None = None
    ) -> None:
        self._make = make
        self._arena = arena
        self._stateful = stateful
        self._packer: Packer | None = None

    def __call__(self, fetched: Any) -> Any:
        """Makes a batch of what was fetched; returns what goes into the queue."""
        if self._arena is None:
            return self._batch(fetched, OrdinaryMemory(self._make.finishes_on_device))
        packer = self._packer or self._first_packer(self._arena)
        ledger = kept()
        ledger.fetched(samples_in(fetched))
        packer.begin()
        try:
            batch = self._make(fetched, packer) if self._stateful is None else self._batch(fetched, packer)
            sent = batch if _is_short_text(batch) else packer.pack(batch)
        finally:
            packer.end()
        ledger.end()
        return sent

    def _batch(self, fetched: Any, memory: BatchMemory) -> Any:
        batch = self._make(fetched, memory)
        state = self._stateful.state() if self._stateful is not None else None
        if not state:
            return batch
        worker = get_worker_info()
        assert worker is not None
        return Stamped(batch, worker.id, state)

    def _first_packer(self, arena: Arena) -> Packer:
        worker = get_worker_info()
        assert worker is not None
        self._packer = packer = Packer(arena, worker.id, self._make.finishes_on_device)
        # torch documents this table as the place to change what default_collate does. This process
        # is a worker, and what a user has put there stays.
        if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
            default_collate_fn_map[torch.Tensor] = _Stack(packer)
        return packer


class WorkerInit:
    """A worker's `worker_init_fn`: what fastload sets in a worker, then the user's own.

    Args:
        init_fn: The user's.
        arena: The memory shared with the training process, if any.
    """

    def __init__(self, init_fn: Callable[[int], None] | None, arena: Arena | None) -> None:
        self._init_fn = init_fn
        self._arena = arena

    def __call__(self, worker_id: int) -> None:
        """Prepares the worker that calls it."""
        _limit_opencv_to_one_thread()
        worker = get_worker_info()
        assert worker is not None
        if self._arena is not None:
            keep(Ledger(self._arena.ledgers[worker.id]))
        # The dataset's stand-ins are nobody's business; the class forbids plain assignment.
        if isinstance(worker.dataset, SeededDataset | StatefulIterable):
            object.__setattr__(worker, "dataset", worker.dataset.dataset)
        if self._init_fn is not None:
            self._init_fn(worker_id)


class _Stack:
    """Stands for torch's `collate_tensor_fn`, whose result it makes in a slot."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer

    def __call__(self, samples: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        first = samples[0]
        out = None
        if is_plain(first):
            out = self._packer.empty_or_none((len(samples), *first.shape), first.dtype)
        if out is None:
            return self._torchs(samples, collate_fn_map)
        with contextlib.suppress(Exception):
            return torch.stack(samples, 0, out=out)  # type: ignore[arg-type]
        # Torch's own function says what is wrong with them.
        return self._torchs(samples, collate_fn_map)

    def _torchs(self, samples: Sequence[torch.Tensor], collate_fn_map: Any) -> torch.Tensor:
        stacked: torch.Tensor = collate_tensor_fn(samples, collate_fn_map=collate_fn_map)
        return stacked


def _is_short_text(batch: Any) -> bool:
    """Whether a batch seems to be a few strings, which torch's way is best for (by 4 of 80 µs)."""
    return (
        type(batch) in (list, tuple)
        and len(batch) > 0
        and type(batch[0]) is type(batch[-1]) is str
        and len(batch) * len(batch[0]) <= _SHORT_TEXT
    )


def _limit_opencv_to_one_thread() -> None:
    """Workers are as many as the CPUs already; OpenCV's own threads may hang after a fork besides.

    (opencv/opencv 15277, pytorch/pytorch 1355.)
    """
    opencv = sys.modules.get("cv2")
    if opencv is None:
        # OpenCV reads it when it is imported.
        os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")
        return
    with contextlib.suppress(AttributeError):
        opencv.setNumThreads(0)
