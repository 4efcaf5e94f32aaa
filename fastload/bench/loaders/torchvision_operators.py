"""Import of torchvision beside a torch without CUDA."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from pathlib import Path

import torch


@functools.cache
def declare_operators() -> torch.library.Library | None:
    """Declare the operators that torchvision's import needs, once for the life of the process.

    The torchvision of a package index is built for CUDA, so beside a CPU build of torch its compiled library
    does not load. Folders and transforms do not need it.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not installed")
    for library in Path(next(iter(found.submodule_search_locations))).glob("_C*.so"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))
            return None
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return operators
