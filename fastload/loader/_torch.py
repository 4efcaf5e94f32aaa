"""The private members of torch that the loader uses, and the check that this torch has them.

torch's iterators start, watch and end workers, keep order and pass exceptions on. The loader's iterators
derive from them, and use members that torch does not promise to keep. They are named only here, and checked
once, when this module is imported. If one is missing, `missing` names it, and the loader uses torch's own
iterators.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from torch.utils.data import dataloader as _dataloader

    BaseIterator = _dataloader._BaseDataLoaderIter
    MultiProcessIterator = _dataloader._MultiProcessingDataLoaderIter
    SingleProcessIterator = _dataloader._SingleProcessDataLoaderIter

_DATALOADER = "torch.utils.data.dataloader"

# Methods that are overridden or called, with the parameters that they are called with.
_METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    "_BaseDataLoaderIter": {"__next__": (), "_next_index": (), "_reset": ("loader",)},
    "_SingleProcessDataLoaderIter": {"__init__": ("loader",), "_next_data": ()},
    "_MultiProcessingDataLoaderIter": {
        "__del__": (),
        "__init__": ("loader",),
        "_get_data": (),
        "_next_data": (),
        "_shutdown_workers": (),
        "_try_get_data": (),
        "_try_put_index": (),
    },
}

# Attributes of instances that are read or set; a class has them if one of its methods names them.
_ATTRIBUTES: dict[str, list[str]] = {
    "_BaseDataLoaderIter": [
        "_base_seed",
        "_dataset",
        "_dataset_kind",
        "_index_sampler",
        "_num_workers",
        "_num_yielded",
        "_profile_name",
        "_sampler_iter",
    ],
    "_SingleProcessDataLoaderIter": ["_dataset_fetcher"],
    "_MultiProcessingDataLoaderIter": [
        "_data_queue",
        "_in_order",
        "_prefetch_factor",
        "_rcvd_idx",
        "_send_idx",
        "_task_info",
        "_tasks_outstanding",
        "_worker_pids_set",
        "_worker_queue_idx_cycle",
        "_workers",
    ],
    "DataLoader": [
        "_IterableDataset_len_called",
        "_auto_collation",
        "_dataset_kind",
        "_get_iterator",
        "_index_sampler",
        "_iterator",
    ],
}

CHECKED = {name for table in (_METHODS, _ATTRIBUTES) for names in table.values() for name in names}
"""All names in these tables."""

missing: list[str] = []
"""The members that this torch lacks; empty if the loader can use its own iterators."""


def _found(module: str, name: str, otherwise: Any = None) -> Any:
    """Return a member of a module; if it has none, record it as missing."""
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


def _check(name: str, kind: type) -> None:
    """Record the members of the tables that a class lacks."""
    for method, parameters in _METHODS.get(name, {}).items():
        function = getattr(kind, method, None)
        if function is None or not _takes(function, parameters):
            missing.append(f"{_DATALOADER}.{name}.{method}({', '.join(parameters)})")
    named = names_in(kind)
    absent = [one for one in _ATTRIBUTES[name] if one not in named]
    missing.extend(f"{_DATALOADER}.{name}.{one}" for one in absent)


def _takes(function: Any, parameters: tuple[str, ...]) -> bool:
    try:
        inspect.signature(function).bind(None, *parameters)
    except (TypeError, ValueError):
        return False
    return True


class _StandIn:
    """Base of the loader's iterators if torch's classes are missing; they are then never created."""


if not TYPE_CHECKING:
    BaseIterator = _found(_DATALOADER, "_BaseDataLoaderIter", _StandIn)
    SingleProcessIterator = _found(_DATALOADER, "_SingleProcessDataLoaderIter", _StandIn)
    MultiProcessIterator = _found(_DATALOADER, "_MultiProcessingDataLoaderIter", _StandIn)

# Collation in a worker, and pinning of a batch.
collate_tensor_fn: Any = _found("torch.utils.data._utils.collate", "collate_tensor_fn")
default_collate_fn_map: Any = _found("torch.utils.data._utils.collate", "default_collate_fn_map", {})
pin_memory: Any = _found("torch.utils.data._utils.pin_memory", "pin_memory")

# The function that torch's workers run.
_found("torch.utils.data._utils.worker", "_worker_loop")

# Weak references that identify storages.
StorageWeakRef: Any = _found("torch.multiprocessing.reductions", "StorageWeakRef")

# Removes workers from those whose deaths the handler of SIGCHLD raises.
remove_worker_pids: Any = _found("torch._C", "_remove_worker_pids")

_exceptions: Any = _found("torch._utils", "ExceptionWrapper")
_reraise: Any = getattr(_exceptions, "reraise", None)
if not isinstance(_reraise, types.FunctionType):
    missing.append("torch._utils.ExceptionWrapper.reraise")

_utils: Any = _found("torch.utils.data", "_utils")
_found("torch.utils.data._utils", "python_exit_status")

for _kind in (BaseIterator, SingleProcessIterator, MultiProcessIterator):
    if not issubclass(_kind, _StandIn):
        _check(_kind.__name__, _kind)
_check("DataLoader", DataLoader)


def is_python_exiting() -> bool:
    """Return whether Python shuts down, so that functions may be gone."""
    return _utils is None or _utils.python_exit_status is not False


def is_reraising(code: types.CodeType) -> bool:
    """Return whether code is that of torch's function that raises a worker's exception."""
    return code is _reraise.__code__


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
