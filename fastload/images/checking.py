"""What a file must be to be packed: one that everybody reads, and reads alike.

Of JPEG and PNG the structure tells, without decoding them. Of other formats OpenCV misreads some files, so
that each is decoded, and compared with what Pillow makes of it where that is installed.
"""

from __future__ import annotations

import dataclasses
import struct

from fastload.errors import DecodeError
from fastload.images.comparing import require_agreement
from fastload.images.header import FileParts, decode_in_doubt, read_parts
from fastload.images.jpeg import JpegLayout
from fastload.images.png import PngLayout, doubt_of_rows
from fastload.images.scans import fewest_bytes

# A bitmap's header, of which the compression is the sixth entry; OS/2's, of 12 bytes, has none.
_BITMAP = struct.Struct("<2s12xIiiHHI")
_SHORT_BITMAP_HEADER = 12
_RUN_LENGTHS = (1, 2)  # BI_RLE8, BI_RLE4


def check_file(data: bytes) -> FileParts:
    """Checks that a file can be read, and that what is read of it is what it holds.

    Raises:
        DecodeError: It is empty, truncated, damaged, too large for decoders, or no image; or it is of a kind
            that OpenCV misreads.
    """
    _require_no_run_lengths(data)
    parts = read_parts(data)
    if isinstance(parts.layout, PngLayout):
        doubt = "" if parts.layout.doubt else doubt_of_rows(parts.layout)
        return dataclasses.replace(parts, rgb=decode_in_doubt(data, "PNG", doubt)) if doubt else parts
    if isinstance(parts.layout, JpegLayout):
        if parts.layout.is_ordinary:
            _require_codes(data, parts.layout)
    elif parts.rgb is not None:
        require_agreement(data, parts.rgb)
    return parts


def _require_codes(data: bytes, layout: JpegLayout) -> None:
    fewest, stored = fewest_bytes(data, layout), len(data) - layout.scan_offset
    if stored < fewest:
        raise DecodeError(
            f"a JPEG of {layout.height}x{layout.width} pixels must have {fewest} bytes of codes at least, "
            f"got {stored}: the file is truncated, though it has an end"
        )


def _require_no_run_lengths(data: bytes) -> None:
    if not data.startswith(b"BM") or len(data) < _BITMAP.size:
        return
    _, header_bytes, *_, compression = _BITMAP.unpack_from(data)
    if header_bytes > _SHORT_BITMAP_HEADER and compression in _RUN_LENGTHS:
        raise DecodeError(
            "a BMP must not be run-length coded, because OpenCV misreads some of those, got compression "
            f"{compression}: save it anew without compression, or as PNG"
        )
