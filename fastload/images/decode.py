"""Between encoded bytes and RGB pixels, through OpenCV: the only file where BGR is spoken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError, OptionError

# IMREAD_COLOR_RGB, OpenCV 4.11's, hands libjpeg's own order through: 850 us a photo either way, but
# the 30 us of a swap afterwards are saved.
_RGB = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def decode(data: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Decodes a whole image.

    Grey becomes three equal channels, alpha is dropped, 16 bits are cut to their upper 8. The EXIF
    orientation is not applied, as torchvision's ImageFolder does not. (TIFF alone comes upright:
    OpenCV and PIL both turn it while they read.)

    Args:
        data: An encoded file: bytes, or a flat uint8 array such as a view of mapped memory.

    Returns:
        RGB, uint8, (height, width, 3), contiguous.

    Raises:
        DecodeError: The bytes are not an image that OpenCV reads.
    """
    return imdecode(data, _RGB)


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
            f"the bytes must be an image that OpenCV reads, got {len(data)} bytes starting with "
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
