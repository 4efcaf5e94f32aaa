"""Image headers, read without decoding where possible, and validation of files before packing.

JPEG and PNG, the formats of most datasets, are parsed without OpenCV: in 15 µs, where decoding takes 850. A
truncated JPEG decodes to an image whose end is grey or, worse, comes from an earlier image
(opencv/opencv#26488); so its end marker is required, as is every checksum of a PNG.

Validation makes sure that every decoder reads a file, and reads the same pixels. Of a JPEG, the first MCU is
decoded, so that OpenCV checks its tables; all of a progressive one, whose scans have their own. OpenCV
misreads some files of other formats, so these are decoded, and compared with Pillow's result if Pillow is
installed. Measured with OpenCV 5.0 and Pillow 13 on 500 files: WebP, AVIF, GIF, JPEG 2000 and TIFF are
bit-equal, lossy ones too, or one level apart (CMYK, YCbCr in TIFF, 16 bits in JPEG 2000). All other
differences are 20 levels or more: TIFF with alpha or in L*a*b*, GIF with a transparent colour, PNM of less
than 8 bits, some JPEG 2000 of 16 bits.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastload.errors import DecodeError, LibraryMissingError
from fastload.images.arrays import Pixels
from fastload.images.decode import READERS, decode, imdecode, require_end
from fastload.images.encoding_names import DTYPES
from fastload.images.exif import avif_orientation, webp_orientation
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.images.jpeg import EOI, SOI, SOS, JpegLayout, parse_jpeg, segments
from fastload.images.opencv import cv2
from fastload.images.pixel_types import MOST_CHANNELS, RGB, PixelType, picture_type
from fastload.images.png import PNG_SIGNATURE, PngLayout, are_rows_intact, parse_png
from fastload.images.tiff import read_tiff_layout
from fastload.images.unchanged import decode_as

_MOST_PIXELS = 1 << 30  # OpenCV's CV_IO_MAX_IMAGE_PIXELS
# The longest side in pixels: libjpeg's JPEG_MAX_DIMENSION, libpng's PNG_USER_WIDTH_MAX.
_LARGEST_SIDES = {"jpeg": 65_500, "png": 1_000_000}

_TOLERANCE = 1  # in levels of 255
_HUFFMAN_FRAMES = (0xC0, 0xC1, 0xC2)  # SOF0 and SOF1, baseline, and SOF2, progressive
_APP0 = 0xE0  # the first marker of metadata
_MARKER = re.compile(rb"\xff[^\x00]")
_FIRST_RESTART = b"\xff\xd0"
_MCU_BYTES = 2304  # more than the codes of an MCU: at most 10 blocks of 64 numbers of 27 bits

# The length of a bitmap's header, and its compression; OS/2's header, of 12 bytes, has none.
_BITMAP = struct.Struct("<14xI12xI")
_SHORT_BITMAP_HEADER = 12
_RUN_LENGTHS = (1, 2)  # BI_RLE8, BI_RLE4


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Properties of an image file; height and width before any orientation is applied."""

    format: str  # `jpeg`, `png` or `other`
    height: int
    width: int
    channels: int  # 1 grey, 2 grey and alpha, 3 colour (a palette too), 4 colour and alpha, or CMYK
    bit_depth: int  # of a channel; of a palette, of its index
    orientation: int  # EXIF's, 1 to 8; 1, upright, if the file has none
    pixel_type: PixelType = RGB  # dtype and channels as the image is decoded

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    @property
    def is_read_alike(self) -> bool:
        """True if OpenCV and PIL make the same RGB pixels of such a JPEG or PNG."""
        return self.bit_depth <= 8 and (self.format == "png" or self.channels in (1, 3))


class ValidFile(NamedTuple):
    """A file whose image can be read."""

    header: ImageHeader
    pixels: Pixels | None  # as from `decode_as`, if the file had to be decoded to judge it


def parsed_header(data: bytes) -> ImageHeader | None:
    """Return the header of a JPEG or PNG; None for other formats, which would have to be decoded for it."""
    return read_header(data) if data.startswith((SOI, PNG_SIGNATURE)) else None


def orientation_of(data: bytes) -> int:
    """Return the EXIF orientation of an image file, 1 if it has none; a JPEG or PNG may raise DecodeError.

    It is 1 for TIFF too, which OpenCV and PIL turn upright while they read it.
    """
    if (header := parsed_header(data)) is not None:
        return header.orientation
    readers = {"WebP": webp_orientation, "AVIF": avif_orientation}
    read = readers.get(format_of(data[:HEAD_BYTES]) or "")
    return 1 if read is None else read(data)


def read_header(data: bytes) -> ImageHeader:
    """Read the header of an image file; bytes after the image are ignored, as decoders do.

    Other formats than JPEG and PNG are decoded. Raises DecodeError if the bytes are empty, truncated, or not
    an image; only `validate_file` checks that a JPEG or PNG can be decoded.
    """
    if data.startswith(SOI):
        require_end(data)
        return _header_of(parse_jpeg(data))
    return _header_of(parse_png(data)) if data.startswith(PNG_SIGNATURE) else _decode_other(data)[0]


