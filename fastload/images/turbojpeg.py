"""Decoding a region of a plain JPEG with the TurboJPEG library, libjpeg-turbo's, from version 3 on.

A JPEG is one stream of entropy-coded blocks, so all rows down to the region's last one must be read; but only
the region's own blocks are transformed, and nothing below it is read. Random crops of photos take 0.8 of the
time of decoding all, those of 12-megapixel photos 0.45.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.decode import decode, encode
from fastload.images.jpeg import JpegLayout, parse_jpeg
from fastload.images.opencv import cv2

_DECOMPRESS, _RGB = 1, 0  # TJINIT_DECOMPRESS and TJPF_RGB of turbojpeg.h

# Upsampling of chroma reads the neighbouring samples. Two rows and a column, rounded to whole MCUs, are
# enough: half a million random crops of images of all samplings were bit-equal.
_ROW_MARGIN, _COLUMN_MARGIN = 2, 1

_SAMPLINGS = (
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)


class _Part(ctypes.Structure):
    """The part of an image that is decoded, in pixels; the library's `tjregion`."""

    left: int
    top: int
    width: int
    height: int
    _fields_ = tuple((name, ctypes.c_int) for name in ("left", "top", "width", "height"))


def decode_part(
    data: bytes | NDArray[np.uint8], size: tuple[int, int], box: tuple[int, int, int, int]
) -> NDArray[np.uint8] | None:
    """Decode a region, (top, left, height, width), of a complete JPEG to RGB.

    Returns a view, (height, width, 3), bit-equal to a crop of the decoded image; or None if the full image
    must be decoded: it is progressive, CMYK, damaged or not of `size`, (height, width), or no library is
    installed.
    """
    library = find_library()
    if library is None:
        return None
    file = bytes(data)
    try:
        layout = parse_jpeg(file)
    except DecodeError:
        return None
    # The scans of a progressive file would all be decoded; and not every OpenCV reads arithmetic codes.
    if (layout.height, layout.width) != size or not layout.is_baseline:
        return None
    return _decode(library, file, layout, box)


def _decode(
    library: ctypes.CDLL, file: bytes, layout: JpegLayout, box: tuple[int, int, int, int]
) -> NDArray[np.uint8] | None:
    # With the samples that its pixels depend on; the left edge is an MCU's.
    (top, left, height, width), mcu = box, layout.mcu_width
    first = max(0, left - _COLUMN_MARGIN) // mcu * mcu
    stop = min(layout.width, -(-(left + width + _COLUMN_MARGIN) // mcu) * mcu)
    if first > 0 and stop - first < mcu:
        first -= mcu  # upsampling is wrong if a last MCU with a single sample of chroma is decoded alone
    first_row, stop_row = max(0, top - _ROW_MARGIN), min(layout.height, top + height + _ROW_MARGIN)
    part = _Part(first, first_row, stop - first, stop_row - first_row)
    pixels = np.empty((part.height, part.width, 3), np.uint8)
    # A new decoder for each image takes 1 µs. A used one has the tables of the image before, with which it
    # would decode a file that lacks its own; and after a damaged header it refuses all later files.
    decoder = library.tj3Init(_DECOMPRESS)
    try:
        # A warning is a failure here: what the pixels of a damaged file are is left to OpenCV.
        has_failed = (
            library.tj3DecompressHeader(decoder, file, len(file))
            or library.tj3SetCroppingRegion(decoder, part)
            or library.tj3Decompress8(decoder, file, len(file), pixels.ctypes.data, 0, _RGB)
        )
    finally:
        library.tj3Destroy(decoder)
    return None if has_failed else pixels[top - first_row :, left - first :][:height, :width]


@functools.cache
def find_library() -> ctypes.CDLL | None:
    """Return a TurboJPEG library that decodes regions as OpenCV does, or None; cached for the process.

    Conda, the system, Homebrew and the wheel `turbojpeg` install it.
    """
    number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    name = "libturbojpeg.dylib" if sys.platform == "darwin" else "libturbojpeg.so.0"
    wheels = (path for folder in sys.path for path in Path(folder).glob("turbojpeg.*libs/libturbojpeg*"))
    for path in (Path(sys.prefix, "lib", name), name, Path("/opt/homebrew/lib", name), *wheels):
        try:
            library = ctypes.CDLL(str(path))
            library.tj3Init.argtypes, library.tj3Init.restype = [number], pointer
            library.tj3Destroy.argtypes, library.tj3Destroy.restype = [pointer], None
            library.tj3DecompressHeader.argtypes = [pointer, pointer, size]
            library.tj3SetCroppingRegion.argtypes = [pointer, _Part]
            library.tj3Decompress8.argtypes = [pointer, pointer, size, pointer, number, number]
        except (OSError, AttributeError):  # it does not exist, or is older than version 3
            continue
        if all(_decodes_alike(library, sampling) for sampling in _SAMPLINGS):
            return library
    return None


def _decodes_alike(library: ctypes.CDLL, sampling: int) -> bool:
    """Return True if a region of a small image is the same from the library and from OpenCV.

    OpenCV can be built with another libjpeg, which upsamples chroma in another way.
    """
    noise = np.random.default_rng(0).integers(0, 256, (40, 80, 3), np.uint8)
    file = encode(noise, ".jpg", (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling))
    part = _decode(library, file, parse_jpeg(file), (9, 35, 20, 30))
    return part is not None and np.array_equal(part, decode(file)[9:29, 35:65])
