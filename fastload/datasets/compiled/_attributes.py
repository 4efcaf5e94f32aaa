"""Datasets of any class whose attributes are compiled: transforms, torchvision's loader, other datasets.

Their `__getitem__` stays what it is.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch.utils.data

from fastload.datasets.compiled._encoded import lazily_decoded
from fastload.datasets.compiled._pipeline import CompiledTransform


def with_compiled_attributes(dataset: Any, compile_inner: Callable[[Any, bool], Any]) -> Any:
    """Return a copy of a dataset whose attributes are compiled; itself if there is nothing to compile.

    Args:
        dataset: The dataset.
        compile_inner: Returns a dataset among the attributes compiled; it is told whether images may be
            decoded late, because a compiled transform gets them.
    """
    attributes = dict(getattr(dataset, "__dict__", {}))
    compiled: dict[str, Any] = {}
    for name, value in attributes.items():
        if callable(value) and not isinstance(value, (CompiledTransform, torch.utils.data.Dataset)):
            transform = CompiledTransform(value)
            if transform.is_useful:
                compiled[name] = transform
    has_transforms = bool(compiled)
    for name, value in attributes.items():
        if isinstance(value, torch.utils.data.Dataset):
            inner = compile_inner(value, has_transforms)
            if inner is not value:
                compiled[name] = inner
        elif has_transforms and _is_torchvisions_loader(value):
            compiled[name] = LateLoader(value)
    if not compiled:
        return dataset
    result = copy.copy(dataset)
    vars(result).update(compiled)
    both: Any = getattr(result, "transforms", None)
    if type(both).__name__ == "StandardTransform" and both.transform is dataset.transform:
        # VisionDataset's pair of transform and target_transform, which some of its subclasses call.
        result.transforms = copy.copy(both)
        result.transforms.transform = result.transform
    return result


def compiled_attributes(dataset: Any) -> dict[str, Any]:
    """Return the transforms and datasets among the attributes of a dataset that are compiled."""
    attributes = getattr(dataset, "__dict__", {})
    kinds = CompiledTransform, torch.utils.data.Dataset
    return {name: value for name, value in attributes.items() if isinstance(value, kinds)}


class LateLoader:
    """torchvision's loader of image files, whose images are decoded when their pixels are asked for."""

    def __init__(self, theirs: Callable[[str], Any]) -> None:
        self.theirs = theirs

    def __call__(self, path: str) -> Any:
        """Return an RGB image."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return self.theirs(path)  # which raises its own error
        lazy = lazily_decoded(data, lambda: self.theirs(path))
        return self.theirs(path) if lazy is None else lazy


def _is_torchvisions_loader(value: Any) -> bool:
    folder = sys.modules.get("torchvision.datasets.folder")
    if folder is None:
        return False
    is_default = value is folder.default_loader and sys.modules["torchvision"].get_image_backend() == "PIL"
    return is_default or value is folder.pil_loader
