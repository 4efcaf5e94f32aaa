"""The private members of torch that the loader uses, and the check that this torch has them.

torch's iterators start, watch and end workers, keep batches in order and pass on exceptions. The loader's
iterators derive from them, and use members that torch does not promise to keep. They are named only here, and
checked once, when this module is imported. If one is missing, `missing` names it, and the loader uses torch's
own iterators.
"""

from __future__ import annotations

import importlib
import itertools
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from torch.utils.data import dataloader as _dataloader

    MultiProcessBase = _dataloader._MultiProcessingDataLoaderIter
    SingleProcessBase = _dataloader._SingleProcessDataLoaderIter

_DATALOADER = "torch.utils.data.dataloader"

# Methods that are overridden or called, and attributes of instances that are read or set: an attribute exists
# if one of the class's methods names it.
_MEMBERS: dict[str, list[str]] = {
    "_SingleProcessDataLoaderIter": [
        "__next__", "_base_seed", "_dataset", "_dataset_fetcher", "_dataset_kind", "_index_sampler",
        "_next_data", "_next_index", "_num_workers", "_num_yielded", "_profile_name", "_reset",
        "_sampler_iter",
    ],
    "_MultiProcessingDataLoaderIter": [
        "__del__", "_data_queue", "_get_data", "_in_order", "_next_data", "_persistent_workers",
        "_prefetch_factor", "_rcvd_idx", "_send_idx", "_shutdown_workers", "_task_info",
        "_tasks_outstanding", "_try_get_data", "_try_put_index", "_worker_pids_set",
        "_worker_queue_idx_cycle", "_workers",
    ],
    "DataLoader": [
        "_IterableDataset_len_called", "_auto_collation", "_dataset_kind", "_get_iterator", "_index_sampler",
        "_iterator",
    ],
}  # fmt: skip

missing: list[str] = []
"""The members that this torch lacks; empty if the loader can use its own iterators."""


def _found(module: str, name: str, otherwise: object = None) -> Any:
    """Return a member of a module; if there is none, record that and return `otherwise`."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        missing.append(f"{module}.{name}")
        return otherwise


def names_in(kind: type) -> set[str]:
    """Return all names in the code of a class's methods, inherited ones included."""
    names: set[str] = set()
    for value in itertools.chain.from_iterable(vars(base).values() for base in kind.__mro__):
        function = value.fget if isinstance(value, property) else value
        if isinstance(function, types.FunctionType):
            names.update(function.__code__.co_names, [function.__name__])
    return names


class _StandIn:
    """Base of the loader's iterators if torch's classes are missing; they are then never created."""


if not TYPE_CHECKING:
    SingleProcessBase = _found(_DATALOADER, "_SingleProcessDataLoaderIter", _StandIn)
    MultiProcessBase = _found(_DATALOADER, "_MultiProcessingDataLoaderIter", _StandIn)

# Collation in a worker, and pinning of a batch.
collate_tensor_fn: Any = _found("torch.utils.data._utils.collate", "collate_tensor_fn")
default_collate_fn_map: Any = _found("torch.utils.data._utils.collate", "default_collate_fn_map", {})
pin_memory: Any = _found("torch.utils.data._utils.pin_memory", "pin_memory")

# Sent by a worker whose iterable dataset has ended.
EndOfWorker: Any = _found("torch.utils.data._utils.worker", "_IterableDatasetStopIteration", _StandIn)

# Stops torch's SIGCHLD handler from raising an error when these workers die.
remove_worker_pids: Any = _found("torch._C", "_remove_worker_pids")

# Raises a worker's exception in the training process.
_reraise: Any = getattr(_found("torch._utils", "ExceptionWrapper"), "reraise", None)
if not isinstance(_reraise, types.FunctionType):
    missing.append("torch._utils.ExceptionWrapper.reraise")

for _owner, _member in ((torch.Tensor, "_version"), (torch.UntypedStorage, "_cdata")):
    if not hasattr(_owner, _member):
        missing.append(f"torch.{_owner.__name__}.{_member}")

_utils: Any = _found("torch.utils.data", "_utils")
_found("torch.utils.data._utils", "python_exit_status")

for _kind in (SingleProcessBase, MultiProcessBase, DataLoader):
    if not issubclass(_kind, _StandIn):
        _named = names_in(_kind)
        _absent = [_name for _name in _MEMBERS[_kind.__name__] if _name not in _named]
        missing.extend(f"{_DATALOADER}.{_kind.__name__}.{_name}" for _name in _absent)


def is_python_exiting() -> bool:
    """Return whether Python is shutting down, so that functions may be gone."""
    return _utils is None or _utils.python_exit_status is not False


def is_reraising(code: types.CodeType) -> bool:
    """Return whether code is that of torch's function that raises a worker's exception."""
    return code is _reraise.__code__


def version_of(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was modified in place; None if torch does not count that."""
    return None if tensor.is_inference() else tensor._version


def identity_of(storage: torch.UntypedStorage) -> int:
    """Return the identity of a storage: two storages may begin at the same address and differ in size."""
    return int(storage._cdata)


def profile_name(iterator: type) -> str:
    """Return the name under which torch's profiler lists one of torch's iterators."""
    return f"enumerate(DataLoader)#{iterator.__name__}.__next__"


def explanation() -> str:
    """Return why torch's own iterators are used, as a sentence; "" if they are not."""
    if not missing:
        return ""
    return (
        f"torch {torch.__version__} lacks {', '.join(missing)}, on which fastload's iterators rely: torch's "
        "own iterators are used, without shared-memory slots, resuming and tuning"
    )
