"""Datasets of any class whose attributes are compiled; everything else of them stays as it is."""

from __future__ import annotations

import copy
from typing import Any

from fastload.datasets.compiled._pipeline import CompiledTransform


def with_compiled_attributes(dataset: Any) -> Any:
    """Return a copy of a dataset whose transforms are compiled; itself if no step of them is known."""
    compiled = {}
    for name, value in getattr(dataset, "__dict__", {}).items():
        if isinstance(value, CompiledTransform) or not callable(value):
            continue
        transform = CompiledTransform(value)
        if transform.is_useful:
            compiled[name] = transform
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
    """Return the attributes of a dataset that are compiled."""
    attributes = getattr(dataset, "__dict__", {})
    return {name: value for name, value in attributes.items() if isinstance(value, CompiledTransform)}
