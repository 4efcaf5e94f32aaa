"""Pixel types: the dtype and the number of channels that all images of a field have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastload.images.arrays import DType, Pixels
from fastload.images.encoding_names import DTYPES

MOST_CHANNELS = 64

_PICTURE_CHANNELS = 4  # colours and alpha


class PixelType(NamedTuple):
    """Dtype, by NumPy's name, and number of channels of an image."""

    dtype: str
    channels: int

    @classmethod
    def of(cls, pixels: Pixels) -> PixelType:
        """Return the type of pixels (height, width, channels)."""
        return cls(pixels.dtype.name, pixels.shape[2])

    @property
    def numpy_dtype(self) -> DType:
        """The dtype as NumPy's object."""
        return np.dtype(self.dtype)

    @property
    def stored_dtype(self) -> DType:
        """The dtype in files: little-endian."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def pixel_bytes(self) -> int:
        """The size of one pixel in bytes."""
        return self.numpy_dtype.itemsize * self.channels

    @property
    def is_possible(self) -> bool:
        """True if images may have this type."""
        return self.dtype in DTYPES and 1 <= self.channels <= MOST_CHANNELS

    def __str__(self) -> str:
        """Return the type in words."""
        return f"{self.dtype} in {self.channels} channel{'' if self.channels == 1 else 's'}"


RGB = PixelType("uint8", 3)
"""The type of pictures of 8 bits: grey becomes three equal channels, and alpha is dropped."""


def most_of(dtype: DType) -> float:
    """Return the number that white has in a dtype: the highest integer, or 1 for floating-point numbers."""
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype.name).max)


def is_image_shape(shape: tuple[int, ...]) -> bool:
    """Return True for the shape of an image: (height, width) or (height, width, channels), none of them 0.

    (3, 32, 32) is refused: an image that is less high than it has channels has them first.
    """
    if 0 in shape or len(shape) not in (2, 3):
        return False
    channels = shape[2] if len(shape) == 3 else 1
    return channels <= _PICTURE_CHANNELS or channels <= min(*shape[:2], MOST_CHANNELS)


def picture_type(dtype: str, channels: int) -> PixelType:
    """Return the type of a picture, whose channels may be grey or colours, with or without alpha."""
    return RGB if dtype == "uint8" else PixelType(dtype, channels)
