"""Conversion of a dataset's samples to values, one per field, and pixels if they have an image, for a shard.

Neither torch nor PIL is imported here: their objects exist only if they have already been imported.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.images.arrays import Pixels, with_last_axis
from fastload.images.encoding_names import DTYPES as IMAGE_DTYPES
from fastload.images.pixel_types import PixelType, is_image_shape
from fastload.shards.schema import DTYPES, Field
from fastload.sources.dataset.nested import (
    IF_NO_IMAGE,
    described,
    detection_fields,
    is_instance,
    is_masks,
    is_pil,
    split_sample,
)

_NUMERIC_KINDS = ("scalar", "vector", "ragged", "boxes", "keypoints", "corners")


def infer_fields(sample: object, *, has_image: bool = True) -> tuple[Field, ...]:
    """Return the fields for a sample's values other than its image.

    An integer named `label`, and an integer target, become the int64 field `label`. Other numbers become
    scalars; arrays become vectors if they have one dimension, else ragged fields; lists of text become texts.
    PIL images, and masks (objects, height, width) stacked vertically, become image fields, stored without
    loss. Detection targets have the fields of `detection_fields`. SourceError is raised for values of any
    other kind.
    """
    _, values = split_sample(sample, has_image=has_image)
    if not has_image and not values:
        raise SourceError("must hold at least one value, got an empty dict: give each sample its values")
    known = detection_fields(values) if has_image else {}
    return tuple(known.get(name) or _infer_field(name, value) for name, value in values.items())


def to_image(image: object) -> bytes | Pixels:
    """Return an image for a record: a file's bytes, or pixels, (h, w, channels) or grey (h, w).

    The image may be bytes; a PIL image, whose alpha is dropped as by ImageFolder, of 8 bits per channel or of
    one channel of 16 bits or floats; an array (h, w) or (h, w, channels); or a tensor (h, w) or (channels, h,
    w), of integers. SourceError is raised for anything else.
    """
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if is_pil(image):
        if image.mode.startswith(("I", "F")):
            return _of_wide_pil(image)
        return np.array(image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB"))
    is_tensor = is_instance(image, "torch", "Tensor")
    if not is_tensor and not isinstance(image, np.ndarray):
        raise _unfit("an image", "be a PIL image, an array or tensor, or a file's bytes", image)
    pixels = _to_array("an image", image)
    if pixels.dtype.kind == "f" and (is_tensor or pixels.dtype == np.float64):
        step = "drop ToTensor and Normalize from its transform; pixels become float when they are loaded; "
        step += f"if the source has floats, pass an array of float32 (h, w, channels); {IF_NO_IMAGE}"
        raise _unfit("an image", "be of integers, or an array of float16 or float32", image, step)
    if is_tensor and pixels.ndim == 3:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype.name not in IMAGE_DTYPES or not is_image_shape(pixels.shape):
        layout = "(h, w) or (channels, h, w)" if is_tensor else "(h, w) or (h, w, channels)"
        must = f"be of {', '.join(IMAGE_DTYPES)} and of shape {layout}"
        raise _unfit("an image", must, image, f"convert it, {IF_NO_IMAGE}")
    return np.asarray(pixels, order="C")


def _of_wide_pil(image: Any) -> Pixels:
    """Return the pixels of a PIL image of 16 bits or floats: uint16 or float32."""
    pixels: Pixels = np.array(image)
    if image.mode == "I":  # of 32 bits, as older releases of Pillow open PNGs of 16
        levels = pixels.astype(np.uint16)
        if not np.array_equal(levels, pixels):
            raise _unfit("an image of mode I", "hold integers from 0 to 65535", image)
        return levels
    return pixels.astype(pixels.dtype.newbyteorder("="))


def to_values(
    fields: Sequence[Field], values: Mapping[str, object], are_inferred: bool = False
) -> dict[str, object]:
    """Return a sample's values in the types of their fields: numbers, arrays, text, bytes.

    Numbers do not change, except that floats are rounded if a given field has fewer bits. With
    `are_inferred` (fields from another sample), values must also have the dtype of their field; exceptions
    are Python's integers, arrays without rows, and labels, which may be any integers. SourceError is raised
    for a value that does not fit.
    """
    names = [field.name for field in fields]
    for name, value in list(values.items()):
        if name not in names and isinstance(value, (list, tuple)) and not value:
            # An empty list of dicts does not show its keys.
            parts = {each: () for each in names if each.startswith(f"{name}_")}
            values = {each: other for each, other in values.items() if each != name} | parts
    if set(names) != set(values):
        raise SourceError(f"must hold the fields {names}, got {list(values)}: make all samples alike")
    return {field.name: _to_value(field, values[field.name], are_inferred) for field in fields}


def require_no_images(fields: Sequence[Field]) -> None:
    """Raise SourceError if records without an image have fields that belong to one."""
    names = [field.name for field in fields if field.needs_image or field.name == "image"]
    if names:
        are = "is an image, or belongs" if len(names) == 1 else "are images, or belong"
        raise SourceError(
            f"must have an image, because {', '.join(names)} {are} to one: make each sample (image, target), "
            "or a dict in which one image is named 'image'"
        )


def _infer_field(name: str, value: object) -> Field:
    if isinstance(value, str):
        return Field(name, "text")
    if isinstance(value, (bytes, bytearray)):
        return Field(name, "bytes")
    if is_instance(value, "torchvision.tv_tensors", "Mask") and name == "mask":
        return Field.mask()
    if is_masks(name, value):
        return Field(name, "image", encoding="keep", format="masks" if name == "masks" else None)
    if is_pil(value) or is_instance(value, "torchvision.tv_tensors", "Image"):
        image = _to_further_image(value)
        if isinstance(image, bytes) or image.dtype == np.uint8:
            return Field.image(name, "keep")
        return Field.image(name, "keep", PixelType.of(with_last_axis(image)))
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        return Field(name, "texts")
    array = _to_array(name, value)
    dtype = array.dtype.name
    if dtype not in DTYPES:
        raise SourceError(f"{name} must be of a dtype among {', '.join(DTYPES)}, got {dtype}")
    if array.ndim == 0:
        return Field.label() if name == "label" and array.dtype.kind in "iu" else Field(name, "scalar", dtype)
    if array.ndim == 1:
        return Field(name, "vector", dtype, array.shape)
    return Field(name, "ragged", dtype, array.shape[1:])


def _to_value(field: Field, value: object, is_inferred: bool) -> object:
    if field.kind == "text" and isinstance(value, str):
        value.encode()  # raises if UTF-8 cannot encode it
        return value
    if field.kind == "bytes" and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if field.kind == "image":
        return _to_masks(field.name, value) if is_masks(field.name, value) else _to_further_image(value)
    if field.kind == "texts" and isinstance(value, (list, tuple)):
        if all(isinstance(each, str) for each in value):
            return list(value)
    elif field.kind in _NUMERIC_KINDS and not isinstance(value, (str, bytes, bytearray)):
        array = _to_array(field.name, value)
        fitted = None if is_inferred and not _has_dtype(field, value, array) else fit(field, array)
        if fitted is not None:
            return fitted.item() if field.kind == "scalar" else fitted
    wanted = {
        "scalar": f"one {field.dtype}",
        "vector": f"{field.dtype} of shape {field.shape}",
        "ragged": f"any number of rows, {field.dtype} of shape {field.shape} each",
    }.get(field.kind, field.kind)
    raise _unfit(field.name, f"be {wanted}", value, "make all samples alike, or describe them with fields=")


def _to_further_image(image: object) -> bytes | Pixels:
    """Convert a further image without loss; a palette image, such as a mask, becomes its indices."""
    if not is_pil(image):
        return to_image(image)
    if image.mode == "P":
        return np.array(image)
    if image.mode in ("LA", "RGBA"):
        png = io.BytesIO()
        image.save(png, "PNG")
        return png.getvalue()
    if image.mode not in ("1", "L", "RGB") and not image.mode.startswith(("I", "F")):
        must = "be of a mode that is stored without loss (1, F, I, L, LA, P, RGB, RGBA)"
        raise _unfit("an image beside the first", must, image, "convert it, or pass its pixels as an array")
    return to_image(image)


def _to_masks(name: str, value: object) -> bytes | npt.NDArray[np.uint8]:
    """Return the masks of objects stacked vertically in one grey image, or b"" without objects."""
    masks = _to_array(name, value)
    levels = masks.astype(np.uint8)
    if masks.dtype.kind not in "bui" or not np.array_equal(levels, masks):
        raise _unfit(name, "hold integers from 0 to 255", value, "convert them")
    return levels.reshape(-1, masks.shape[2]) if levels.size else b""


def _has_dtype(field: Field, value: object, array: npt.NDArray[np.generic]) -> bool:
    """Return True if a value is of the dtype of a field inferred from another sample."""
    if field.is_of_objects and array.dtype.kind in "iuf":
        return True
    if array.dtype.name == field.dtype or (field.kind == "ragged" and not array.size):
        return True
    accepts_any_integer = field == Field.label() or isinstance(value, (int, list, tuple))
    return accepts_any_integer and array.dtype.kind in "iu" and field.dtype != "bool"


def fit(field: Field, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic] | None:
    """Return the array in the field's shape and dtype, or None if its numbers would change."""
    if field.kind == "scalar" and field.name == "image_id" and array.shape == (1,):
        array = array[0]  # as in torchvision's references
    if field.kind not in ("scalar", "vector"):
        if array.shape == (0,):  # an empty list does not show the shape of its rows
            array = array.reshape(0, *field.shape)
        if array.ndim == 0 or array.shape[1:] != field.shape:
            return None
    elif array.shape != field.shape:
        return None
    dtype = np.dtype(field.dtype)
    if array.dtype == dtype:
        return np.asarray(array, order="C")
    if array.dtype.kind not in "biuf":
        return None
    try:
        with np.errstate(over="raise", invalid="raise"):
            cast = array.astype(dtype, order="C")
            back = cast.astype(array.dtype)
    except FloatingPointError:
        return None
    if array.dtype.kind == "f" == dtype.kind:
        return cast
    # Both comparisons are needed: -1 survives a round trip through uint64, and 2**53 + 1 equals its float64.
    return cast if np.array_equal(cast, array) and np.array_equal(back, array) else None


