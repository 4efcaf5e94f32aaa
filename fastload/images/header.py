"""What a file says of its picture, read without decoding it, and whether the file is whole.

JPEG and PNG, which most datasets are, are parsed here by hand: 15 us where decoding takes 850. A
truncated JPEG decodes to a picture with a grey end, or worse, with the end of an earlier picture
(opencv/opencv#26488); so its end marker is asked for, as is every checksum of a PNG.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import cv2

from fastload.errors import DecodeError
from fastload.images.decode import decode, imdecode, require_end
from fastload.images.exif import read_orientation
from fastload.images.jpeg import SOI, parse_jpeg

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK = struct.Struct(">I4s")  # length of the body, kind; the body and a CRC-32 follow
_PNG_IHDR = struct.Struct(">IIBB")  # width, height, bit depth, colour type
_UINT32 = struct.Struct(">I")
# PNG 1.2, section 4.1.1: grey, RGB, palette of RGB, grey and alpha, RGB and alpha.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


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
    return data.startswith((SOI, _PNG_SIGNATURE))


def read_header(data: bytes) -> ImageHeader:
    """Reads what a file says of its picture.

    Formats other than JPEG and PNG are decoded to learn it, and so is a JPEG with an odd header.
    What follows the end of a picture is ignored, as decoders do.

    Raises:
        DecodeError: The bytes are empty, truncated, or no image that can be read.
    """
    if not data:
        raise DecodeError("an image must have bytes, got none: the file is empty")
    if data.startswith(SOI):
        return _read_jpeg(data)
    if data.startswith(_PNG_SIGNATURE):
        return _read_png(data)
    return _read_other(data)


def _read_jpeg(data: bytes) -> ImageHeader:
    layout = parse_jpeg(data)
    require_end(data)
    if not layout.is_ordinary:
        decode(data)  # damaged, or 12 bits, lossless, arithmetic, abbreviated: can it be read at all?
    return ImageHeader(
        "jpeg",
        layout.height,
        layout.width,
        layout.components,
        layout.bit_depth,
        layout.orientation,
    )


def _read_png(data: bytes) -> ImageHeader:
    view = memoryview(data)
    offset, kind = len(_PNG_SIGNATURE), b""
    shape, orientation = b"", 1
    while kind != b"IEND":
        kind, body = _png_chunk(view, offset)
        if kind == b"IHDR":
            shape = bytes(body)
        elif kind == b"eXIf":
            orientation = read_orientation(bytes(body))
        offset += 12 + len(body)
    try:
        width, height, bit_depth, colour_type = _PNG_IHDR.unpack_from(shape)
        channels = _PNG_CHANNELS[colour_type]
    except (struct.error, KeyError) as error:
        raise DecodeError(
            f"a PNG must have a header of 13 bytes, got {shape!r}: the file is damaged"
        ) from error
    return ImageHeader("png", height, width, channels, bit_depth, orientation)


def _png_chunk(data: memoryview, offset: int) -> tuple[bytes, memoryview]:
    """The kind and the body of the chunk at the offset."""
    try:
        length, kind = _PNG_CHUNK.unpack_from(data, offset)
        (crc,) = _UINT32.unpack_from(data, offset + 8 + length)
    except struct.error as error:
        raise DecodeError(
            f"a PNG must end with an IEND chunk, got the end of its {len(data)} bytes before one: "
            "the file is truncated"
        ) from error
    actual = zlib.crc32(data[offset + 4 : offset + 8 + length])
    if actual != crc:
        raise DecodeError(
            f"a PNG's chunk {kind!r} at byte {offset} must have the checksum {crc:08x} that it "
            f"states, got {actual:08x}: the file is damaged"
        )
    return kind, data[offset + 8 : offset + 8 + length]


def _read_other(data: bytes) -> ImageHeader:
    # Orientation stays 1: OpenCV turns TIFF while it reads it, and says nothing of other formats'.
    image = imdecode(data, cv2.IMREAD_UNCHANGED)
    height, width = image.shape[:2]
    channels = 1 if image.ndim == 2 else image.shape[2]
    try:
        decode(data)
    except DecodeError as error:
        raise DecodeError(
            f"an image must be one that can be read as RGB of 8 bits a channel, got {image.dtype} "
            f"{image.shape}: convert it before packing"
        ) from error
    return ImageHeader("other", height, width, channels, 8 * image.itemsize, 1)
