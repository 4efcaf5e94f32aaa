"""Image headers, read without decoding, and the check that a file is complete.

JPEG and PNG, the formats of most datasets, are parsed by hand: 15 us, where decoding takes 850. A truncated
JPEG decodes to an image with a grey end, or worse, with the end of an earlier image (opencv/opencv#26488); so
its end marker is required, as is every checksum of a PNG.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images._jpeg_scans import are_scans_standard
from fastload.images._png import PngLayout, parse_png
from fastload.images.decode import PNG_SIGNATURE, decode, imdecode, require_end
from fastload.images.jpeg import SOI, JpegLayout, parse_jpeg
from fastload.images.limits import LARGEST_SIDES, MOST_PIXELS, is_within_limits
from fastload.images.opencv import cv2


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Properties of an image file; height and width before any orientation is applied."""

    format: str  # `jpeg`, `png` or `other`
    height: int
    width: int
    channels: int  # 1 grey, 2 grey and alpha, 3 colour (a palette too), 4 colour and alpha, or CMYK
    bit_depth: int  # of a channel; of a palette, of its index
    orientation: int  # EXIF's, 1 to 8; 1, upright, if the file has none

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels


@dataclass(frozen=True, slots=True, eq=False)
class ParsedFile:
    """Results of reading a file's header."""

    header: ImageHeader
    layout: JpegLayout | PngLayout | None  # None for other formats
    rgb: NDArray[np.uint8] | None  # as from `decode`, if the file had to be decoded to judge it


def has_parsed_header(data: bytes) -> bool:
    """Return whether `read_header` usually reads such a file without decoding it: a JPEG or a PNG."""
    return data.startswith((SOI, PNG_SIGNATURE))


def read_header(data: bytes) -> ImageHeader:
    """Read the header of an image file; bytes after the image are ignored, as decoders do.

    Other formats than JPEG and PNG are decoded, and so is a JPEG or PNG with an unusual structure. Raises
    DecodeError if the bytes are empty, truncated, or no readable image.
    """
    return parse_file(data).header


def parse_file(data: bytes) -> ParsedFile:
    """Read a header as `read_header` does, and return all results."""
    if not data:
        raise DecodeError("an image must have bytes, got none: the file is empty")
    if data.startswith(SOI):
        return _parse_jpeg(data)
    if data.startswith(PNG_SIGNATURE):
        return _parse_png(data)
    return _parse_other(data)


def decode_anomalous(data: bytes, image_format: str, anomaly: str) -> NDArray[np.uint8]:
    """Decode a file with an unusual structure; raise DecodeError with the anomaly as reason if that fails."""
    try:
        return decode(data)
    except DecodeError as error:
        raise DecodeError(f"a {image_format} must be one that can be decoded, and {anomaly}") from error


def _parse_jpeg(data: bytes) -> ParsedFile:
    layout = parse_jpeg(data)
    require_end(data)
    rgb = None
    if not is_within_limits("jpeg", layout.height, layout.width):
        limits = f"{MOST_PIXELS:,} pixels and {LARGEST_SIDES['jpeg']:,} a side"
        rgb = decode_anomalous(
            data, "JPEG", f"it must have at most {limits}, got {layout.height}x{layout.width}"
        )
    elif not layout.is_standard:
        rgb = decode(data)  # damaged, or 12 bits, lossless, arithmetic, abbreviated: only decoding tells
    elif not (layout.is_baseline or are_scans_standard(data, layout)):
        rgb = decode_anomalous(data, "JPEG", "its later scans are damaged or unusual")
    header = ImageHeader(
        "jpeg", layout.height, layout.width, layout.components, layout.bit_depth, layout.orientation
    )
    return ParsedFile(header, layout, rgb)


def _parse_png(data: bytes) -> ParsedFile:
    layout = parse_png(data)
    rgb = decode_anomalous(data, "PNG", layout.anomaly) if layout.anomaly else None
    header = ImageHeader(
        "png", layout.height, layout.width, layout.channels, layout.bit_depth, layout.orientation
    )
    return ParsedFile(header, layout, rgb)


def _parse_other(data: bytes) -> ParsedFile:
    try:
        image = imdecode(data, cv2.IMREAD_UNCHANGED)
    except DecodeError:
        image = decode(data)  # the only way in which OpenCV reads a JPEG 2000 in grey with alpha
    # Floating-point images have no levels: OpenCV clips them to white or black.
    if image.dtype not in (np.uint8, np.uint16):
        raise DecodeError(
            f"an image must be one that can be read as RGB of 8 bits a channel, got {image.dtype} "
            f"{image.shape}: convert it before packing"
        )
    rgb = decode(data)
    height, width = rgb.shape[:2]
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels == 1 and (rgb[:, :, 1:] != rgb[:, :, :1]).any():
        channels = 3  # OpenCV reports a bitmap in OS/2's form as grey although it has colours
    # Orientation stays 1: OpenCV turns TIFF while it reads it, and does not report that of other formats.
    return ParsedFile(ImageHeader("other", height, width, channels, 8 * image.itemsize, 1), None, rgb)
