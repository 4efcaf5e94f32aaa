"""Masks: images whose grey levels, or palette indices, are classes."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.arrays import StoredBytes
from fastload.images.decode import encode, imdecode
from fastload.images.opencv import cv2
from fastload.images.png import PNG_SIGNATURE, chunks_of
from fastload.images.resize import Resampling, resize

# The places of bit depth and colour type in a PNG, whose header's chunk is the first.
_BIT_DEPTH, _COLOUR_TYPE = 24, 25
_GREY, _PALETTE = 0, 3


def decode_mask(data: StoredBytes) -> NDArray[np.uint8]:
    """Decode a mask to classes, uint8, (height, width).

    Raises DecodeError if the bytes are not an image, or have colours or more than 8 bits a channel.
    """
    file = bytes(data)
    depth = 0
    if file.startswith(PNG_SIGNATURE) and len(file) > _COLOUR_TYPE:
        if file[_COLOUR_TYPE] == _PALETTE:
            depth, file = file[_BIT_DEPTH], _of_indices(file)
        elif file[_COLOUR_TYPE] == _GREY and file[_BIT_DEPTH] == 1:
            depth = 1  # readers spread grey levels over 0 to 255: of 2 or 4 bits, those are the classes
    levels = imdecode(file, cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
    if levels.ndim == 3 and (levels == levels[:, :, :1]).all():
        levels = levels[:, :, 0]
    if levels.dtype != np.uint8 or levels.ndim != 2:
        step = "colours must be converted to classes before packing"
        if levels.dtype != np.uint8:
            step = "a table with a column for each image of a record keeps depth, and other values of 16 bits"
        raise DecodeError(
            "a mask must have classes of 8 bits, as grey levels or indices of a palette, got "
            f"{levels.dtype} of shape {levels.shape}: {step}"
        )
    if depth in (1, 2, 4):  # libpng spreads the levels over 0 to 255
        levels = levels // (255 // ((1 << depth) - 1))
    return np.ascontiguousarray(levels)


def resize_mask(data: bytes, height: int, width: int) -> bytes:
    """Return a mask as a PNG of another size; each pixel is the nearest one's class."""
    levels = decode_mask(data)[:, :, None]
    return encode(resize(levels, height, width, Resampling("nearest-exact"))[:, :, 0], ".png")


def _of_indices(file: bytes) -> bytes:
    """Return a PNG of palette indices as one of grey levels, whose rows have the same bytes.

    OpenCV would look up the colours.
    """
    parts = [PNG_SIGNATURE]
    for kind, body in chunks_of(file):
        if kind not in (b"PLTE", b"tRNS", b"bKGD", b"hIST"):
            is_header = kind == b"IHDR"
            chunk = kind + (bytes((*body[:9], _GREY, *body[10:])) if is_header else body)
            parts.append(struct.pack(">I", len(body)) + chunk + struct.pack(">I", zlib.crc32(chunk)))
    return b"".join(parts)
