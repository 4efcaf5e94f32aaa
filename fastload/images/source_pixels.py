"""Pixels of the images that are to be encoded, from their files or from arrays."""

from typing import TypeAlias

import numpy as np

from fastload.errors import SourceError
from fastload.images.arrays import Pixels
from fastload.images.decode import decode
from fastload.images.header import validate_file
from fastload.images.resize import SizeLimit, resize

ImageSource: TypeAlias = "bytes | Pixels"  # a file, or pixels: RGB (h, w, 3) or grey (h, w)


def load_pixels(source: ImageSource, limit: SizeLimit | None) -> tuple[Pixels, bool, int]:
    """Validate and decode a file, or convert an array, and shrink it to the limit.

    Returns RGB pixels, True if the source is grey, and its EXIF orientation, which is not applied.
    """
    if isinstance(source, bytes):
        parsed = validate_file(source)
        rgb = decode(source) if parsed.rgb is None else parsed.rgb
        is_grey, orientation = parsed.header.channels <= 2, parsed.header.orientation
    else:
        rgb, is_grey, orientation = require_pixels(source), source.ndim == 2, 1
        if is_grey:
            rgb = np.repeat(rgb[:, :, None], 3, axis=2)
    target = limit.target(*rgb.shape[:2]) if limit is not None else None
    return rgb if target is None else resize(rgb, *target), is_grey, orientation


def require_pixels(pixels: Pixels) -> Pixels:
    """Return the pixels as a contiguous array; raise SourceError for another shape or type, or no pixels."""
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not is_image or pixels.dtype != np.uint8 or pixels.size == 0:
        raise SourceError(
            "pixels must be uint8, RGB (height, width, 3) or grey (height, width), and not empty, "
            f"got {pixels.dtype} {pixels.shape}: convert them before packing"
        )
    return np.ascontiguousarray(pixels)
