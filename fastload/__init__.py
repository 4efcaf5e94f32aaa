"""fastload: a drop-in fast DataLoader for PyTorch, and packed datasets that feed it.

Importing fastload imports nothing else; torch, OpenCV and h5py are imported with the first name that needs
them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastload._version import __version__ as __version__

__all__ = [
    "AccessError",
    "Cache",
    "DamageError",
    "DataLoader",
    "DecodeError",
    "DestinationError",
    "FastloadError",
    "Field",
    "FolderDataset",
    "FormatError",
    "LibraryMissingError",
    "OptionError",
    "PackError",
    "PackProgress",
    "PackResult",
    "PackedDataset",
    "RecordIndexError",
    "RemoteError",
    "RemoteMissingError",
    "ShardedSampler",
    "SourceError",
    "ToolMissingError",
    "UnpicklableError",
    "collate_lists",
    "collate_ultralytics",
    "compile",
    "explain",
    "merge",
    "pack",
    "transforms",
    "ultralytics",
    "unpack",
    "verify",
]

# The module of each name; exceptions are in fastload.errors.
_MODULES = {
    "Cache": "datasets.cache.options",
    "DataLoader": "loader.dataloader",
    "Field": "shards.schema",
    "FolderDataset": "datasets.folder",
    "PackProgress": "packing.result",
    "PackResult": "packing.result",
    "PackedDataset": "datasets.packed",
    "ShardedSampler": "loader.sharded_sampler",
    "collate_lists": "datasets.collating",
    "collate_ultralytics": "datasets.collating",
    "compile": "datasets.compiled.compile",
    "explain": "datasets.compiled.compile",
    "merge": "packing.merge",
    "pack": "packing.job",
    "unpack": "packing.unpack",
    "verify": "packing.verify",
}

if TYPE_CHECKING:
    from fastload import transforms, ultralytics
    from fastload.datasets.cache.options import Cache
    from fastload.datasets.collating import collate_lists, collate_ultralytics
    from fastload.datasets.compiled.compile import compile, explain
    from fastload.datasets.folder import FolderDataset
    from fastload.datasets.packed import PackedDataset
    from fastload.errors import (
        AccessError,
        DamageError,
        DecodeError,
        DestinationError,
        FastloadError,
        FormatError,
        LibraryMissingError,
        OptionError,
        PackError,
        RecordIndexError,
        RemoteError,
        RemoteMissingError,
        SourceError,
        ToolMissingError,
        UnpicklableError,
    )
    from fastload.loader.dataloader import DataLoader
    from fastload.loader.sharded_sampler import ShardedSampler
    from fastload.packing.job import pack
    from fastload.packing.merge import merge
    from fastload.packing.result import PackProgress, PackResult
    from fastload.packing.unpack import unpack
    from fastload.packing.verify import verify
    from fastload.shards.schema import Field


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fastload' has no attribute {name!r}")
    if name in ("transforms", "ultralytics"):
        return importlib.import_module(f"fastload.{name}")
    value = getattr(importlib.import_module(f"fastload.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
