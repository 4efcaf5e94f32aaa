"""The EXIF orientation, the only entry of EXIF that affects pixels.

EXIF is a TIFF file without pixels: a byte order, then directories of 12-byte entries (EXIF 2.32, section
4.6.2). JPEG stores it in an APP1 segment, PNG and WebP in a chunk. AVIF has properties of its own for it, a
rotation and a mirror, which count instead of any EXIF (MIAF, ISO/IEC 23000-22, section 7.3.6.7).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

EXIF_PREFIX = b"Exif\0\0"

_BYTE_ORDERS = {b"II": "<", b"MM": ">"}
_ORIENTATION_TAG = 0x0112
_SHORT = 3

# By AVIF's rotation in quarter turns against the clock, and its mirror, -1 for none: 0 swaps top and bottom,
# 1 left and right (HEIF, ISO/IEC 23008-12, section 6.5.10 and 6.5.12).
_ROTATED_AND_MIRRORED = {
    (0, -1): 1, (1, -1): 8, (2, -1): 3, (3, -1): 6,
    (0, 0): 4, (1, 0): 5, (2, 0): 2, (3, 0): 7,
    (0, 1): 2, (1, 1): 7, (2, 1): 4, (3, 1): 5,
}  # fmt: skip


def read_orientation(tiff: bytes) -> int:
    """Return the orientation (1 to 8) in an EXIF block that starts with its byte order.

    Like viewers, returns 1, upright, if the block has no orientation or is malformed.
    """
    order = _BYTE_ORDERS.get(tiff[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (entries,) = struct.unpack_from(f"{order}H", tiff, directory)
        entry = struct.Struct(f"{order}HHIH")  # tag, type, count, value: the first half of four bytes
        for offset in range(directory + 2, directory + 2 + 12 * entries, 12):
            tag, _, _, value = entry.unpack_from(tiff, offset)
            if tag == _ORIENTATION_TAG:
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def webp_orientation(data: bytes) -> int:
    """Return the orientation in a WebP's EXIF chunk, 1 if it has none."""
    offset = 12
    while offset + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, offset)
        if kind == b"EXIF":
            return read_orientation(data[offset + 8 : offset + 8 + length])
        offset += 8 + length + length % 2
    return 1


def avif_orientation(data: bytes) -> int:
    """Return the orientation that an AVIF's rotation and mirror amount to, 1 if it has neither."""
    boxes = dict(_boxes(data))
    for kind, version_bytes in ((b"meta", 4), (b"iprp", 0), (b"ipco", 0)):
        boxes = dict(_boxes(boxes.get(kind, b"")[version_bytes:]))
    rotation, mirror = boxes.get(b"irot", b"")[:1], boxes.get(b"imir", b"")[:1]
    return _ROTATED_AND_MIRRORED[rotation[0] & 3 if rotation else 0, mirror[0] & 1 if mirror else -1]


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and content of the boxes of ISO's media container, as far as they are well-formed."""
    offset = 0
    while offset + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, offset)
        if not length >= 8:  # 0 and 1 mark a last and a very large box, such as that of the pixels
            return
        yield kind, data[offset + 8 : offset + length]
        offset += length


def orientation_segment(orientation: int) -> bytes:
    """Return the smallest JPEG APP1 segment that holds the orientation: 36 bytes."""
    header = struct.pack(">2sHI", b"MM", 42, 8)
    directory = struct.pack(">HHHIHHI", 1, _ORIENTATION_TAG, _SHORT, 1, orientation, 0, 0)
    body = EXIF_PREFIX + header + directory
    return struct.pack(">HH", 0xFFE1, 2 + len(body)) + body
