"""What encodings are given: a file, or pixels from a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.errors import SourceError
from fastload.images.checking import check_file
from fastload.images.decode import decode
from fastload.images.resize import SizeLimit, resize

Source: TypeAlias = "bytes | NDArray[np.uint8]"  # a file, or pixels: RGB (h, w, 3) or grey (h, w)


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """The pixels of one image, ready to be encoded.

    Attributes:
        rgb: (height, width, 3).
        is_grey: Whether its channels are equal because the source has one.
        orientation: The EXIF orientation that the source states, which is not applied.
    """

    rgb: NDArray[np.uint8]
    is_grey: bool
    orientation: int


def load(source: Source, limit: SizeLimit | None) -> Picture:
    """Makes pixels of a file or an array, shrunk to the limit.

    Raises:
        DecodeError: The file is not one that `check_file` passes.
        SourceError: The array is not one that `checked_pixels` takes.
    """
    if isinstance(source, bytes):
        parts = check_file(source)
        rgb = decode(source) if parts.rgb is None else parts.rgb
        is_grey, orientation = parts.header.channels <= 2, parts.header.orientation
    else:
        rgb, is_grey, orientation = checked_pixels(source), source.ndim == 2, 1
        if is_grey:
            rgb = np.repeat(rgb[:, :, None], 3, axis=2)
    target = limit.target(*rgb.shape[:2]) if limit is not None else None
    return Picture(rgb if target is None else resize(rgb, *target), is_grey, orientation)


def checked_pixels(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns an image's pixels, contiguous.

    Raises:
        SourceError: They are of another shape or type, or none.
    """
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not is_image or pixels.dtype != np.uint8 or pixels.size == 0:
        raise SourceError(
            "pixels must be uint8, RGB (height, width, 3) or grey (height, width), and not empty, "
            f"got {pixels.dtype} {pixels.shape}: convert them before packing"
        )
    return np.ascontiguousarray(pixels)
