"""The private members of torch that the loader uses, and the check that this torch has them.

torch's iterators start, watch and end workers, keep batches in order and pass on exceptions. The loader's
iterators derive from them, and use members that torch does not promise to keep. They are named only here, and
checked once, when this module is imported. If one is missing, `missing` names it, and the loader uses torch's
own iterators.
"""

from __future__ import annotations

import importlib
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from torch.utils.data import dataloader as _dataloader

    MultiProcessBase = _dataloader._MultiProcessingDataLoaderIter
    SingleProcessBase = _dataloader._SingleProcessDataLoaderIter

# Methods that are overridden or called, and attributes of instances that are read or set.
MEMBERS = frozenset({
    # of the single-process iterator
    "__next__", "_base_seed", "_dataset", "_dataset_fetcher", "_dataset_kind", "_index_sampler", "_next_data",
    "_next_index", "_num_workers", "_num_yielded", "_profile_name", "_reset", "_sampler_iter",
    # of that with workers
    "__del__", "_data_queue", "_get_data", "_in_order", "_persistent_workers", "_prefetch_factor",
    "_rcvd_idx", "_send_idx", "_shutdown_workers", "_task_info", "_tasks_outstanding", "_try_get_data",
    "_try_put_index", "_worker_pids_set", "_worker_queue_idx_cycle", "_workers",
    # of the loader
    "_IterableDataset_len_called", "_auto_collation", "_get_iterator", "_iterator",
})  # fmt: skip

missing: list[str] = []
"""The members that this torch lacks; empty if the loader can use its own iterators."""


def _found(module: str, name: str, otherwise: Any = None) -> Any:
    """Return a member of a module; if there is none, record that and return `otherwise`."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        missing.append(f"{module}.{name}")
        return otherwise


def names_in(kind: type) -> set[str]:
    """Return all names in the code of a class's methods, those of attributes and inherited ones included."""
    names: set[str] = set()
    for value in (value for base in kind.__mro__ for value in vars(base).values()):
        function = value.fget if isinstance(value, property) else value
        if isinstance(function, types.FunctionType):
            names.update(function.__code__.co_names, [function.__name__])
    return names


class _StandIn:
    """Base of the loader's classes if torch's are missing; they are then never created."""


if not TYPE_CHECKING:
    SingleProcessBase = _found("torch.utils.data.dataloader", "_SingleProcessDataLoaderIter", _StandIn)
    MultiProcessBase = _found("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", _StandIn)

# Collation in a worker, and pinning of a batch.
collate_tensor_fn = _found("torch.utils.data._utils.collate", "collate_tensor_fn")
default_collate_fn_map = _found("torch.utils.data._utils.collate", "default_collate_fn_map", {})
pin_memory = _found("torch.utils.data._utils.pin_memory", "pin_memory")

# Sent by a worker whose iterable dataset has ended.
EndOfWorker = _found("torch.utils.data._utils.worker", "_IterableDatasetStopIteration", _StandIn)

# Stops torch's SIGCHLD handler from raising an error when these workers die.
remove_worker_pids = _found("torch._C", "_remove_worker_pids")

# True while a profiler records this thread.
is_profiling: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)

# Raises a worker's exception in the training process.
reraise: Any = getattr(_found("torch._utils", "ExceptionWrapper"), "reraise", None)
if not isinstance(reraise, types.FunctionType):
    missing.append("torch._utils.ExceptionWrapper.reraise")

missing += sorted(MEMBERS.difference(*map(names_in, (SingleProcessBase, MultiProcessBase, DataLoader))))


def explanation() -> str:
    """Return why torch's own iterators are used, as a sentence; "" if they are not."""
    if not missing:
        return ""
    return (
        f"torch {torch.__version__} lacks {', '.join(missing)}, on which fastload's iterators rely: torch's "
        "own iterators are used, without shared-memory slots, resuming and tuning"
    )


if missing:
    warnings.warn(explanation(), RuntimeWarning, stacklevel=2)
