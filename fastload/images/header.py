"""Image headers, read without decoding where possible, and validation of files before packing.

JPEG and PNG, the formats of most datasets, are parsed by hand: 15 us, where decoding takes 850. A truncated
JPEG decodes to an image with a grey end, or worse, with the end of an earlier image (opencv/opencv#26488); so
its end marker is required, as is every checksum of a PNG.

Validation makes sure that every decoder reads a file, and reads the same pixels. A progressive JPEG is
decoded for it, because its scans have tables of their own. OpenCV misreads some files of other formats, so
these are decoded, and compared with Pillow's result if Pillow is installed. Measured with OpenCV 5.0 and
Pillow 13 on 500 files: WebP, AVIF, GIF, JPEG 2000 and TIFF are bit-equal, lossy ones too, or one level apart
(CMYK, YCbCr in TIFF, 16 bits in JPEG 2000). All other differences are 20 levels and more: TIFF with alpha or
in L*a*b*, GIF with a transparent colour, PNM of less than 8 bits, some JPEG 2000 of 16 bits.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images._png import PngLayout, parse_png, row_anomaly
from fastload.images.decode import PNG_SIGNATURE, decode, imdecode, require_end
from fastload.images.jpeg import SOI, JpegLayout, parse_jpeg
from fastload.images.limits import LARGEST_SIDES, MOST_PIXELS, is_within_limits
from fastload.images.opencv import cv2

_TOLERANCE = 1  # in levels of 255

# A bitmap's header, with the compression as the sixth entry; OS/2's, of 12 bytes, has none.
_BITMAP = struct.Struct("<2s12xIiiHHI")
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

    Other formats than JPEG and PNG are decoded, and so is a JPEG or PNG with an unusual structure. Of a
    progressive JPEG only the first scan is checked. Raises DecodeError if the bytes are empty, truncated, or
    no readable image.
    """
    return _parse_file(data).header


def validate_file(data: bytes) -> ParsedFile:
    """Read a file's header; raise DecodeError if its image cannot be read, or OpenCV would misread it."""
    _require_no_run_lengths(data)
    parsed = _parse_file(data)
    if isinstance(parsed.layout, PngLayout):
        anomaly = "" if parsed.layout.anomaly else row_anomaly(parsed.layout)
        return dataclasses.replace(parsed, rgb=_decode_anomalous(data, "PNG", anomaly)) if anomaly else parsed
    if isinstance(parsed.layout, JpegLayout):
        if parsed.layout.is_standard:
            _require_enough_codes(data, parsed.layout)
        if parsed.rgb is None and not parsed.layout.is_baseline:
            return dataclasses.replace(parsed, rgb=_decode_anomalous(data, "JPEG", "a scan is damaged"))
    elif parsed.rgb is not None:
        _require_agreement(data, parsed.rgb)
    return parsed


def _parse_file(data: bytes) -> ParsedFile:
    if not data:
        raise DecodeError("an image must have bytes, got none: the file is empty")
    if data.startswith(SOI):
        return _parse_jpeg(data)
    if data.startswith(PNG_SIGNATURE):
        return _parse_png(data)
    return _parse_other(data)


def _parse_jpeg(data: bytes) -> ParsedFile:
    layout = parse_jpeg(data)
    require_end(data)
    rgb = None
    if not is_within_limits("jpeg", layout.height, layout.width):
        limits = f"{MOST_PIXELS:,} pixels and {LARGEST_SIDES['jpeg']:,} a side"
        rgb = _decode_anomalous(
            data, "JPEG", f"it must have at most {limits}, got {layout.height}x{layout.width}"
        )
    elif not layout.is_standard:
        rgb = decode(data)  # damaged, or 12 bits, lossless, arithmetic, abbreviated: only decoding tells
    header = ImageHeader(
        "jpeg", layout.height, layout.width, layout.components, layout.bit_depth, layout.orientation
    )
    return ParsedFile(header, layout, rgb)


def _parse_png(data: bytes) -> ParsedFile:
    layout = parse_png(data)
    rgb = _decode_anomalous(data, "PNG", layout.anomaly) if layout.anomaly else None
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


