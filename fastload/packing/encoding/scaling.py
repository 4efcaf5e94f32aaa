"""Scaling of the annotations of images that are resized while they are packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Size
from fastload.images.masks import resize_mask
from fastload.images.resize import Resampling, resize
from fastload.shards.schema import Field


def scaled(fields: Sequence[Field], values: Mapping[str, Any], before: Size, after: Size) -> dict[str, Any]:
    """Return the values of an image, with pixel coordinates, areas and masks scaled to its new size."""
    factors = np.array([after[1] / before[1], after[0] / before[0]])
    return {field.name: _scaled(field, values[field.name], factors, before, after) for field in fields}


def _scaled(field: Field, value: Any, factors: Any, before: Size, after: Size) -> Any:
    if field.kind == "image":
        if field.format == "masks" and len(value):
            return np.concatenate([_nearest(mask, after) for mask in value.reshape(-1, *before)])
        return resize_mask(value, *after) if field.format == "mask" and value else value
    if field.name == "area" and field.per_object:
        return value * factors.prod()
    if field.relative or field.kind not in ("boxes", "polygons", "keypoints", "corners"):
        return value
    if field.kind == "polygons":
        return [[polygon * factors for polygon in polygons] for polygons in value]
    if field.kind == "boxes":
        return value * np.tile(factors, 2)
    return np.concatenate([value[..., :2] * factors, value[..., 2:]], axis=-1)


def _nearest(mask: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    return resize(mask[:, :, None], *size, Resampling("nearest-exact"))[:, :, 0]
