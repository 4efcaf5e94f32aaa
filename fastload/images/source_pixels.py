"""Pixels of the images that are to be encoded, from files or arrays, and conversions of their dtype."""

from typing import TypeAlias

import numpy as np

from fastload.errors import DecodeError, SourceError
from fastload.images.arrays import DType, Pixels, with_last_axis
from fastload.images.decode import decode
from fastload.images.encoding_names import DTYPES
from fastload.images.header import read_header, validate_file
from fastload.images.pixel_types import MOST_CHANNELS, RGB, PixelType, is_image_shape, most_of
from fastload.images.resize import SizeLimit, resize
from fastload.images.unchanged import decode_as

# A file, or pixels: (height, width, channels), or grey (height, width).
ImageSource: TypeAlias = "bytes | Pixels"

# torchvision's: 1.0 becomes the highest level, and each level has nearly the same share of 0…1.
_BELOW_ONE_LEVEL = 1e-3


def pixel_type_of(source: ImageSource, convert: str | None = None) -> PixelType:
    """Return the type of an image's pixels, or the one after its conversion to a dtype.

    Raises DecodeError for an unreadable file, and SourceError for an array that is no image.
    """
    if isinstance(source, bytes):
        header = read_header(source)
        kind = header.pixel_type
        if convert == RGB.dtype and header.format == "png":
            return RGB
    else:
        kind = PixelType.of(with_last_axis(require_pixels(source)))
    kind = kind if convert is None else kind._replace(dtype=convert)
    return RGB if kind == RGB._replace(channels=1) else kind


def converted_source(source: ImageSource, pixel_type: PixelType) -> ImageSource:
    """Return an image as it is if it has a type, else its pixels converted to the type's dtype.

    Conversions are torchvision's `to_dtype(scale=True)`. Raises DecodeError for numbers that do not fit.
    """
    if not isinstance(source, bytes):
        return _converted(with_last_axis(require_pixels(source)), pixel_type.dtype)
    header = read_header(source)
    if header.pixel_type == pixel_type:
        return source
    if pixel_type == RGB and header.format == "png":
        return decode(source)
    return _converted(decode_as(source, header.pixel_type), pixel_type.dtype)


def load_pixels(
    source: ImageSource, limit: SizeLimit | None, pixel_type: PixelType
) -> tuple[Pixels, bool, int]:
    """Validate and decode a file, or convert an array, and shrink it to the limit.

    Returns pixels of the type, True for a grey picture, and the EXIF orientation, which is not applied.
    Raises DecodeError if the image is of another type.
    """
    if isinstance(source, bytes):
        parsed = validate_file(source)
        require_type(parsed.header.pixel_type, pixel_type)
        image = decode_as(source, pixel_type) if parsed.pixels is None else parsed.pixels
        is_grey, orientation = parsed.header.channels <= 2, parsed.header.orientation
    else:
        image, orientation = with_last_axis(require_pixels(source)), 1
        is_grey = image.shape[2] == 1
        if is_grey and pixel_type == RGB:
            image = np.repeat(image, 3, axis=2)
        require_type(PixelType.of(image), pixel_type)
    target = limit.target(*image.shape[:2]) if limit is not None else None
    return image if target is None else resize(image, *target), is_grey, orientation


def require_type(found: PixelType, wanted: PixelType) -> None:
    """Raise DecodeError if an image is of another type than the others of its dataset."""
    if found == wanted:
        return
    step = "pack images of each type apart"
    if found.dtype != wanted.dtype:
        step = f"pack with --convert {RGB.dtype}, or another dtype, or {step}"
    raise DecodeError(f"the image must be {wanted}, as the first one, got {found}: {step}")


def require_pixels(pixels: Pixels) -> Pixels:
    """Return an image as a contiguous array; raise SourceError for another shape or dtype, or no pixels."""
    if not is_image_shape(pixels.shape) or pixels.dtype.name not in DTYPES:
        raise SourceError(
            f"pixels must be (height, width, channels), with 1 to {MOST_CHANNELS} channels, or grey (height, "
            f"width), of {', '.join(DTYPES)}, and not empty, got {pixels.dtype} {pixels.shape}: convert them "
            "before packing"
        )
    return np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("="))


def _converted(image: Pixels, dtype_name: str) -> Pixels:
    """Return an image (height, width, channels) in another dtype, as torchvision's `to_dtype(scale=True)`."""
    dtype: DType = np.dtype(dtype_name)
    if image.dtype == dtype:
        return image
    given, wanted = most_of(image.dtype), most_of(dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            converted = (image.astype(np.float32) * np.float32(1 / given)).astype(dtype)
        if not np.isfinite(converted).all() and np.isfinite(image).all():
            step = "choose float32, or convert them before packing"
            raise DecodeError(f"numbers must fit into {dtype}, got up to {np.abs(image).max()}: {step}")
        return converted
    low, high = image.min(), image.max()
    if not (low >= 0 and high <= given):
        raise DecodeError(
            f"numbers must be from 0 to {given:g} to be converted to {dtype}, got {low} to {high}: convert "
            "them before packing"
        )
    if image.dtype.kind == "f":
        return (image.astype(np.float32) * np.float32(wanted + 1 - _BELOW_ONE_LEVEL)).astype(dtype)
    levels = image.astype(np.int64)
    return (levels * int(wanted + 1) // int(given + 1)).astype(dtype)
