"""torch's private members that the doctor uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import Store
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from fastload.errors import LibraryMissingError

try:
    from torch.utils.data import dataloader as _dataloader
    from torch.utils.data._utils import fetch as _fetch
    from torch.utils.data._utils import worker as _worker

    BaseIterator: Any = _dataloader._BaseDataLoaderIter
    FETCHERS: tuple[Any, ...] = (_fetch._MapDatasetFetcher, _fetch._IterableDatasetFetcher)
    FETCH_FILE = _fetch.__file__
    worker_module: ModuleType = _worker
    worker_loop: Callable[..., None] = _worker._worker_loop
    # Methods that are wrapped, too.
    _METHODS = (BaseIterator.__next__, DataLoader._get_iterator, *(kind.fetch for kind in FETCHERS))
    time_syncs: Callable[[DistributedDataParallel, int], None] = (
        DistributedDataParallel._set_ddp_runtime_logging_sample_rate
    )
    latest_sync: Callable[[DistributedDataParallel], Mapping[str, int]] = (
        DistributedDataParallel._get_ddp_logging_data
    )
    default_store: Callable[[], Store] = distributed_c10d._get_default_store
except (ImportError, AttributeError) as error:
    raise LibraryMissingError(
        f"'fastload doctor' must be able to wrap torch's loader, which torch {torch.__version__} changed: "
        f"{error}"
    ) from error


def end_workers(iterator: object) -> None:
    """End an iterator's workers, if it has any: left to its `__del__`, a Ctrl-C meanwhile would be lost."""
    getattr(iterator, "_shutdown_workers", lambda: None)()
    for worker in getattr(iterator, "_workers", ()):
        # This process could not end before a worker that does not react to SIGTERM.
        if worker.is_alive():
            worker.kill()
