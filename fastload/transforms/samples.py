"""Samples as torchvision's v2 transforms are called with them: images and targets in any structure.

    sample = SampleParts(structure)          # a dict, (image, target), (image, boxes, labels), …
    sample.images, sample.annotations   # what a transform changes
    sample.rebuilt(images, move)        # the same structure, with all else as it was

Images are PIL images and `tv_tensors.Image`; without any, the first tensor or array with the axes of one.
Boxes, masks and keypoints are torchvision's `tv_tensors` wherever they are, and the entries of a dict that
have the names of PackedDataset's targets.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.transforms.annotations import OF_OBJECTS, Annotations, as_tensors, from_corners, to_corners
from fastload.transforms.pixels import Image, is_pil, size_of, tv_kind, with_grad

MoveAnnotations = Callable[[Annotations], Annotations]

_NAMES = (*OF_OBJECTS, "mask")

# The names of torchvision's classes for parts of `Annotations`, and the other way round.
TYPES = {"boxes": "BoundingBoxes", "keypoints": "KeyPoints", "mask": "Mask", "masks": "Mask"}
_ROLES = {"BoundingBoxes": "boxes", "KeyPoints": "keypoints", "Mask": "mask", "Image": "image"}

# Entries of the image in targets of DETR and of torchvision's reference, whatever their number of rows.
_OF_IMAGES = ("image_id", "size", "orig_size")


@dataclass(slots=True)
class _Leaf:
    """Value in a structure."""

    value: Any
    name: object  # of its entry in a dict
    kind: str  # the name of its class, if it is one of torchvision's
    role: str  # "image", a part of `Annotations`, or "other"
    has_rows: bool = False  # True if there is one for each object


class SampleParts:
    """Images and annotations found in a structure of dicts, lists and tuples.

    `size` is that of the images, or without any the one that the annotations state; `annotations` have
    everything that belongs to objects, and the first mask of classes. Raises OptionError if there is nothing
    to transform, or it does not fit together.
    """

    def __init__(self, structure: object, size: Size | None = None) -> None:
        self._structure = structure
        self._leaves: list[_Leaf] = []
        _walked(structure, None, self._add)
        if size is None and not self.images:
            self._find_plain_image()
        boxes = [leaf for leaf in self._leaves if leaf.role == "boxes"]
        if len(boxes) > 1:
            raise OptionError(f"a sample must hold the boxes of one image, got {len(boxes)} sets of boxes")
        self.has_boxes = bool(boxes)
        self.size = size or self._common_size()
        self.annotations = self._with_boxes(boxes[0]) if boxes else Annotations(self.size)
        self._firsts = {leaf.role: leaf for leaf in boxes}
        self._extras: list[tuple[_Leaf, Annotations]] = []
        self._find_parts()

    @property
    def images(self) -> list[Image]:
        """The images, in the order of the structure."""
        return [leaf.value for leaf in self._leaves if leaf.role == "image"]

    @property
    def has_annotations(self) -> bool:
        """True if there are boxes, masks, keypoints or other parts to move."""
        return any(leaf.role in _NAMES for leaf in self._leaves)

    def rebuilt(self, images: Sequence[Image], move: MoveAnnotations = lambda each: each) -> object:
        """Return the structure with new images, and with the annotations that `move` returns."""
        results: dict[int, object] = {}
        if self.has_annotations:
            moved = move(self.annotations)
            for role, leaf in self._firsts.items():
                results[id(leaf)] = _written(leaf, getattr(moved, role), moved.size)
            for leaf, extra in self._extras:
                parts = move(extra)
                results[id(leaf)] = _written(leaf, getattr(parts, leaf.role), parts.size)
            for leaf in self._leaves:
                if leaf.role == "other" and leaf.has_rows:
                    results[id(leaf)] = moved.others[str(id(leaf))]
        return self._with(images, lambda leaf: results.get(id(leaf), leaf.value))

    def converted(self, images: Sequence[Image], convert: Callable[[object, str], object]) -> object:
        """Return the structure with new images, and all else given to a function with its type, or ""."""
        return self._with(images, lambda leaf: convert(leaf.value, TYPES.get(leaf.role, "")))

    def chosen(self, objects: NDArray[np.bool_], values: Sequence[object]) -> object:
        """Return the structure with some of its boxes, masks of objects, and rows of the given values."""

        def choose(leaf: _Leaf) -> object:
            if leaf.role in ("boxes", "masks") or any(leaf.value is value for value in values):
                rows = torch.as_tensor(leaf.value)
                return _like(rows[torch.from_numpy(objects).to(rows.device)], leaf, self.size)
            return leaf.value

        return self._with(self.images, choose)

    def _with(self, images: Sequence[Image], result_of: Callable[[_Leaf], object]) -> object:
        left = iter(images)
        results = iter([next(left) if leaf.role == "image" else result_of(leaf) for leaf in self._leaves])
        return _walked(self._structure, None, lambda value, name: next(results))

    def _add(self, value: object, name: object) -> None:
        kind = tv_kind(value)
        if kind == "Video":
            raise OptionError("a sample must hold images, got a Video: use torchvision.transforms.v2")
        is_named = not kind and name in _NAMES and value is not None
        role = str(name) if is_named else _ROLES.get(kind, "image" if is_pil(value) else "other")
        self._leaves.append(_Leaf(value, name, kind, role))

    def _find_plain_image(self) -> None:
        """Take the first tensor or array that can be an image, or else the first grey array."""
        others = [leaf for leaf in self._leaves if leaf.role == "other"]
        for types, axes in (((torch.Tensor, np.ndarray), (3, 4)), ((np.ndarray,), (2,))):
            for leaf in others:
                if isinstance(leaf.value, types) and leaf.value.ndim in axes:
                    leaf.role = "image"
                    return

    def _common_size(self) -> Size:
        sizes = [size_of(image) for image in self.images]
        sizes = sizes or [
            each.value.canvas_size for each in self._leaves if hasattr(each.value, "canvas_size")
        ]
        sizes = sizes or [
            np.shape(each.value)[-2:] for each in self._leaves if each.role in ("mask", "masks")
        ]
        found = {(int(height), int(width)) for height, width in sizes}
        if not found:
            raise OptionError(
                "a sample must hold an image (a PIL image, a tensor (channels, height, width) or an array "
                f"(height, width, channels)), got {_described(self._structure)}"
            )
        if len(found) > 1:
            rule = "the images of a sample must have one size"
            raise OptionError(f"{rule}, got {sorted(found)}: transform them one by one")
        return found.pop()

    def _with_boxes(self, leaf: _Leaf) -> Annotations:
        self._require_canvas(leaf)
        boxes = to_corners(leaf.value)
        is_clipped = getattr(leaf.value, "clamping_mode", "soft") is not None
        return Annotations(self.size, boxes, np.zeros(len(boxes), np.int64), is_clipped=is_clipped)

    def _find_parts(self) -> None:
        """Add the first part of each role to the annotations, and make further annotations of the rest."""
        further: list[tuple[_Leaf, dict[str, Any]]] = []
        others: dict[str, object] = {}
        for leaf in self._leaves:
            if leaf.role == "labels" and not (self.has_boxes and _has_length(leaf.value)):
                leaf.role = "other"
            if leaf.role == "other":
                is_known = self.has_boxes and leaf.name not in _OF_IMAGES and _has_length(leaf.value)
                is_known = is_known and not isinstance(leaf.value, tuple)
                leaf.has_rows = is_known and len(leaf.value) == len(self.annotations)
                others |= {str(id(leaf)): leaf.value} if leaf.has_rows else {}
            elif leaf.role not in ("image", "boxes"):
                value = self._parsed(leaf)  # which may change the role
                part = {leaf.role: value, "mirrors_pixels": leaf.kind == "KeyPoints"}
                if leaf.role == "masks":
                    # By its name, because the number of boxes may equal a mask's first axis by chance.
                    part["masks_hold_classes"] = leaf.name is not None and "masks" not in str(leaf.name)
                belongs = leaf.has_rows or leaf.kind != "KeyPoints"
                if leaf.role in self._firsts or not belongs:
                    further.append((leaf, part))
                    continue
                self._firsts[leaf.role] = leaf
                part["mirrors_pixels"] |= self.annotations.mirrors_pixels
                self.annotations = replace(self.annotations, **part)
        self.annotations = replace(self.annotations, others=others)
        for leaf, part in further:
            whole = self.annotations if leaf.has_rows else Annotations(self.size)
            self._extras.append((leaf, replace(whole, **part)))

    def _parsed(self, leaf: _Leaf) -> Any:
        """Return a part as in `Annotations`; find out whether it has a row for each object."""
        value, count = leaf.value, len(self.annotations)
        if leaf.role == "polygons":
            value = [[np.asarray(each, np.float64) for each in rings] for rings in value]
        elif leaf.role != "labels":
            self._require_canvas(leaf)
            value = _array(leaf)
        if leaf.role in ("mask", "masks") and value.shape[-2:] != self.size:
            raise OptionError(f"a mask must have its image's size, {self.size}, got {value.shape}")
        leaf.has_rows = self.has_boxes and leaf.role != "mask" and len(value) == count
        if leaf.kind:
            leaf.has_rows = self.has_boxes and value.ndim == 3 and len(value) == count
            leaf.role = "masks" if leaf.role == "mask" and leaf.has_rows else leaf.role
        elif self.has_boxes and leaf.role != "mask" and not leaf.has_rows:
            raise OptionError(
                f"a target must hold boxes (objects, 4) and {leaf.role} with a row for each, got boxes of "
                f"shape ({count}, 4) and {len(value)} rows of {leaf.role}"
            )
        return value

    def _require_canvas(self, leaf: _Leaf) -> None:
        canvas = tuple(getattr(leaf.value, "canvas_size", self.size))
        if canvas != self.size:
            rule = f"the canvas_size of {leaf.kind} must be its image's size, {self.size}"
            raise OptionError(f"{rule}, got {canvas}")


def _walked(value: Any, name: object, visit: Callable[[object, object], object]) -> Any:
    """Return a structure with every leaf replaced by the result of `visit`, given also its name in a dict."""
    if isinstance(value, Mapping):
        results = {key: _walked(each, key, visit) for key, each in value.items()}
        if type(value) is dict or not isinstance(value, MutableMapping):
            return results
        copied = copy.copy(value)
        copied.update(results)
        return copied
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names:
        return type(value)(*map(_walked, value, names, [visit] * len(value)))
    if type(value) not in (list, tuple):
        return visit(value, name)
    # A list of plain values in a dict is one value of it.
    if name is not None and not any(
        isinstance(each, Mapping) or tv_kind(each) or is_pil(each) for each in value
    ):
        return visit(value, name)
    inner = None if name in _NAMES else name
    return type(value)([_walked(each, inner, visit) for each in value])


def _array(leaf: _Leaf) -> Pixels:
    """Return a mask or points as an array; points are float32, or float64 where that changes numbers."""
    value, is_mask = leaf.value, leaf.role in ("mask", "masks")
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().as_subclass(torch.Tensor)
        if value.dtype == torch.bfloat16:
            if is_mask:
                raise OptionError(f"{leaf.role} must have a dtype that NumPy has, got bfloat16")
            value = value.float()
    array: Pixels = np.asarray(value)
    is_exact = is_mask or array.dtype == np.float64 or (leaf.kind != "" and array.dtype.kind in "iu")
    if is_exact:
        return array if is_mask else array.astype(np.float64)
    return array.astype(np.float32)


def _has_length(value: object) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _written(leaf: _Leaf, value: Any, size: Size) -> object:
    """Return a moved part as what was given for it: torchvision's class, format, dtype and device."""
    given = leaf.value
    if leaf.role == "labels":
        return value
    tensors = as_tensors(from_corners(value, given) if leaf.role == "boxes" else value)
    if not isinstance(given, torch.Tensor):
        return tensors
    if not leaf.kind or leaf.kind == "Mask":
        return _like(tensors.to(given.device), leaf, size)
    result = tensors.to(given.dtype)
    if not given.is_floating_point():
        result = tensors.round().to(given.dtype)
        if not torch.allclose(result.double(), tensors.double(), rtol=0, atol=1e-3):
            is_whole = torch.allclose(tensors.round(), tensors, rtol=0, atol=1e-3)
            become = f"larger than {given.dtype} can hold" if is_whole else "fractions"
            raise OptionError(
                f"{leaf.kind} must be floating-point numbers where coordinates become {become}, got "
                f"{given.dtype}: make them torch.float32"
            )
    return _like(result.to(given.device), leaf, size)


def _like(tensor: torch.Tensor, leaf: _Leaf, size: Size) -> torch.Tensor:
    """Return a tensor in the class of a tv_tensor, with its attributes, on a canvas of a size."""
    if not leaf.kind:
        return with_grad(tensor, leaf.value)
    from torchvision import tv_tensors

    options = {"canvas_size": size} if hasattr(leaf.value, "canvas_size") else {}
    wrapped = tv_tensors.wrap(tensor.as_subclass(torch.Tensor), like=leaf.value, **options)
    return with_grad(wrapped, leaf.value)


def _described(structure: object) -> str:
    if isinstance(structure, Mapping):
        return f"a dict of {', '.join(map(str, structure)) or 'nothing'}"
    if isinstance(structure, (list, tuple)):
        return f"a {type(structure).__name__} of {', '.join(type(each).__name__ for each in structure)}"
    return type(structure).__name__
