"""Collation in a worker: makes a batch of the fetched samples, in slots, and serializes it.

Also the errors for parts of a loader that cannot be sent to a worker.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from fastload.datasets.batch import BatchMemory, HostMemory
from fastload.datasets.compiled.stand_in import StandIn
from fastload.errors import UnpicklableError
from fastload.loader.arguments import LoaderView
from fastload.loader.clock import (
    StatsRecorder,
    count_samples,
    process_recorder,
    use_recorder,
)
from fastload.loader.resume.dataset_states import BatchWithState, StatefulIterable, WorkerCopy
from fastload.loader.torch_private import collate_tensor_fn, default_collate_fn_map
from fastload.loader.transport.making import BatchMaker, SampleSource
from fastload.loader.transport.memory import Arena
from fastload.loader.transport.serialization import BatchSerializer, is_plain
from fastload.system.memory import keep_freed_memory


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


@contextlib.contextmanager
def naming_unpicklable_parts(loader: LoaderView) -> Iterator[None]:
    """Raise UnpicklableError, which names the part, if workers fail to start because of a loader's part."""
    context = loader.multiprocessing_context or multiprocessing
    method = context.get_start_method()
    if method == "fork":
        yield
        return
    try:
        with warnings.catch_warnings():
            # torch warns before it raises pickle's error.
            warnings.filterwarnings("ignore", "Got pickle error when attempting to start")
            yield
    except Exception as error:
        for name in ("dataset", "collate_fn", "worker_init_fn"):
            if why := why_not_picklable(getattr(loader, name)):
                raise UnpicklableError(
                    f"workers that are started by {method} receive a pickled copy of the loader's parts, and "
                    f"{name} cannot be pickled ({why}): define functions and classes at the top level of a "
                    "module, open files in __getitem__, or set num_workers=0"
                ) from error
        raise


class _Probe(pickle.Pickler):
    """Pickler that discards its output and skips large parts that are known to be picklable."""

    def reducer_override(self, value: object) -> Any:
        is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
        if is_array or isinstance(value, (torch.Tensor, Connection, socket.socket)):
            return int, ()
        return NotImplemented


def why_not_picklable(value: object) -> str:
    """Return pickle's reason why a value cannot be pickled; "" if it can be."""
    try:
        with open(os.devnull, "wb") as nowhere:
            _Probe(nowhere, 5).dump(value)
    except RecursionError:
        return "it is nested too deeply"
    except RuntimeError:
        return ""  # a lock or queue of multiprocessing, which can be sent while a process is started
    except Exception as error:
        # From Python 3.14 on, pickle's notes tell where the part is.
        reasons = str(error) or type(error).__name__, *getattr(error, "__notes__", ())
        return " ".join(" ".join(reasons).split())
    return ""