def _decode_anomalous(data: bytes, image_format: str, anomaly: str) -> NDArray[np.uint8]:
    """Decode a file with an unusual structure; raise DecodeError with the anomaly as reason if that fails."""
    try:
        return decode(data)
    except DecodeError as error:
        raise DecodeError(f"a {image_format} must be one that can be decoded, and {anomaly}") from error


def _require_enough_codes(data: bytes, layout: JpegLayout) -> None:
    """Raise DecodeError for a JPEG with less entropy-coded data than any image of its size has.

    A block has a code for its mean, of a bit or more, and in a baseline file also an end-of-block code.
    """
    factors = data[layout.sof_offset + 11 :][: 3 * layout.components : 3]
    blocks = 1 if layout.components == 1 else sum((factor >> 4) * (factor & 15) for factor in factors)
    bits = layout.mcu_rows * layout.mcus_per_row * blocks * (2 if layout.is_baseline else 1)
    fewest, stored = -(-bits // 8), len(data) - layout.scan_offset
    if stored < fewest:
        raise DecodeError(
            f"a JPEG of {layout.height}x{layout.width} pixels must have {fewest} bytes of codes at least, "
            f"got {stored}: the file is truncated, although it has an end marker"
        )


def _require_no_run_lengths(data: bytes) -> None:
    if not data.startswith(b"BM") or len(data) < _BITMAP.size:
        return
    _, header_bytes, *_, compression = _BITMAP.unpack_from(data)
    if header_bytes > _SHORT_BITMAP_HEADER and compression in _RUN_LENGTHS:
        raise DecodeError(
            "a BMP must not be run-length coded, because OpenCV misreads some of those, got compression "
            f"{compression}: save it again without compression, or as PNG"
        )


def _require_agreement(data: bytes, rgb: NDArray[np.uint8]) -> None:
    """Raise DecodeError if Pillow knows the format, but cannot read the file or reads other pixels."""
    reference = _read_by_pillow(data)
    if reference is None:
        return
    if reference.shape != rgb.shape:
        raise DecodeError(
            f"OpenCV and Pillow must read a file alike, got {rgb.shape} from OpenCV and {reference.shape} "
            "from Pillow: save it again, as PNG for example"
        )
    worst = cv2.norm(reference, rgb, cv2.NORM_INF)
    if worst > _TOLERANCE:
        mean = cv2.norm(reference, rgb, cv2.NORM_L1) / rgb.size
        raise DecodeError(
            f"OpenCV and Pillow must read a file alike, to {_TOLERANCE} level of 255, got pixels that differ "
            f"by up to {worst:.0f} levels ({mean:.1f} on average): one of them misreads it, or it is "
            "transparent there; save it again, as PNG for example"
        )


def _read_by_pillow(data: bytes) -> NDArray[np.uint8] | None:
    """Return the pixels as Pillow reads them; None if it is not installed or does not know the format."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        return None
    # OpenCV has decoded it, so its size is harmless.
    most_pixels, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                return _rgb_of(image)
    except UnidentifiedImageError as error:
        # Also raised for a known format with a damaged header.
        if not any(_accepts(accept, data[:16]) for _, accept in Image.OPEN.values()):
            return None
        raise DecodeError(f"an image must be one that Pillow reads too, got: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # its readers raise anything on a damaged file
        raise DecodeError(
            f"an image must be one that Pillow reads too, got: {error}: the file is damaged, or save "
            "it again, as PNG for example"
        ) from error
    finally:
        Image.MAX_IMAGE_PIXELS = most_pixels


def _accepts(accept: Any, beginning: bytes) -> bool:
    """Return whether one of Pillow's readers is for such files; it returns a text if a library is missing."""
    return accept is not None and accept(beginning) is True


def _rgb_of(image: Any) -> NDArray[np.uint8]:
    """Return RGB like `decode`: the upper 8 of 16 bits, which Pillow's own conversion clips instead."""
    if not image.mode.startswith("I"):
        return np.asarray(image.convert("RGB"))
    grey = np.clip(np.asarray(image) >> 8, 0, 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)
