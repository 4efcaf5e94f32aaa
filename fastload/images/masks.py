"""Masks: images whose grey levels, or palette indices, are classes."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.decode import PNG_SIGNATURE, encode, imdecode
from fastload.images.opencv import cv2
from fastload.images.resize import Resampling, resize

# In a PNG, the header's chunk (13 bytes and a checksum) is the first; bit depth and colour type are in it.
_IHDR = slice(12, 29)
_CRC = slice(29, 33)
_BIT_DEPTH, _COLOUR_TYPE = 24, 25
_GREY, _PALETTE = 0, 3


def decode_mask(data: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Decode a mask to classes, uint8, (height, width).

    Raises DecodeError if the bytes are not an image, or have colours or more than 8 bits a channel.
    """
    file = bytearray(data)
    depth = 0
    if file.startswith(PNG_SIGNATURE) and len(file) > _CRC.stop and file[_COLOUR_TYPE] in (_GREY, _PALETTE):
        depth = file[_BIT_DEPTH]
        if file[_COLOUR_TYPE] == _PALETTE:
            # OpenCV would look up the colours. The rows of grey levels have the same bytes.
            file[_COLOUR_TYPE] = _GREY
            file[_CRC] = struct.pack(">I", zlib.crc32(file[_IHDR]))
            file = _without_palette(file)
        elif depth in (2, 4):
            depth = 8  # readers spread such grey levels over 0 to 255: the spread levels are the classes
    levels: NDArray[Any] = imdecode(bytes(file), cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
    if levels.ndim == 3 and (levels == levels[:, :, :1]).all():
        levels = levels[:, :, 0]
    if levels.dtype != np.uint8 or levels.ndim != 2:
        raise DecodeError(
            "a mask must have classes of 8 bits, as grey levels or indices of a palette, got "
            f"{levels.dtype} of shape {levels.shape}: colours must be converted to classes before packing"
        )
    if depth in (1, 2, 4):  # libpng spreads the levels over 0 to 255
        levels = levels // (255 // ((1 << depth) - 1))
    return np.ascontiguousarray(levels)


def resize_mask(data: bytes, height: int, width: int) -> bytes:
    """Return a mask as a PNG of another size; each pixel is the nearest one's class."""
    levels = decode_mask(data)[:, :, None]
    return encode(resize(levels, height, width, Resampling("nearest-exact"))[:, :, 0], ".png")


def _without_palette(file: bytearray) -> bytearray:
    """Remove the palette of a PNG, and the chunks that refer to its entries."""
    rest, offset = bytearray(file[: len(PNG_SIGNATURE)]), len(PNG_SIGNATURE)
    while offset + 8 <= len(file):
        end = offset + 12 + int.from_bytes(file[offset : offset + 4], "big")
        if bytes(file[offset + 4 : offset + 8]) not in (b"PLTE", b"tRNS", b"bKGD", b"hIST"):
            rest += file[offset:end]
        offset = end
    return rest
