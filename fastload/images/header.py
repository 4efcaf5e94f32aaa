"""What a file says of its picture, read without decoding it, and whether the file is whole.

JPEG and PNG, which most datasets are, are parsed here by hand: 15 us where decoding takes 850. A
truncated JPEG decodes to a picture with a grey end, or worse, with the end of an earlier picture
(opencv/opencv#26488); so its end marker is asked for, as is every checksum of a PNG.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.decode import PNG_SIGNATURE, decode, imdecode, require_end
from fastload.images.jpeg import SOI, JpegLayout, parse_jpeg
from fastload.images.limits import LARGEST_SIDES, MOST_PIXELS, is_within_limits
from fastload.images.opencv import cv2
from fastload.images.png import PngLayout, parse_png
from fastload.images.scans import are_scans_ordinary


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a file holds.

    Attributes:
        format: `jpeg`, `png` or `other`.
        height: In pixels, before any orientation is applied.
        width: In pixels, before any orientation is applied.
        channels: 1 grey, 2 grey and alpha, 3 colour (a palette too), 4 colour and alpha, or CMYK.
        bit_depth: Bits of a channel; of a palette, bits of its index.
        orientation: As EXIF numbers it, 1 to 8; 1, upright, where the file says none.
    """

    format: str
    height: int
    width: int
    channels: int
    bit_depth: int
    orientation: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels


def states_its_size(data: bytes) -> bool:
    """Whether `read_header` need not decode such a file, a JPEG or a PNG, to learn its size."""
    return data.startswith((SOI, PNG_SIGNATURE))


@dataclass(frozen=True, slots=True, eq=False)
class FileParts:
    """What reading a file's header brings to light.

    Attributes:
        header: What the file says of its picture.
        layout: Where its parts lie; None of other formats than JPEG and PNG.
        rgb: Its pixels, as `decode` gives them, where only decoding told whether it can be read.
    """

    header: ImageHeader
    layout: JpegLayout | PngLayout | None
    rgb: NDArray[np.uint8] | None


def read_header(data: bytes) -> ImageHeader:
    """Reads what a file says of its picture.

    Formats other than JPEG and PNG are decoded to learn it, and so is a JPEG or PNG of an odd structure.
    What follows the end of a picture is ignored, as decoders do.

    Raises:
        DecodeError: The bytes are empty, truncated, or no image that can be read.
    """
    return read_parts(data).header


def read_parts(data: bytes) -> FileParts:
    """Reads a header as `read_header` does, and tells what else was found meanwhile.

    Raises:
        DecodeError: See `read_header`.
    """
    if not data:
        raise DecodeError("an image must have bytes, got none: the file is empty")
    if data.startswith(SOI):
        return _read_jpeg(data)
    if data.startswith(PNG_SIGNATURE):
        return _read_png(data)
    return _read_other(data)


def decode_in_doubt(data: bytes, image_format: str, doubt: str) -> NDArray[np.uint8]:
    """Decodes a file of an odd structure; a failure is put down to that.

    Args:
        data: The file.
        image_format: What to call it: `JPEG`, `PNG`.
        doubt: What is odd.

    Raises:
        DecodeError: It cannot be decoded; names the doubt.
    """
    try:
        return decode(data)
    except DecodeError as error:
        raise DecodeError(f"a {image_format} must be one that can be decoded, and {doubt}") from error


def _read_jpeg(data: bytes) -> FileParts:
    layout = parse_jpeg(data)
    require_end(data)
    rgb = None
    if not is_within_limits("jpeg", layout.height, layout.width):
        limits = f"{MOST_PIXELS:,} pixels and {LARGEST_SIDES['jpeg']:,} a side"
        rgb = decode_in_doubt(
            data, "JPEG", f"it must have at most {limits}, got {layout.height}x{layout.width}"
        )
    elif not layout.is_ordinary:
        rgb = decode(data)  # damaged, or 12 bits, lossless, arithmetic, abbreviated: can it be read at all?
    elif not (layout.is_baseline or are_scans_ordinary(data, layout)):
        rgb = decode_in_doubt(data, "JPEG", "its later scans are damaged or odd")
    header = ImageHeader(
        "jpeg",
        layout.height,
        layout.width,
        layout.components,
        layout.bit_depth,
        layout.orientation,
    )
    return FileParts(header, layout, rgb)


def _read_png(data: bytes) -> FileParts:
    layout = parse_png(data)
    rgb = decode_in_doubt(data, "PNG", layout.doubt) if layout.doubt else None
    header = ImageHeader(
        "png", layout.height, layout.width, layout.channels, layout.bit_depth, layout.orientation
    )
    return FileParts(header, layout, rgb)


def _read_other(data: bytes) -> FileParts:
    try:
        image = imdecode(data, cv2.IMREAD_UNCHANGED)
    except DecodeError:
        image = decode(data)  # of a JPEG 2000 in grey with alpha, OpenCV reads this alone
    # A picture in floating point has no levels: what OpenCV makes of it is cut at white, or black.
    if image.dtype not in (np.uint8, np.uint16):
        raise DecodeError(
            f"an image must be one that can be read as RGB of 8 bits a channel, got {image.dtype} "
            f"{image.shape}: convert it before packing"
        )
    rgb = decode(data)
    height, width = rgb.shape[:2]
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels == 1 and not _is_grey(rgb):
        channels = 3  # of a bitmap in OS/2's form, OpenCV says grey although it has colours
    # Orientation stays 1: OpenCV turns TIFF while it reads it, and says nothing of other formats'.
    return FileParts(ImageHeader("other", height, width, channels, 8 * image.itemsize, 1), None, rgb)


def _is_grey(rgb: NDArray[np.uint8]) -> bool:
    return bool((rgb[:, :, 1:] == rgb[:, :, :1]).all())