def validate_file(data: bytes) -> ValidFile:
    """Read a file's header; raise DecodeError if its image cannot be read or OpenCV would misread it."""
    if data.startswith(SOI):
        require_end(data)
        jpeg = parse_jpeg(data)
        _require_size("jpeg", jpeg.height, jpeg.width)
        if data[jpeg.sof_offset + 1] in _HUFFMAN_FRAMES:
            _require_enough_codes(data, jpeg)
        # The scans of a progressive file have tables of their own: only decoding shows whether it is intact.
        is_intact = jpeg.is_baseline and _has_intact_header(data, jpeg)
        return ValidFile(_header_of(jpeg), None if is_intact else decode(data))
    if data.startswith(PNG_SIGNATURE):
        png = parse_png(data)
        _require_size("png", png.height, png.width)
        is_intact, header = png.is_usual and are_rows_intact(png), _header_of(png)
        return ValidFile(header, None if is_intact else decode_as(data, header.pixel_type))
    _require_no_run_lengths(data)
    header, pixels = _decode_other(data)
    if header.pixel_type == RGB:
        assert pixels is not None
        _require_agreement(data, pixels)
    return ValidFile(header, decode_as(data, header.pixel_type) if pixels is None else pixels)


def _header_of(layout: JpegLayout | PngLayout) -> ImageHeader:
    height, width, channels = layout.height, layout.width, layout.channels
    if isinstance(layout, JpegLayout):
        return ImageHeader("jpeg", height, width, channels, layout.bit_depth, layout.orientation)
    pixels = picture_type("uint16" if layout.bit_depth > 8 else "uint8", channels)
    return ImageHeader("png", height, width, channels, layout.bit_depth, layout.orientation, pixels)


def _decode_other(data: bytes) -> tuple[ImageHeader, Pixels | None]:
    """Return the header of another format, and the pixels if they had to be decoded for it."""
    if not data:
        raise DecodeError("an image must have bytes, got none: the file is empty")
    format = format_of(data[:HEAD_BYTES])
    if format in READERS:
        return _header_of_pixels(data, READERS[format](data))
    if format == "TIFF":
        # OpenCV reads pictures without tifffile, and some that tifffile does not.
        with contextlib.suppress(DecodeError, LibraryMissingError):
            header = _header_of_tiff(data)
            if header.pixel_type != RGB:
                return header, None
    try:
        image = imdecode(data, cv2.IMREAD_UNCHANGED)
    except DecodeError:
        image = decode(data)  # OpenCV reads a grey JPEG 2000 with alpha in no other way
    channels = 1 if image.ndim == 2 else image.shape[2]
    if image.dtype != np.uint8:
        if format == "TIFF":
            return _header_of_tiff(data), None
        pixels = decode_as(data, PixelType(image.dtype.name, channels))
        return _header_of_pixels(data, pixels)
    rgb = decode(data)
    height, width = rgb.shape[:2]
    if channels == 1 and (rgb[:, :, 1:] != rgb[:, :, :1]).any():
        channels = 3  # OpenCV reports a bitmap in OS/2's form as grey although it has colours
    return ImageHeader("other", height, width, channels, 8 * image.itemsize, orientation_of(data)), rgb


def _header_of_tiff(data: bytes) -> ImageHeader:
    height, width, channels, pixels = read_tiff_layout(data)
    return ImageHeader("other", height, width, channels, 8 * pixels.numpy_dtype.itemsize, 1, pixels)


def _header_of_pixels(data: bytes, pixels: Pixels) -> tuple[ImageHeader, Pixels]:
    """Return the header of an image without one that is read, and its pixels as `decode_as` returns them."""
    height, width, channels = pixels.shape
    kind = PixelType.of(pixels)
    if not kind.is_possible or 0 in pixels.shape:
        raise DecodeError(
            f"an image must have pixels of {', '.join(DTYPES)} in 1 to {MOST_CHANNELS} channels, got "
            f"{pixels.dtype} {pixels.shape}: convert it before packing"
        )
    if kind.dtype == "uint8" and channels in (1, 3):
        kind, pixels = RGB, decode(data)
    bits = 8 * pixels.itemsize
    return ImageHeader("other", height, width, channels, bits, orientation_of(data), kind), pixels


def _require_size(image_format: str, height: int, width: int) -> None:
    largest_side = _LARGEST_SIDES[image_format]
    if max(height, width) > largest_side or height * width > _MOST_PIXELS:
        raise DecodeError(
            f"a {image_format.upper()} must have at most {_MOST_PIXELS:,} pixels and {largest_side:,} a "
            f"side, got {height}x{width}"
        )


