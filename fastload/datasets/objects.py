"""Objects and masks of stored records, in pixels of their image, as annotations and targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import DecodeError, LibraryMissingError, OptionError
from fastload.images.masks import decode_mask
from fastload.images.polygons import Ring, drawn
from fastload.shards.record import Record
from fastload.shards.schema import Field
from fastload.transforms.annotations import TO_CORNERS, Annotations

_PARTS = ("boxes", "labels", "polygons", "keypoints", "corners", "mask", "masks")


def _is_part(field: Field) -> bool:
    """Return True for a part of `Annotations`; a field of another kind may have the same name."""
    if field.name in ("mask", "masks"):
        return field.format == field.name
    return field.per_object if field.name == "labels" else field.name == field.kind and field.name in _PARTS


class ObjectFields:
    """Fields of a dataset whose records have objects or a mask of classes."""

    def __init__(self, fields: Sequence[Field]) -> None:
        shown = [field for field in fields if not field.internal]
        self._parts = {field.name: field for field in shown if _is_part(field)}
        self._per_object = [field.name for field in shown if field.per_object and not _is_part(field)]
        others = *self._parts, *self._per_object
        self._per_record = [field.name for field in shown if field.name not in others]

    @classmethod
    def of(cls, fields: Sequence[Field]) -> ObjectFields | None:
        """Return the fields, without the image; None if records have no objects and no mask of classes."""
        has_objects = any(field.is_of_objects or field.format is not None for field in fields)
        return cls(fields) if has_objects else None

    def annotations(self, record: Record, size: tuple[int, int]) -> Annotations:
        """Return the objects of a record in pixels of its image, which has `size`, (height, width)."""
        parts = self._parts
        scale = np.array(size[::-1], np.float64)
        labels = record["labels"] if "labels" in parts else np.zeros(0)
        return Annotations(
            size,
            self._boxes(record, scale, len(labels)),
            np.array(labels, np.int64),
            self._polygons(record, scale),
            self._points(record, "keypoints", scale),
            self._points(record, "corners", scale),
            self._mask(record),
            {name: _copied(record[name]) for name in self._per_object},
            self._masks(record, size),
        )

    def target(
        self,
        objects: Annotations,
        record: Record,
        value: Callable[[str, Record], object],
        as_tv_tensors: bool = False,
    ) -> dict[str, object]:
        """Return a target: annotations as tensors, and the record's other fields by `value`."""
        target = _tv_target(objects) if as_tv_tensors else objects.to_target()
        for name in self._per_record:
            found = value(name, record)
            target[name] = torch.tensor(found) if isinstance(found, int | float) else found
        if "labels" not in self._parts:
            del target["boxes"], target["labels"]
        return target

    def _boxes(self, record: Record, scale: NDArray[np.float64], count: int) -> NDArray[np.float32]:
        field = self._parts.get("boxes")
        if field is None:
            return np.zeros((count, 4), np.float32)
        factor = np.tile(scale, 2) if field.relative else 1.0
        boxes: NDArray[np.float64] = record["boxes"] @ TO_CORNERS[field.format or "xyxy"].T * factor
        return boxes.astype(np.float32)

    def _polygons(self, record: Record, scale: NDArray[np.float64]) -> list[list[Ring]] | None:
        field = self._parts.get("polygons")
        if field is None:
            return None
        factor = scale if field.relative else np.ones(2)
        return [[ring * factor for ring in rings] for rings in record["polygons"]]

    def _points(self, record: Record, name: str, scale: NDArray[np.float64]) -> NDArray[np.float32] | None:
        field = self._parts.get(name)
        if field is None:
            return None
        points: NDArray[np.float64] = record[name].astype(np.float64)
        if name == "keypoints" and points.shape[-1] == 2:
            # As in Ultralytics: a point outside of the image is not labelled.
            seen = (points >= 0).all(axis=-1, keepdims=True)
            points = np.concatenate([points, seen], axis=-1)
        if field.relative:
            points[..., :2] *= scale
        return points.astype(np.float32)

    def _mask(self, record: Record, name: str = "mask") -> NDArray[np.uint8] | None:
        if name not in self._parts or not len(data := record.stored(name)):
            return None
        try:
            return decode_mask(bytes(data))
        except DecodeError as error:
            raise DecodeError(
                f"record {record.index} (key {record.key!r}), field {name!r}: {error}"
            ) from error

    def _masks(self, record: Record, size: tuple[int, int]) -> NDArray[np.uint8] | None:
        if "masks" not in self._parts:
            return None
        masks = self._mask(record, "masks")
        return np.zeros((0, *size), np.uint8) if masks is None else masks.reshape(-1, *size)


def _copied(value: object) -> object:
    """Return a copy, with float64 arrays converted to float32, the default of torch."""
    if not isinstance(value, np.ndarray):
        return value
    return value.astype(np.float32) if value.dtype == np.float64 else value.copy()


def _tv_target(objects: Annotations) -> dict[str, object]:
    """Return annotations as torchvision's tv_tensors, without those that its transforms cannot move.

    Polygons become one mask for each object; the visibility of keypoints becomes a separate entry.
    """
    try:
        from torchvision import tv_tensors
    except ImportError as error:
        raise LibraryMissingError(f"tv_tensors=True needs torchvision: {error}") from error
    if objects.corners is not None:
        raise OptionError(
            "tv_tensors=True must have boxes without rotation, got oriented ones, which torchvision's "
            "transforms do not move: use fastload's transforms"
        )
    target = objects.to_target()
    target["boxes"] = tv_tensors.BoundingBoxes(target["boxes"], format="XYXY", canvas_size=objects.size)
    if objects.mask is not None:
        target["mask"] = tv_tensors.Mask(target["mask"])
    if objects.keypoints is not None:
        points = target["keypoints"]
        target["keypoints"] = tv_tensors.KeyPoints(points[..., :2], canvas_size=objects.size)
        target["visibility"] = points[..., 2].to(torch.int64)
    if objects.masks is not None:
        target["masks"] = tv_tensors.Mask(target["masks"])
    elif objects.polygons is not None:
        del target["polygons"]
        target["masks"] = tv_tensors.Mask(torch.from_numpy(_filled(objects.polygons, objects.size)))
    return target


def _filled(polygons: Sequence[Sequence[Ring]], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the pixels of each object, 1 within its polygons: (objects, height, width)."""
    masks = np.zeros((len(polygons), *size), np.uint8)
    for mask, patch in zip(masks, drawn(polygons, size), strict=True):
        patch.view(mask)[:] = patch.pixels
    return masks
