"""Named values of nested samples, including detection targets, and fields that fit several samples."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources.boxes import to_xywh

# Values beside boxes and labels in torchvision's detection references. Without any of them, boxes may be in
# another format, such as relative to the image.
_DETECTION = {"masks", "image_id", "area", "iscrowd"}
_COORDINATES = {"boxes", "bbox", "bboxes", "keypoints", "polygons"}
_FORMATS = {"XYXY": "xyxy", "XYWH": "xywh", "CXCYWH": "cxcywh"}


def is_instance(value: object, module: str, name: str) -> bool:
    """Return True if a value is an instance of a class in a module that need not be imported or installed."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def is_pil(value: object) -> bool:
    """Return True for an image of PIL."""
    return is_instance(value, "PIL.Image", "Image")


def dtype_name(value: object) -> str:
    """Return the name of the dtype of an array or tensor, "" for other values."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def described(value: object) -> str:
    """Return the type of a value with what distinguishes it, for messages."""
    kind = type(value).__name__
    if is_pil(value):
        return f"a PIL image of mode {value.mode!r}"  # type: ignore[attr-defined]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{kind} of {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, (bool, int, float)):
        return f"{kind} {value}"
    if isinstance(value, Mapping):
        return f"{kind} with {', '.join(map(repr, value)) or 'nothing'}"
    if isinstance(value, (list, tuple)):
        return f"{kind} of {len(value)}"
    return kind


def flatten(values: Mapping[Any, object], prefix: str = "") -> dict[str, object]:
    """Return the values of nested dicts, named `OUTER_INNER`; a list of dicts becomes a list for each key.

    >>> flatten({"id": 1, "meta": {"author": "me"}, "boxes": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]})
    {'id': 1, 'meta_author': 'me', 'boxes_x': [1, 3], 'boxes_y': [2, 4]}
    """
    flat: dict[str, object] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        found = {name: value}
        if isinstance(value, Mapping):
            found = flatten(value, f"{name}_")
        elif isinstance(value, (list, tuple)) and value and all(isinstance(each, Mapping) for each in value):
            if len({tuple(each) for each in value}) > 1:
                got = [list(each) for each in value]
                raise SourceError(f"{name} must hold dicts of equal keys, got {got}: make them alike")
            found = flatten({inner: [each[inner] for each in value] for inner in value[0]}, f"{name}_")
        if both := flat.keys() & found.keys():
            raise SourceError(f"the names of nested values must differ, got two {sorted(both)}: rename one")
        flat |= found
    return flat


def detection_fields(values: Mapping[str, object]) -> dict[str, Field]:
    """Return the fields of a detection target, by torchvision's names and types; nothing for other values.

    Boxes are torchvision's BoundingBoxes, which state their format, or x1 y1 x2 y2 in pixels if labels and
    another of torchvision's names are beside them.
    """
    boxes, labels = values.get("boxes"), values.get("labels")
    box_format = _FORMATS.get(getattr(getattr(boxes, "format", None), "name", ""))
    if not is_instance(boxes, "torchvision.tv_tensors", "BoundingBoxes"):
        box_format = "xyxy" if _DETECTION & values.keys() else None
    shape, count = _shape(boxes), _shape(labels)
    if box_format is None or shape[1:] not in ((4,), ()) or len(count) != 1 or shape[:1] != count:
        return {}
    found = {"boxes": Field.boxes(box_format), "labels": Field.labels()}  # type: ignore[arg-type]
    for name, value in values.items():
        kind = dtype_name(value)
        if name in ("area", "iscrowd") and len(_shape(value)) == 1:
            default = "float32" if name == "area" else "int64"
            found[name] = Field(name, "ragged", kind or default, per_object=True)
        elif name == "keypoints" and len(_shape(value)) == 3 and kind.startswith("float"):
            found[name] = Field.keypoints(_shape(value)[1:])  # type: ignore[arg-type]
        elif name == "image_id" and _shape(value) in ((), (1,)):
            found[name] = Field(name, "scalar", "int64")
    return found


def require_boxes(fields: Sequence[Field], values: Mapping[str, Any]) -> None:
    """Raise SourceError unless boxes are finite, have no negative side, and are in their field's units."""
    for field in fields:
        if field.kind != "boxes" or not len(values[field.name]):
            continue
        boxes = np.asarray(values[field.name], np.float64)
        sides = to_xywh(boxes, field.format)[:, 2:]
        is_right = np.isfinite(boxes).all(axis=1) & (sides >= 0).all(axis=1)
        # Coordinates of at most 1 are fractions of the image.
        are_fractions = not field.relative and (sides > 0).any() and boxes.max() <= 1
        if are_fractions or not is_right.all():
            units = "as fractions" if field.relative else "in pixels"
            got = boxes[np.argmin(is_right)].tolist()
            step = "correct it, or describe the boxes with fields="
            raise SourceError(f"{field.name} must be finite {field.format} boxes {units}, got {got}: {step}")


def unmoved(fields: Sequence[Field]) -> tuple[str, ...]:
    """Return a warning if fields that are named like coordinates hold plain numbers."""
    names = [each.name for each in fields if each.name in _COORDINATES and each.kind in ("vector", "ragged")]
    if not names:
        return ()
    return (
        f"{', '.join(names)}: kept as numbers, which transforms do not move, because their format is not "
        "known: describe them, such as fields=[Field.boxes('xyxy'), Field.labels()]",
    )


def is_masks(name: str, value: object) -> bool:
    """Return True for the masks of objects, (objects, height, width)."""
    is_named = name == "masks" or is_instance(value, "torchvision.tv_tensors", "Mask")
    return is_named and hasattr(value, "dtype") and len(_shape(value)) == 3


def merged(fields: Sequence[Field], others: Sequence[Field]) -> tuple[Field, ...]:
    """Return fields that fit two samples: a vector whose length differs becomes ragged.

    An empty list, which is inferred as a vector without elements, fits a list of any type.
    """
    by_name = {field.name: field for field in others}
    result: list[Field] = []
    for field in fields:
        if field.name in by_name:
            result.append(_merged(field, by_name.pop(field.name)))
        elif _is_empty(field):
            parts = [name for name in by_name if name.startswith(f"{field.name}_")]
            result += [_merged(field, by_name.pop(name)) for name in parts] or [field]
        else:
            result.append(field)
    return tuple(result)


def _merged(field: Field, other: Field) -> Field:
    if field == other or other.kind not in ("vector", "ragged", "texts", "boxes"):
        return field
    if _is_empty(field):
        return replace(other, kind="ragged", shape=()) if other.kind == "vector" else other
    if _is_empty(other):
        return replace(field, kind="ragged", shape=()) if field.kind == "vector" else field
    is_list = (field.kind, other.kind, len(field.shape), len(other.shape)) == ("vector", "vector", 1, 1)
    return replace(field, kind="ragged", shape=()) if is_list and field.dtype == other.dtype else field


def _is_empty(field: Field) -> bool:
    return field.kind == "vector" and field.shape == (0,)


def _shape(value: object) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return np.shape(np.array(value, object)) if value else (0,)
    return tuple(getattr(value, "shape", ()))
