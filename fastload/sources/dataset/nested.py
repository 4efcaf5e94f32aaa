"""Splitting of samples into an image and named, perhaps nested values; fields that fit several samples."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from fastload.errors import SourceError
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import Field
from fastload.sources.boxes import to_xywh

if TYPE_CHECKING:
    from PIL.Image import Image

# Values beside boxes and labels in torchvision's detection references. Without any of them, boxes may be in
# another format, such as relative to the image.
_DETECTION = {"masks", "image_id", "area", "iscrowd"}
_COORDINATES = {"boxes", "bbox", "bboxes", "keypoints", "polygons"}
_FORMATS = {"XYXY": "xyxy", "XYWH": "xywh", "CXCYWH": "cxcywh"}

_INPUT = "input"  # the name of what is in the image's place in a sample without one
IF_NO_IMAGE = "or, if it is not an image, make each sample a dict that names it, as in {'input': …}"
"""The next step for a value that is taken for an image."""


def is_instance(value: object, module: str, name: str) -> bool:
    """Return True if a value is an instance of a class in a module that need not be imported or installed."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def is_pil(value: object) -> TypeGuard[Image]:
    """Return True for an image of PIL."""
    return is_instance(value, "PIL.Image", "Image")


def dtype_name(value: object) -> str:
    """Return the name of the dtype of an array or tensor, "" for other values."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def described(value: object) -> str:
    """Return the type of a value with what distinguishes it, for messages."""
    kind = type(value).__name__
    if is_pil(value):
        return f"a PIL image of mode {value.mode!r}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{kind} of {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, (bool, int, float)):
        return f"{kind} {value}"
    if isinstance(value, Mapping):
        return f"{kind} with {', '.join(map(repr, value)) or 'nothing'}"
    if isinstance(value, (list, tuple)):
        return f"{kind} of {len(value)}"
    return kind


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
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


def has_image(sample: object) -> bool:
    """Return True if a sample holds an image, or something in its place that could only be one.

    In a dict, that is `image`, `img` or the only PIL image; in a tuple, a first element that is a PIL image,
    a file's bytes, an array of three dimensions or of two in uint8 or uint16, or None, a missing image.
    """
    if isinstance(sample, Mapping):
        return _image_key(sample) is not None
    first = sample[0] if isinstance(sample, (tuple, list)) and sample else sample
    if first is None or isinstance(first, (bytes, bytearray, memoryview)) or is_pil(first):
        return True
    dimensions = len(getattr(first, "shape", ()))
    return dimensions == 3 or (dimensions == 2 and dtype_name(first) in ("uint8", "uint16"))


def split_sample(
    sample: object, target_name: str | None = None, *, has_image: bool = True
) -> tuple[object, dict[str, object]]:
    """Split a sample, `(image, target)` or a dict with `image`, into its image and its named values.

    A target that is a dict holds several values, as does each dict in it. Any other target is named
    `target_name` or, without one, `label` if it is an integer, else `target`. Several targets are named
    `target1`, `target2` and so on. In a dict without `image`, the image is `img` or the only PIL image.
    Without `has_image`, the image is None, and what a tuple has in its place, or a sample that is neither
    tuple nor dict, is named `input`.
    """
    if not has_image:
        return None, _split_without_image(sample, target_name)
    if isinstance(sample, Mapping) and (key := _image_key(sample)) is not None:
        return sample[key], flatten({name: value for name, value in sample.items() if name != key})
    if not isinstance(sample, (tuple, list)) or len(sample) < 2:
        must, step = "(image, target) or a dict with 'image'", "wrap the dataset in one whose samples are"
        raise SourceError(f"must be {must}, got {described(sample)}: {step}, {IF_NO_IMAGE}")
    image, *targets = sample
    return image, flatten(_named_targets(targets, target_name))


def sample_form(sample: object, names: Sequence[str]) -> str | list[str | list[str]] | None:
    """Return the form of a sample without image: its fields in the places of their values.

    None stands for a dict of all fields; a tuple is a list of its elements, a dict in it the list of its
    fields.
    """
    if isinstance(sample, Mapping):
        return None

    def part(name: str) -> str | list[str]:
        return name if name in names else [each for each in names if each.startswith(f"{name}_")]

    if not isinstance(sample, (tuple, list)):
        return names[0]
    if len(sample) == 1:
        return [list(names) if isinstance(sample[0], Mapping) else names[0]]
    first = part(_INPUT)
    if len(sample) > 2:
        return [first, *(part(f"target{number}") for number in range(1, len(sample)))]
    rest = [name for name in names if name not in ([first] if isinstance(first, str) else first)]
    return [first, rest if isinstance(sample[1], Mapping) or len(rest) != 1 else rest[0]]


def kept_as_arrays(sample: object) -> tuple[str, ...]:
    """Return a warning if a sample without image has values that look like images."""
    _, values = split_sample(sample, has_image=False)
    names = []
    for name, value in values.items():
        shape = tuple(getattr(value, "shape", ()))
        is_pixels = len(shape) == 3 and dtype_name(value) == "uint8" and 3 in (shape[0], shape[2])
        is_file = isinstance(value, (bytes, bytearray)) and format_of(bytes(value[:HEAD_BYTES])) is not None
        names += [name] if is_pixels or is_file else []
    if not names:
        return ()
    return (
        f"{', '.join(names)}: kept as {'an array' if len(names) == 1 else 'arrays'} or bytes, and not as "
        "an image, which transforms take: name it 'image' if it is one",
    )


def _image_key(sample: Mapping[str, object]) -> str | None:
    named = [name for name in ("image", "img") if name in sample]
    images = [name for name, value in sample.items() if is_pil(value)]
    return next(iter(named or (images if len(images) == 1 else [])), None)


def _split_without_image(sample: object, target_name: str | None) -> dict[str, object]:
    if isinstance(sample, Mapping):
        return flatten(sample)
    if not isinstance(sample, (tuple, list)):
        return flatten({target_name or _INPUT: sample})
    if not sample:
        raise SourceError("must be a tuple with elements, got an empty one: give each sample its values")
    first, *targets = sample
    named = _named_targets(targets, target_name) if targets else {}
    name = _INPUT if targets else target_name or _INPUT
    if name in named:
        raise SourceError(f"must have no target named {name!r}, which names the first element: rename it")
    return flatten({name: first, **named})


def _named_targets(targets: Sequence[object], target_name: str | None) -> Mapping[str, object]:
    """Return the elements after the first of a sample by name."""
    if len(targets) > 1:
        return {f"target{number}": target for number, target in enumerate(targets, 1)}
    [target] = targets
    if isinstance(target, Mapping):
        return target
    is_list = isinstance(target, (list, tuple)) and any(isinstance(each, Mapping) for each in target)
    return {target_name or ("label" if not is_list and _is_integer(target) else "target"): target}


def _is_integer(value: object) -> bool:
    if isinstance(value, (int, np.integer)):
        return not isinstance(value, bool)
    return getattr(value, "shape", None) == () and dtype_name(value).startswith(("int", "uint"))
