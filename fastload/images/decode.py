"""Between encoded bytes and RGB pixels, through OpenCV: the only file where BGR is spoken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError, OptionError
from fastload.images.jpeg import EOI, SOI, parse_jpeg
from fastload.images.opencv import cv2

# IMREAD_COLOR_RGB, OpenCV 4.11's, hands libjpeg's own order through: 850 us a photo either way, but
# the 30 us of a swap afterwards are saved. Some readers of other formats get it wrong (OpenCV 5.0: AVIF
# with alpha and Sun raster with a palette differ from PIL by up to 255 levels; read as BGR they are equal).
_RGB = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_BGR = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_READ_AS_RGB = (SOI, PNG_SIGNATURE[: len(SOI)])

# By how much libjpeg can shrink each side while it decodes. (OpenCV names what only shrinks after grey; the
# flags named after colour would also ask for BGR.)
_REDUCED = {
    1: 0,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
}


def decode(data: bytes | NDArray[np.uint8], reduction: int = 1) -> NDArray[np.uint8]:
    """Decodes a whole image.

    Grey becomes three equal channels, alpha is dropped (of TIFF, OpenCV multiplies by it first), 16 bits are
    cut to their upper 8. The EXIF orientation is not applied, as torchvision's ImageFolder does not. (TIFF
    alone comes upright: OpenCV and PIL both turn it while they read.)

    Args:
        data: An encoded file: bytes, or a flat uint8 array such as a view of mapped memory.
        reduction: By how much each side of a JPEG is shrunk meanwhile, rounded up: 1, 2, 4 or 8.

    Returns:
        RGB, uint8, (height, width, 3), contiguous.

    Raises:
        DecodeError: The bytes are not an image that OpenCV reads, or a JPEG without its end.
    """
    if not len(data):
        raise DecodeError("an image must have bytes, got none: the file is empty")
    require_end(data)
    if bytes(data[: len(SOI)]) in _READ_AS_RGB:
        return imdecode(data, _RGB | _REDUCED[reduction])
    image = imdecode(data, _BGR)
    # A grey PFM comes without channels, whatever is asked for.
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB))


def is_reducible(data: bytes | NDArray[np.uint8]) -> bool:
    """Whether an image can be shrunk while it is decoded: a JPEG."""
    return bytes(data[:2]) == SOI


def require_end(data: bytes | NDArray[np.uint8]) -> None:
    """Requires that a JPEG has an end: releases of OpenCV before 5 fill up one that has not with old pixels.

    (opencv/opencv 26488.) Other formats are passed: of those OpenCV itself refuses what is cut short.

    Raises:
        DecodeError: It is truncated.
    """
    if bytes(data[:2]) != SOI or bytes(data[-2:]) == EOI:
        return
    file = bytes(data)
    # Searched for behind the header, whose thumbnail has an end of its own.
    if file.rfind(EOI, parse_jpeg(file).scan_offset) < 0:
        raise DecodeError(
            f"a JPEG must end with an end-of-image marker, got {len(data):,} bytes without one: "
            "the file is truncated"
        )


def imdecode(data: bytes | NDArray[np.uint8], flags: int) -> NDArray[Any]:
    """Runs `cv2.imdecode`, whose two ways of failing become one.

    Args:
        data: An encoded file.
        flags: Any of OpenCV's IMREAD constants, joined.

    Raises:
        DecodeError: OpenCV raised, or returned None.
    """
    try:
        image: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise DecodeError(
            f"the bytes must be an image within OpenCV's limits, and it says: {error.err or error}"
        ) from error
    if image is None:
        raise DecodeError(
            f"the bytes must be an image that OpenCV reads, got {len(data):,} bytes starting with "
            f"{bytes(data[:8])!r}: the file is damaged, truncated or in another format"
        )
    return image


def encode(image: NDArray[np.uint8], suffix: str, options: Sequence[int] = ()) -> bytes:
    """Encodes pixels as a file.

    Args:
        image: RGB (height, width, 3) or grey (height, width), uint8.
        suffix: The format, by its file suffix: `.jpg`, `.png`.
        options: Pairs of OpenCV's IMWRITE constants and their values, in one row.

    Raises:
        OptionError: The format cannot hold the image: JPEG ends at 65500 pixels a side.
    """
    bgr = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    try:
        is_encoded, data = cv2.imencode(suffix, bgr, options)
    except cv2.error:
        is_encoded = False
    if not is_encoded:
        raise OptionError(
            f"a {suffix} file must be able to hold the image, got {image.shape[0]}x"
            f"{image.shape[1]} pixels, which it cannot: choose another encoding or a smaller size"
        )
    return data.tobytes()
