"""Decoding of image files in their own dtype and with all of their channels, or as RGB of 8 bits."""

from __future__ import annotations

import numpy as np

from fastload.contracts import Box
from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, Size, StoredBytes, with_last_axis
from fastload.images.decode import READERS, decode, imdecode
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.images.numpy_files import read_npy
from fastload.images.opencv import cv2
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.region import crop
from fastload.images.tiff import read_tiff

_TO_RGB = {3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGBA}
_GREY_AND_ALPHA = 2


def decode_as(data: StoredBytes, pixel_type: PixelType) -> Pixels:
    """Decode an image of a type, (height, width, channels); raise DecodeError if it is of another one."""
    if pixel_type == RGB:
        return decode(data)
    format = format_of(bytes(data[:HEAD_BYTES]))
    if format == "TIFF":
        image = read_tiff(data)
    else:
        image = READERS[format](data) if format in READERS else _by_opencv(data, pixel_type.channels)
    return _require(image, pixel_type)


def decode_region_as(data: StoredBytes, size: Size, box: Box, pixel_type: PixelType) -> Pixels:
    """Decode a region of an image of a type other than RGB; equal to `decode_as` and cropping.

    `size` is that of the image. Of .npy files and TIFFs, only the region's bytes are read.
    """
    format = format_of(bytes(data[:HEAD_BYTES]))
    if format == "TIFF":
        return _require(read_tiff(data, box), pixel_type)
    image = read_npy(data) if format == "NumPy" else decode_as(data, pixel_type)
    return crop(_require(image, pixel_type), size, box)


def _by_opencv(data: StoredBytes, channels: int) -> Pixels:
    image = with_last_axis(imdecode(data, cv2.IMREAD_UNCHANGED))
    if (code := _TO_RGB.get(image.shape[2])) is not None:
        image = cv2.cvtColor(image, code)
    if channels < image.shape[2]:
        # OpenCV repeats the grey beside an alpha channel, and makes one of a transparent colour.
        kept = [0, image.shape[2] - 1] if channels == _GREY_AND_ALPHA else range(channels)
        image = np.ascontiguousarray(image[:, :, kept])
    return image


def _require(image: Pixels, pixel_type: PixelType) -> Pixels:
    if PixelType.of(image) != pixel_type:
        raise DecodeError(
            f"the image must be {pixel_type}, as its record or dataset says, got {PixelType.of(image)}: it "
            "is damaged or has been replaced"
        )
    return image
