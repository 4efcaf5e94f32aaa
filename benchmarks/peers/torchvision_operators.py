"""Import of torchvision beside a torch without CUDA."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from pathlib import Path
from typing import Any

import torch

_library: Any = torch.library  # it has no types


@functools.cache
def declare_operators() -> Any:
    """Declare the operators that torchvision's import needs, once for the life of the process.

    The torchvision of a package index is built for CUDA, so beside a CPU build of torch its compiled library
    does not load. Folders and transforms do not need it.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not installed")
    ops: Any = torch.ops
    for compiled in Path(next(iter(found.submodule_search_locations))).glob("_C*.so"):
        with contextlib.suppress(OSError):
            ops.load_library(str(compiled))
            return None
    operators = _library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return operators
