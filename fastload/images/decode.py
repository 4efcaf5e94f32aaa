"""Decoding and encoding of image files with OpenCV, whose pixels are BGR; all others are RGB."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fastload.errors import DecodeError, OptionError
from fastload.images.arrays import Pixels, StoredBytes
from fastload.images.dicom import read_dicom
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.images.jpeg import EOI, SOI, parse_jpeg
from fastload.images.numpy_files import read_npy, read_npz
from fastload.images.opencv import cv2
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.png import PNG_SIGNATURE, without_metadata
from fastload.system.memory import keep_freed_memory

# IMREAD_COLOR_RGB (OpenCV 4.11) returns the channels in libjpeg's order: decoding takes 850 µs a photo either
# way, but this saves 30 µs for swapping channels. Some readers of other formats get it wrong (OpenCV 5.0:
# AVIF with alpha and Sun raster with a palette differ from PIL by up to 255 levels; read as BGR they are
# equal).
_RGB = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_BGR = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
_READ_AS_RGB = (SOI, PNG_SIGNATURE[: len(SOI)])

# Formats that OpenCV does not read.
READERS: dict[str | None, Callable[[StoredBytes], Pixels]] = {
    "NumPy": read_npy, "NumPy archive": read_npz, "DICOM": read_dicom,
}  # fmt: skip

# The factors by which libjpeg can shrink each side while it decodes. (The flags named after grey only shrink;
# those named after colour would also select BGR.)
_REDUCED = {
    1: 0,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
}


def decode(data: StoredBytes, reduction: int = 1) -> Pixels:
    """Decode an image to RGB, uint8, (height, width, 3), contiguous.

    Grey becomes three equal channels, alpha is dropped (OpenCV multiplies TIFF by it first), and 16-bit
    channels are cut to their upper 8 bits. The EXIF orientation is not applied, as in torchvision's
    ImageFolder. (Only TIFF comes upright: both OpenCV and PIL turn it while reading.)

    Each side of a JPEG is divided by `reduction` (1, 2, 4 or 8), rounded up. Raises DecodeError if OpenCV
    cannot read the bytes, or for a JPEG without an end marker.
    """
    if not len(data):
        raise DecodeError("an image must have bytes, got none: the file is empty")
    require_end(data)
    if bytes(data[: len(SOI)]) in _READ_AS_RGB:
        return imdecode(data, _RGB | _REDUCED[reduction])
    reader = READERS.get(format_of(bytes(data[:HEAD_BYTES])))
    if reader is not None:
        return _to_rgb(reader(data))
    image = imdecode(data, _BGR)
    # A grey PFM comes without channels, whatever the flags.
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB))


def _to_rgb(pixels: Pixels) -> Pixels:
    """Return pixels of 8 bits in 1 or 3 channels as RGB; raise DecodeError for others."""
    if pixels.shape[2] == 1 and pixels.dtype == np.uint8:
        return np.repeat(pixels, 3, axis=2)
    if PixelType.of(pixels) != RGB:
        raise DecodeError(f"an image must be {RGB}, got {PixelType.of(pixels)}: convert it")
    return np.ascontiguousarray(pixels)


def is_reducible(data: StoredBytes) -> bool:
    """Return True if an image can be shrunk while it is decoded: a JPEG."""
    return bytes(data[:2]) == SOI


def require_end(data: StoredBytes) -> None:
    """Raise DecodeError for a JPEG without an end marker: OpenCV before 5 fills it up with old pixels.

    See opencv/opencv#26488. Other formats pass: OpenCV itself refuses them if they are truncated.
    """
    if bytes(data[:2]) != SOI or bytes(data[-2:]) == EOI:
        return
    file = bytes(data)
    # Searched after the header, whose thumbnail has an end marker of its own.
    if file.rfind(EOI, parse_jpeg(file).scan_offset) < 0:
        raise DecodeError(
            f"a JPEG must end with an end-of-image marker, got {len(data):,} bytes without one: "
            "the file is truncated"
        )


def imdecode(data: StoredBytes, flags: int) -> Pixels:
    """Call `cv2.imdecode`; raise DecodeError if it raises or returns None."""
    keep_freed_memory()
    file = without_metadata(data) if bytes(data[: len(PNG_SIGNATURE)]) == PNG_SIGNATURE else data
    try:
        image: Pixels | None = cv2.imdecode(np.frombuffer(file, np.uint8), flags)
    except cv2.error as error:
        raise DecodeError(
            f"the bytes must be an image within OpenCV's limits, got its error: {error.err or error}"
        ) from error
    if image is None:
        raise DecodeError(
            f"the bytes must be an image that OpenCV reads, got {len(data):,} bytes starting with "
            f"{bytes(data[:8])!r}: the file is damaged, truncated or in another format"
        )
    return image


def encode(image: Pixels, suffix: str, options: Sequence[int] = ()) -> bytes:
    """Encode pixels, RGB(A) (height, width, 3 or 4) or grey (height, width), as a file such as `.jpg`.

    The options are OpenCV's IMWRITE constants, each followed by its value. Raises OptionError if the format
    cannot hold the image: JPEG is limited to 65500 pixels a side.
    """
    code = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    bgr = image if image.ndim == 2 else cv2.cvtColor(image, code[image.shape[2]])
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
