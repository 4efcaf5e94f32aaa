"""Formats of boxes, and their conversion to and from corners: x1, y1, x2, y2."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError

# For each format, the matrix that converts the four numbers of a box to x1 y1 x2 y2.
TO_CORNERS = {
    "xyxy": np.eye(4),
    "xywh": np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], np.float64),
    "cxcywh": np.array([[1, 0, -0.5, 0], [0, 1, 0, -0.5], [1, 0, 0.5, 0], [0, 1, 0, 0.5]], np.float64),
}


def to_corners(boxes: Any) -> NDArray[np.floating]:
    """Return boxes as corners, (objects, 4); also those of torchvision's `BoundingBoxes`.

    They are float32, or float64 where that could change numbers: for whole numbers and other formats.

    Raises:
        OptionError: The boxes are not (objects, 4), or rotated.
    """
    box_format = _format_of(boxes)
    if isinstance(boxes, torch.Tensor):
        numbers = boxes.detach().cpu().as_subclass(torch.Tensor)
        is_exact = numbers.dtype == torch.float64 or hasattr(boxes, "format")
        array = numbers.to(torch.float64 if is_exact else torch.float32).numpy()
    else:
        array = np.asarray(boxes, np.float32)
    array = array if array.size else array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise OptionError(f"a target must hold boxes (objects, 4), got boxes of shape {array.shape}")
    return array if box_format == "xyxy" else array @ TO_CORNERS[box_format].T


def from_corners(corners: NDArray[np.floating], like: Any) -> NDArray[np.floating]:
    """Return corners as boxes in the format of others."""
    box_format = _format_of(like)
    return corners if box_format == "xyxy" else corners @ np.linalg.inv(TO_CORNERS[box_format]).T


def _format_of(boxes: Any) -> str:
    name = str(getattr(getattr(boxes, "format", None), "value", "xyxy")).lower()
    if name not in TO_CORNERS:
        raise OptionError(
            f"BoundingBoxes must be in the format XYXY, XYWH or CXCYWH, got {name.upper()}: use "
            "torchvision.transforms.v2 for rotated boxes, or `corners` (objects, 4, 2) in a dict"
        )
    return name