def _require_enough_codes(data: bytes, layout: JpegLayout) -> None:
    """Raise DecodeError for a JPEG with less entropy-coded data than any image of its size has.

    A block has a code for its mean, of a bit or more, and in a baseline file also an end-of-block code.
    """
    factors = data[layout.sof_offset + 11 :][: 3 * layout.channels : 3]
    blocks = 1 if layout.channels == 1 else sum((factor >> 4) * (factor & 15) for factor in factors)
    bits = layout.mcu_rows * layout.mcus_per_row * blocks * (2 if layout.is_baseline else 1)
    fewest, stored = -(-bits // 8), len(data) - layout.scan_offset
    if stored < fewest:
        raise DecodeError(
            f"a JPEG of {layout.height}x{layout.width} pixels must have at least {fewest} bytes of codes, "
            f"got {stored}: the file is truncated, although it has an end marker"
        )


def _has_intact_header(data: bytes, layout: JpegLayout) -> bool:
    """Return True if OpenCV decodes the beginning of a JPEG in one scan: then it has accepted all tables.

    That takes 14 µs. In a JPEG of several scans, each may have tables of its own.
    """
    begin, channels = layout.scan_offset, layout.channels
    start_of_scan = struct.pack(">BBH", 0xFF, SOS, 6 + 2 * channels)
    if not data.startswith(start_of_scan, begin - 8 - 2 * channels):
        return False
    # One MCU of many, or all before a restart: libjpeg warns of codes between an MCU and a marker.
    marker = _MARKER.search(data, begin, begin + _MCU_BYTES)
    mcus = 1 if marker is None else layout.restart_interval
    codes = data[begin : begin + _MCU_BYTES] if marker is None else data[begin : marker.start()] + EOI
    width = mcus * layout.mcu_width
    if (marker is not None and marker.group() != _FIRST_RESTART) or width > _LARGEST_SIDES["jpeg"]:
        return False
    header = bytearray(SOI)
    for code, offset, end in segments(data):
        if code < _APP0:  # OpenCV takes 40 µs to read 60 KB of metadata
            header += data[offset:end]
        if offset == layout.sof_offset:
            struct.pack_into(">HH", header, len(header) - (end - offset) + 5, layout.mcu_height, width)
    try:
        imdecode(bytes(header + codes), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except DecodeError:
        return False
    return True


def _require_no_run_lengths(data: bytes) -> None:
    if not data.startswith(b"BM") or len(data) < _BITMAP.size:
        return
    header_bytes, compression = _BITMAP.unpack_from(data)
    if header_bytes > _SHORT_BITMAP_HEADER and compression in _RUN_LENGTHS:
        raise DecodeError(
            "a BMP must not be run-length encoded, because OpenCV misreads some of those, got compression "
            f"{compression}: save it again without compression, or as PNG"
        )


def _require_agreement(data: bytes, rgb: Pixels) -> None:
    """Raise DecodeError if Pillow knows the format, but cannot read the file or reads other pixels."""
    reference = _read_by_pillow(data)
    if reference is None:
        return
    found = f"{rgb.shape} from OpenCV and {reference.shape} from Pillow"
    if reference.shape == rgb.shape:
        worst = cv2.norm(reference, rgb, cv2.NORM_INF)
        if worst <= _TOLERANCE:
            return
        mean = cv2.norm(reference, rgb, cv2.NORM_L1) / rgb.size
        found = f"pixels that differ by up to {worst:.0f} levels ({mean:.1f} on average)"
    raise DecodeError(
        f"OpenCV and Pillow must read a file alike, to {_TOLERANCE} level of 255, got {found}: one of them "
        "misreads it, or it is transparent there; save it again, as PNG for example"
    )


def _read_by_pillow(data: bytes) -> Pixels | None:
    """Return the pixels as Pillow reads them; None if it is not installed or does not know the format."""
    try:
        from PIL import Image
    except ImportError:
        return None
    # OpenCV has decoded it, so its size is harmless.
    pixel_limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                if not image.mode.startswith("I"):
                    return np.asarray(image.convert("RGB"))
                # Like `decode`, the upper 8 of 16 bits, which Pillow's own conversion would clip.
                grey = np.clip(np.asarray(image) >> 8, 0, 255).astype(np.uint8)
                return np.repeat(grey[:, :, None], 3, axis=2)
    except MemoryError:
        raise
    except Exception as error:  # its readers raise anything on a damaged file
        # Also for a known format with a damaged header.
        accepts = (accept for _, accept in Image.OPEN.values() if accept is not None)
        if not any(accept(data[:16]) is True for accept in accepts):  # a str, if a library is missing
            return None
        raise DecodeError(
            f"an image must be one that Pillow reads too, got: {error}: the file is damaged, or save "
            "it again, as PNG for example"
        ) from error
    finally:
        Image.MAX_IMAGE_PIXELS = pixel_limit
