"""A second opinion on files that are neither JPEG nor PNG: what Pillow makes of them.

Measured with OpenCV 5.0 and Pillow 13 on 500 files: WebP, AVIF, GIF, JPEG 2000 and TIFF are equal to the
bit, lossy ones too, or one level apart (CMYK, YCbCr in TIFF, 16 bits in JPEG 2000). What differs by more
differs by 20 levels and more: TIFF with alpha or in L*a*b*, GIF with a transparent colour, PNM of less than
8 bits, some JPEG 2000 of 16 bits.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.opencv import cv2

TOLERANCE = 1  # in levels of 255


def require_agreement(data: bytes, rgb: NDArray[np.uint8]) -> None:
    """Requires that Pillow reads the same pixels, where it is installed and knows the format.

    Args:
        data: A file.
        rgb: What `decode` makes of it: (height, width, 3).

    Raises:
        DecodeError: Pillow cannot read it, or reads other pixels.
    """
    theirs = _read_by_pillow(data)
    if theirs is None:
        return
    if theirs.shape != rgb.shape:
        raise DecodeError(
            f"OpenCV and Pillow must read a file alike, got {rgb.shape} from OpenCV and {theirs.shape} from "
            "Pillow: save it anew, as PNG for example"
        )
    worst = cv2.norm(theirs, rgb, cv2.NORM_INF)
    if worst > TOLERANCE:
        mean = cv2.norm(theirs, rgb, cv2.NORM_L1) / rgb.size
        raise DecodeError(
            f"OpenCV and Pillow must read a file alike, to {TOLERANCE} level of 255, got pixels that differ "
            f"by up to {worst:.0f} levels ({mean:.1f} on average): one of them misreads it, or it is "
            "transparent there; save it anew, as PNG for example"
        )


def _read_by_pillow(data: bytes) -> NDArray[np.uint8] | None:
    """The pixels as Pillow reads them; None where it is not installed, or does not know the format."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        return None
    most_pixels, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # OpenCV has read it: it is in memory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                return _pixels_of(image)
    except UnidentifiedImageError as error:
        # Of a format that it knows Pillow says so too, where the header is damaged.
        if not any(_takes(accept, data[:16]) for _, accept in Image.OPEN.values()):
            return None
        raise DecodeError(f"an image must be one that Pillow reads too, and it says: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # its readers raise whatever a damaged file makes them stumble over
        raise DecodeError(
            f"an image must be one that Pillow reads too, and it says: {error}: the file is damaged, or save "
            "it anew, as PNG for example"
        ) from error
    finally:
        Image.MAX_IMAGE_PIXELS = most_pixels


def _takes(accept: Any, beginning: bytes) -> bool:
    """Whether a reader of Pillow's is for files that begin so; where a library lacks, it answers in words."""
    return accept is not None and accept(beginning) is True


def _pixels_of(image: Any) -> NDArray[np.uint8]:
    """RGB as `decode` makes it: of 16 bits the upper 8, which Pillow's own conversion clips instead."""
    if not image.mode.startswith("I"):
        return np.asarray(image.convert("RGB"))
    grey = np.clip(np.asarray(image) >> 8, 0, 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)
