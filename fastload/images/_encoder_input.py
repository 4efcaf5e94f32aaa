"""Input of encodings: an image file, or pixels from a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.errors import SourceError
from fastload.images._validation import validate_file
from fastload.images.decode import decode
from fastload.images.resize import SizeLimit, resize

ImageSource: TypeAlias = "bytes | NDArray[np.uint8]"  # a file, or pixels: RGB (h, w, 3) or grey (h, w)


@dataclass(frozen=True, slots=True, eq=False)
class EncoderInput:
    """The pixels of one image, ready to be encoded."""

    rgb: NDArray[np.uint8]  # (height, width, 3)
    is_grey: bool  # whether the channels are equal because the source has one
    orientation: int  # the source's in EXIF, which is not applied


def load_pixels(source: ImageSource, limit: SizeLimit | None) -> EncoderInput:
    """Validate and decode a file, or convert an array, and shrink it to the limit."""
    if isinstance(source, bytes):
        parsed = validate_file(source)
        rgb = decode(source) if parsed.rgb is None else parsed.rgb
        is_grey, orientation = parsed.header.channels <= 2, parsed.header.orientation
    else:
        rgb, is_grey, orientation = require_pixels(source), source.ndim == 2, 1
        if is_grey:
            rgb = np.repeat(rgb[:, :, None], 3, axis=2)
    target = limit.target(*rgb.shape[:2]) if limit is not None else None
    return EncoderInput(rgb if target is None else resize(rgb, *target), is_grey, orientation)


def require_pixels(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pixels as a contiguous array; raise SourceError for another shape or type, or no pixels."""
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not is_image or pixels.dtype != np.uint8 or pixels.size == 0:
        raise SourceError(
            "pixels must be uint8, RGB (height, width, 3) or grey (height, width), and not empty, "
            f"got {pixels.dtype} {pixels.shape}: convert them before packing"
        )
    return np.ascontiguousarray(pixels)
