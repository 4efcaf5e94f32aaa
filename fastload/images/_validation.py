"""Validation of image files before packing: every decoder must read them, and read the same pixels.

JPEG and PNG are judged by their structure, without decoding. OpenCV misreads some files of other formats, so
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images._jpeg_scans import fewest_bytes
from fastload.images._png import PngLayout, row_anomaly
from fastload.images.header import ParsedFile, decode_anomalous, parse_file
from fastload.images.jpeg import JpegLayout
from fastload.images.opencv import cv2

_TOLERANCE = 1  # in levels of 255

# A bitmap's header, with the compression as the sixth entry; OS/2's, of 12 bytes, has none.
_BITMAP = struct.Struct("<2s12xIiiHHI")
_SHORT_BITMAP_HEADER = 12
_RUN_LENGTHS = (1, 2)  # BI_RLE8, BI_RLE4


def validate_file(data: bytes) -> ParsedFile:
    """Read a file's header; raise DecodeError if its image cannot be read, or OpenCV would misread it."""
    _require_no_run_lengths(data)
    parsed = parse_file(data)
    if isinstance(parsed.layout, PngLayout):
        anomaly = "" if parsed.layout.anomaly else row_anomaly(parsed.layout)
        return dataclasses.replace(parsed, rgb=decode_anomalous(data, "PNG", anomaly)) if anomaly else parsed
    if isinstance(parsed.layout, JpegLayout):
        if parsed.layout.is_standard:
            _require_enough_codes(data, parsed.layout)
    elif parsed.rgb is not None:
        _require_agreement(data, parsed.rgb)
    return parsed


def _require_enough_codes(data: bytes, layout: JpegLayout) -> None:
    fewest, stored = fewest_bytes(data, layout), len(data) - layout.scan_offset
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
    most_pixels, Image.MAX_IMAGE_PIXELS = (
        Image.MAX_IMAGE_PIXELS,
        None,
    )  # OpenCV has decoded it: it is harmless
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
