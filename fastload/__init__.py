"""fastload: a drop-in fast DataLoader for PyTorch, and the packed datasets that feed it.

Importing fastload imports nothing else; torch, OpenCV and h5py come with the first name that needs them.
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
    "SlowTransformWarning",
    "SourceError",
    "ToolMissingError",
    "UnpicklableError",
    "pack",
    "transforms",
    "unpack",
    "verify",
]

_MODULES = {
    "AccessError": "errors",
    "Cache": "datasets.cache.options",
    "DamageError": "errors",
    "DataLoader": "loader.dataloader",
    "DecodeError": "errors",
    "DestinationError": "errors",
    "FastloadError": "errors",
    "Field": "shards.schema",
    "FolderDataset": "datasets.folder",
    "FormatError": "errors",
    "LibraryMissingError": "errors",
    "OptionError": "errors",
    "PackError": "errors",
    "PackProgress": "packing.result",
    "PackResult": "packing.result",
    "PackedDataset": "datasets.packed",
    "RecordIndexError": "errors",
    "SlowTransformWarning": "errors",
    "SourceError": "errors",
    "ToolMissingError": "errors",
    "UnpicklableError": "errors",
    "pack": "packing.job",
    "unpack": "packing.unpack",
    "verify": "packing.verify",
}

if TYPE_CHECKING:
    from fastload import transforms
    from fastload.datasets.cache.options import Cache
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
        SlowTransformWarning,
        SourceError,
        ToolMissingError,
        UnpicklableError,
    )
    from fastload.loader.dataloader import DataLoader
    from fastload.packing.job import pack
    from fastload.packing.result import PackProgress, PackResult
    from fastload.packing.unpack import unpack
    from fastload.packing.verify import verify
    from fastload.shards.schema import Field


def __getattr__(name: str) -> Any:
    if name == "transforms":
        return importlib.import_module("fastload.transforms")
    if name not in _MODULES:
        raise AttributeError(f"module 'fastload' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fastload.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
