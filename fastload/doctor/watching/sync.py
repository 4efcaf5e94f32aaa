"""Messages between the ranks of one training, and their gradient synchronisation by torch's timers."""

from __future__ import annotations

import functools
import math
import pickle
import time
import weakref
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch.distributed
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from fastload.doctor.watching.torch_calls import default_store, latest_sync, time_syncs
from fastload.system.patching import patched

_POLL_S = 0.05


class Exchange:
    """Messages between the ranks through their process group's key-value store; lost if the store is."""

    def __init__(self, store: distributed_c10d.Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store = distributed_c10d.PrefixStore("fastload-doctor", store)

    def post(self, subject: str, message: object) -> None:
        """Leave a message of this rank for all others."""
        with suppress(RuntimeError):
            self._store.set(f"{subject}/{self.rank}", pickle.dumps(message))  # type: ignore[arg-type] # torch takes bytes, too

    def collect(self, subject: str, ranks: Collection[int], most_s: float) -> dict[int, Any]:
        """Return the messages of some ranks that arrive within `most_s`."""
        found: dict[int, Any] = {}
        ends_at = time.perf_counter() + most_s
        with suppress(RuntimeError):
            while True:
                for rank in set(ranks) - set(found):
                    if self._store.check([f"{subject}/{rank}"]):
                        # Of this job's own processes, as in torch's gather_object.
                        found[rank] = pickle.loads(self._store.get(f"{subject}/{rank}"))
                if len(found) == len(ranks) or time.perf_counter() >= ends_at:
                    break
                time.sleep(_POLL_S)
        return found


class SyncWatch:
    """Reads how long the DistributedDataParallel modules of this process synchronise gradients.

    torch times each backward pass, on a GPU by CUDA events, and publishes the result in the next forward
    pass. `steps` counts synchronisations; in lockstep, all ranks count alike. `gradient_bytes` is the size
    of the gradients of all modules.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.gradient_bytes = 0
        self.exchange: Exchange | None = None
        self._exposed_s = self._total_s = 0.0
        # The latest published step of each module, and the size of its gradients.
        self._published = weakref.WeakKeyDictionary[DistributedDataParallel, tuple[int, int]]()
        self._last_step: float | None = None

    def watching(self) -> AbstractContextManager[None]:
        """Time the modules that are created in the block."""
        original = DistributedDataParallel.__init__

        @functools.wraps(original)
        def init(module: DistributedDataParallel, *given: Any, **options: Any) -> None:
            original(module, *given, **options)
            self._published[module] = 0, 0
            time_syncs(module, 1)  # each backward pass, rather than every hundredth

        return patched((DistributedDataParallel, "__init__", init))

    def seconds(self) -> tuple[float, float]:
        """Return two sums: synchronisation after the backward pass's own work, and all of it."""
        if self.exchange is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
            self.exchange = Exchange(default_store(), rank, size)
        for module, (before, _) in list(self._published.items()):
            times = latest_sync(module)
            if times["iteration"] != before:
                self._published[module] = times["iteration"], times["total_parameter_size_bytes"]
                total_ns = times.get("backward_comm_time", 0)
                self._total_s += total_ns / 1e9
                overlap_ns = times.get("backward_compute_comm_overlap_time", 0)
                self._exposed_s += max(0, total_ns - overlap_ns) / 1e9
                self.steps += 1
                self.gradient_bytes = sum(size_bytes for _, size_bytes in self._published.values())
        return self._exposed_s, self._total_s

    def is_end(self, batches: int, is_late: bool) -> bool:
        """Return True if this rank must stop after this batch; `is_late`: its own time is up.

        A rank that ended before the others would leave them waiting for its gradients. So rank 0 names the
        synchronisation after which all end (if none is timed, the batch); no other rank can be more than one
        ahead of it.
        """
        if self.exchange is None:
            return is_late
        steps = self.steps or batches
        if self._last_step is None and self.exchange.rank:
            self._last_step = self.exchange.collect("last step", [0], 0.0).get(0)
        elif self._last_step is None and is_late:
            self._last_step = steps + 2
            self.exchange.post("last step", self._last_step)
        return steps >= (math.inf if self._last_step is None else self._last_step)
