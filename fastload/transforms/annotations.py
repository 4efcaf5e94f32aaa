"""Annotations of one image: boxes, labels, polygons, keypoints, oriented boxes and a mask, in its pixels.

Coordinates are continuous: the image's upper left corner is (0, 0), the centre of its first pixel (0.5, 0.5).
Objects stay when they leave the image, their boxes clipped to it, as in torchvision v2: SanitizeBoundingBoxes
removes them. Polygons, keypoints and oriented boxes are never clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.polygons import Ring
from fastload.images.resize import Resampling, resize
from fastload.transforms.options import MaskFill, require
from fastload.transforms.windows import crop_padded

Floats = NDArray[np.float32]
Mask = Pixels
Points = NDArray[np.floating]
_Pair = tuple[float, float]  # along x and y
Move = Callable[[Points], Points]  # of points (..., 2): x and y
MoveMask = Callable[[Mask, int], Mask]  # of a uint8 mask (height, width), and its level outside

# For each format, the matrix that converts the four numbers of a box to x1 y1 x2 y2.
TO_CORNERS = {
    "xyxy": np.eye(4),
    "xywh": np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], np.float64),
    "cxcywh": np.array([[1, 0, -0.5, 0], [0, 1, 0, -0.5], [1, 0, 0.5, 0], [0, 1, 0, 0.5]], np.float64),
}

_NO_FILL = MaskFill()

OF_OBJECTS = ("boxes", "labels", "polygons", "keypoints", "corners", "masks")


@dataclass(slots=True, eq=False)
class Annotations:
    """Objects of one image, and its mask, in pixels of that image; no method changes its object.

    Boxes, float32 or float64, are x1, y1, x2, y2. Labels and others are any array, tensor or list of one row
    for each object; keypoints may also be any points (…, 2). Masks have any dtype.
    """

    size: Size
    boxes: Floats = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    labels: Any = field(default_factory=lambda: np.zeros(0, np.int64))
    polygons: list[list[Ring]] | None = None  # of each object, (points, 2) each
    keypoints: Floats | None = None  # (objects, points, 3): x, y, visibility
    corners: Floats | None = None  # oriented boxes, (objects, 4, 2)
    mask: Mask | None = None  # classes of pixels, (height, width) or several such
    others: dict[str, Any] = field(default_factory=dict)
    masks: Mask | None = None  # (objects, height, width)
    is_clipped: bool = True  # False if boxes may extend beyond the image (`clamping_mode=None`)
    masks_hold_classes: bool = False  # True if they are filled like `mask`
    mirrors_pixels: bool = False  # True if flips move keypoints like indices of pixels, as torchvision's

    def __len__(self) -> int:
        return len(self.boxes)

    def to_target(self) -> dict[str, Any]:
        """Return a dict of tensors, with the names of torchvision's detection reference.

        Polygons are lists of lists of tensors, and a list in `others` stays one.
        """
        fields = {name: getattr(self, name) for name in (*OF_OBJECTS, "mask")}
        found = {name: value for name, value in fields.items() if value is not None} | self.others
        return {name: as_tensors(value) for name, value in found.items()}

    def chosen(self, objects: NDArray[np.generic] | Sequence[int]) -> Annotations:
        """Return some of the objects: those of a boolean array, or of indices, in their order."""
        if not len(self):
            return self
        index = np.asarray(objects)
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        rows = index.tolist()

        def pick(value: Any) -> Any:
            if value is None or not isinstance(value, (list, tuple)):
                return value if value is None else value[index]
            return type(value)(value[row] for row in rows)

        fields = {name: pick(getattr(self, name)) for name in OF_OBJECTS}
        return replace(self, **fields, others={name: pick(value) for name, value in self.others.items()})

    def cropped(
        self, top: int, left: int, height: int, width: int, fill: MaskFill = _NO_FILL, mode: str = "constant"
    ) -> Annotations:
        """Return the annotations of a region, partly outside if need be, where masks are `fill`."""
        window = top, left, height, width

        def cut(mask: Mask, fill: int) -> Mask:
            return crop_padded(mask[:, :, None], *window, fill, mode)[:, :, 0]

        return self.rescaled((1, 1), (-left, -top), (height, width), cut, fill)

    def resized(self, height: int, width: int, filter: str = "nearest") -> Annotations:
        """Return the annotations of the image resized; masks are by `nearest` or `nearest-exact`."""

        def resize_one(mask: Mask, _: int) -> Mask:
            if mask.shape == (height, width):
                return mask
            return resize(mask[:, :, None], height, width, Resampling(filter, antialias=False))[:, :, 0]

        factors = width / self.size[1], height / self.size[0]
        return self.rescaled(factors, (0, 0), (height, width), resize_one, clips=False)

    def flipped(self, axis: int, pairs: Sequence[int] | None = None) -> Annotations:
        """Return the annotations of the image flipped along an axis, 0 for rows, 1 for columns.

        `pairs` holds, for each key point, the index of the one that it becomes in a mirror.
        """
        factors, shifts = ((-1, 1), (self.size[1], 0)) if axis else ((1, -1), (0, self.size[0]))

        def flip(mask: Mask, _: int) -> Mask:
            return np.ascontiguousarray(np.flip(mask, axis))

        moved = self.rescaled(factors, shifts, self.size, flip, clips=False)
        if (points := moved.keypoints) is None:
            return moved
        if self.mirrors_pixels:
            points[..., 1 - axis] -= 1
        if pairs is not None:
            rule = f"flip_idx must hold the index of every key point of keypoints of shape {points.shape}"
            require(points.ndim == 3 and points.shape[1] == len(pairs), rule, pairs)
            moved.keypoints = points[:, list(pairs)]
        return moved

    def rescaled(
        self,
        factors: _Pair,
        shifts: _Pair,
        size: Size,
        move_mask: MoveMask,
        fill: MaskFill = _NO_FILL,
        clips: bool = True,
    ) -> Annotations:
        """Return points multiplied by factors and shifted, along x and y, in an image of a given size.

        `move_mask` moves a mask in the same way: that of classes, which becomes `fill` where nothing is moved
        to, or that of an object, which becomes 0.
        """

        def move(points: Points) -> Points:
            return np.asarray(points * np.array(factors, points.dtype) + np.array(shifts, points.dtype))

        return self.mapped(move, size, move_mask, fill, clips)

    def warped(
        self, matrix: NDArray[np.floating], size: Size, move_mask: MoveMask, fill: MaskFill = _NO_FILL
    ) -> Annotations:
        """Return the annotations moved by a matrix, (3, 3), that multiplies columns (x, y, 1).

        A box becomes the smallest one around its four corners. For masks, see `rescaled`.
        """
        doubles = matrix.astype(np.float64)

        def move(points: Points) -> Points:
            moved = points @ doubles[:2, :2].T + doubles[:2, 2]
            is_affine = tuple(doubles[2]) == (0, 0, 1)
            return moved if is_affine else moved / (points @ doubles[2:, :2].T + doubles[2, 2])

        return self.mapped(move, size, move_mask, fill)

    def mapped(
        self, move: Move, size: Size, move_mask: MoveMask, fill: MaskFill = _NO_FILL, clips: bool = True
    ) -> Annotations:
        """Return the annotations with every point moved by a function, boxes by their corners.

        As in torchvision, flips and resizes do not clip boxes to the image.
        """
        boxes = self.boxes
        if len(boxes):
            ends = move(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2))
            boxes = np.concatenate((ends.min(axis=1), ends.max(axis=1)), axis=1).astype(boxes.dtype)
        moved = replace(self, size=size, boxes=clipped(boxes, size) if clips and self.is_clipped else boxes)
        if self.polygons is not None:
            moved.polygons = [
                [np.asarray(move(ring), np.float64) for ring in rings] for rings in self.polygons
            ]
        if (points := self.keypoints) is not None:
            places = np.concatenate((move(points[..., :2]), points[..., 2:]), axis=-1)
            moved.keypoints = places.astype(points.dtype, copy=False)
        if self.corners is not None:
            moved.corners = move(self.corners).astype(np.float32, copy=False)
        if self.mask is not None:
            moved.mask = _moved_mask(self.mask, size, move_mask, fill.classes)
        if self.masks is not None:
            level = fill.classes if self.masks_hold_classes else fill.objects
            moved.masks = _moved_mask(self.masks, size, move_mask, level)
        return moved


def joined(parts: Sequence[Annotations], size: tuple[int, int], mask: Mask | None = None) -> Annotations:
    """Return the objects of several annotations as those of one image; all must have the same fields."""
    fields: dict[str, Any] = {name: _together([getattr(part, name) for part in parts]) for name in OF_OBJECTS}
    others = {name: _together([part.others[name] for part in parts]) for name in parts[0].others}
    return Annotations(size, mask=mask, others=others, **fields)


def _together(values: list[Any]) -> Any:
    if values[0] is None:
        return None
    kind = type(values[0])
    return kind(chain(*values)) if kind in (list, tuple) else np.concatenate(values)


def clipped(boxes: Floats, size: tuple[int, int]) -> Floats:
    """Return boxes clipped to an image."""
    return np.clip(boxes, 0, np.array(size[::-1] * 2, np.float32))


def _moved_mask(mask: Mask, size: tuple[int, int], move: MoveMask, fill: float) -> Mask:
    """Return masks (…, height, width) of any dtype moved, byte by byte, so that no number changes."""
    level = np.zeros(1, mask.dtype)
    with np.errstate(all="ignore"):
        level[:] = np.array(fill).astype(mask.dtype)
    if level[0] != fill:
        raise OptionError(
            f"fill must be a number that a mask of {mask.dtype} can hold, got {fill}: give masks one of "
            'their own, fill={tv_tensors.Mask: 0, "others": …}, or convert the mask'
        )
    if mask.dtype == np.uint8 and mask.ndim == 2:
        return move(mask, int(fill))
    parts = np.ascontiguousarray(mask).reshape(-1, *mask.shape[-2:], 1).view(np.uint8)
    moved = np.zeros((len(parts), *size, mask.itemsize), np.uint8)
    for part, out in zip(parts, moved, strict=True):
        for place, byte in enumerate(level.view(np.uint8).tolist()):
            if byte or part[..., place].any():
                out[..., place] = move(np.ascontiguousarray(part[..., place]), byte)
    return moved.view(mask.dtype).reshape(*mask.shape[:-2], *size)


def as_tensors(value: Any) -> Any:
    """Return arrays, possibly in nested lists, as tensors, copied where torch would not accept them."""
    if isinstance(value, list):
        return [as_tensors(each) for each in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return value
    is_accepted = value.flags.writeable and min(value.strides, default=0) >= 0
    return torch.from_numpy(value if is_accepted else value.copy())


def to_corners(boxes: object) -> NDArray[np.floating]:
    """Return boxes as corners, (objects, 4); also those of torchvision's `BoundingBoxes`.

    They are float32, or float64 where that could change numbers: for whole numbers and other formats. Raises
    OptionError if the boxes are not (objects, 4), or rotated.
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


def from_corners(corners: NDArray[np.floating], like: object) -> NDArray[np.floating]:
    """Return corners as boxes in the format of others."""
    box_format = _format_of(like)
    return corners if box_format == "xyxy" else corners @ np.linalg.inv(TO_CORNERS[box_format]).T


def _format_of(boxes: object) -> str:
    name = str(getattr(getattr(boxes, "format", None), "value", "xyxy")).lower()
    if name not in TO_CORNERS:
        raise OptionError(
            f"BoundingBoxes must be in the format XYXY, XYWH or CXCYWH, got {name.upper()}: use "
            "torchvision.transforms.v2 for rotated boxes, or `corners` (objects, 4, 2) in a dict"
        )
    return name
