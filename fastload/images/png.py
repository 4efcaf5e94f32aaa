"""Structure of a PNG file, checked without decoding it.

A PNG is a signature and a sequence of chunks, each with its length, its type and a checksum:

    IHDR (size)  PLTE (palette)  IDAT IDAT ... (rows, one zlib stream)  IEND     and metadata between them

Decoders refuse most files with other chunks; only decoding shows whether such a file can be read. (PNG 1.2,
sections 3 to 5.)
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fastload.errors import DecodeError
from fastload.images.arrays import StoredBytes
from fastload.images.exif import read_orientation

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_CHUNK = struct.Struct(">I4s")  # length of the body, kind; the body and a CRC-32 follow
_IHDR = struct.Struct(">IIBBBBB")  # width, height, bit depth, colour type; compression, filters, interlacing
_UINT32 = struct.Struct(">I")

# By colour type (section 4.1.1): grey, RGB, palette of RGB, grey and alpha, RGB and alpha.
_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_BIT_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3
# The usual order of chunks: header, palette, rows (data) and end, with metadata between them that decoders
# do not interpret.
_METADATA = frozenset(b"cHRM eXIf gAMA iCCP iTXt pHYs sRGB tEXt tIME zTXt".split())
_OTHERS = {b"IHDR": "h", b"PLTE": "p", b"IDAT": "d", b"IEND": "e", b"tRNS": "m"}
_LETTERS = {**_OTHERS, **dict.fromkeys(_METADATA, "m")}
_ORDER = re.compile("hm*(pm*)?d+m*e")
_MOST_PALETTE_BYTES = 768

# How much of the rows is decompressed to check that they exist: as much as takes 0.3 ms, because all of a
# large image would take ten times as long as the rest of the `keep` encoding. Smaller ones are decoded.
_INFLATED_BYTES = 64 << 10
_MOST_INFLATION = 1032  # deflate's limit: 258 bytes from 2 bits
_LAST_FILTER = 4


@dataclass(frozen=True, slots=True, eq=False)
class PngLayout:
    """Properties and compressed rows of a PNG; see also `ImageHeader`."""

    height: int
    width: int
    channels: int
    bit_depth: int
    has_palette: bool
    orientation: int
    rows: tuple[memoryview, ...]  # the bodies of the IDAT chunks
    is_usual: bool  # every decoder accepts these chunks


def parse_png(data: bytes) -> PngLayout:
    """Read all chunks up to IEND and verify their checksums, without decompression; may raise DecodeError."""
    chunks = list(chunks_of(data))
    orientation = next((read_orientation(bytes(body)) for kind, body in chunks if kind == b"eXIf"), 1)
    header = next((bytes(body) for kind, body in chunks if kind == b"IHDR"), b"")
    try:
        width, height, bit_depth, colour_type, *methods = _IHDR.unpack(header)
        channels = _CHANNELS[colour_type]
    except (struct.error, KeyError) as error:
        raise DecodeError(
            f"a PNG must have a header of 13 bytes, got {header!r}: the file is damaged"
        ) from error
    return PngLayout(
        height,
        width,
        channels,
        bit_depth,
        colour_type == _PALETTE,
        orientation,
        tuple(body for kind, body in chunks if kind == b"IDAT"),
        # Interlaced files have a different number of rows; they are rare enough to be decoded.
        height * width > 0
        and bit_depth in _BIT_DEPTHS[colour_type]
        and not any(methods)
        and _is_in_order(chunks, colour_type),
    )


def are_rows_intact(layout: PngLayout) -> bool:
    """Return False if rows may be missing or damaged, judged by the first 64 KiB of a larger image."""
    bits = layout.bit_depth * (1 if layout.has_palette else layout.channels)
    row_bytes = 1 + (layout.width * bits + 7) // 8  # each row begins with the number of its filter
    most = _MOST_INFLATION * sum(map(len, layout.rows))
    if not _INFLATED_BYTES < row_bytes * layout.height <= most:
        return False
    data = b"".join(layout.rows)[: 2 * _INFLATED_BYTES]
    try:
        rows = zlib.decompressobj().decompress(data, _INFLATED_BYTES)
    except zlib.error:
        return False
    is_known = np.frombuffer(rows, np.uint8)[::row_bytes] <= _LAST_FILTER
    return len(rows) == _INFLATED_BYTES and bool(is_known.all())


def without_metadata(data: StoredBytes) -> StoredBytes:
    """Return a PNG without the metadata before its rows, which OpenCV does not use.

    libpng would print warnings about it, such as "iCCP: known incorrect sRGB profile" of many photos.
    """
    if bytes(data[12:16]) != b"IHDR":  # the kind of the first chunk: libpng refuses such a file
        return data
    view = np.frombuffer(data, np.uint8).data
    kept: list[memoryview] = []
    start, offset, kind = 0, len(PNG_SIGNATURE), b""
    while offset + _CHUNK.size <= len(view) and kind != b"IDAT":
        length, kind = _CHUNK.unpack_from(view, offset)
        end = offset + _CHUNK.size + length + _UINT32.size
        if kind in _METADATA:
            kept.append(view[start:offset])
            start = end
        offset = end
    return b"".join((*kept, view[start:])) if kept else data


def chunks_of(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the kind and the body of every chunk up to IEND, inclusive."""
    view, offset, kind = memoryview(data), len(PNG_SIGNATURE), b""
    while kind != b"IEND":
        try:
            length, kind = _CHUNK.unpack_from(view, offset)
            (crc,) = _UINT32.unpack_from(view, offset + 8 + length)
        except struct.error as error:
            raise DecodeError(
                f"a PNG must end with an IEND chunk, got the end of its {len(data):,} bytes before one: "
                "the file is truncated"
            ) from error
        actual = zlib.crc32(view[offset + 4 : offset + 8 + length])
        if actual != crc:
            raise DecodeError(
                f"a PNG's chunk {kind!r} at byte {offset} must have the checksum {crc:08x} that it "
                f"states, got {actual:08x}: the file is damaged"
            )
        yield kind, view[offset + 8 : offset + 8 + length]
        offset += 12 + length


def _is_in_order(chunks: list[tuple[bytes, memoryview]], colour_type: int) -> bool:
    letters = "".join(_LETTERS.get(kind, "x") for kind, _ in chunks)
    palettes = [len(body) for kind, body in chunks if kind == b"PLTE"]
    are_colours = all(size % 3 == 0 and 3 <= size <= _MOST_PALETTE_BYTES for size in palettes)
    has_palette = bool(palettes) or colour_type != _PALETTE
    return has_palette and are_colours and _ORDER.fullmatch(letters) is not None