def _to_array(name: str, value: object) -> npt.NDArray[np.generic]:
    if is_instance(value, "torch", "Tensor"):
        try:
            return np.asarray(value.detach().cpu().numpy())  # type: ignore[attr-defined]
        except TypeError as error:  # bfloat16 and others that NumPy lacks
            raise _unfit(name, f"be of a dtype among {', '.join(DTYPES)}", value) from error
    if not isinstance(value, (bool, int, float, list, tuple, np.generic, np.ndarray)):
        must = "be a number, text, bytes, an array, tensor or list of numbers, or a PIL image"
        raise _unfit(name, must, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        must, step = "be a list of numbers, or of rows of one length", "store it as text or bytes, or pad it"
        raise _unfit(name, must, value, step) from error
    if not isinstance(value, (list, tuple)):
        return array
    # NumPy converts a list of mixed kinds to one dtype, which must not change any number.
    for number, became in zip(np.asarray(value, object).ravel(), array.ravel().tolist(), strict=True):
        is_bool = isinstance(number, (bool, np.bool_))
        if is_bool != isinstance(became, bool) or (isinstance(number, int) and number != became):
            raise SourceError(
                f"{name} must be a list of numbers of one kind, got {number!r}, which beside the others "
                f"would become {became!r}: make it an array"
            )
    return array


def _unfit(name: str, must: str, value: object, step: str = "convert it") -> SourceError:
    return SourceError(f"{name} must {must}, got {described(value)}: {step}")
