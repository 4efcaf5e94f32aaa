"""The EXIF orientation, the only entry of EXIF that affects pixels.

EXIF is a TIFF file without pixels: a byte order, then directories of 12-byte entries (EXIF 2.32, section
4.6.2). JPEG stores it in an APP1 segment, PNG in an eXIf chunk.
"""

from __future__ import annotations

import struct

EXIF_PREFIX = b"Exif\0\0"

_BYTE_ORDERS = {b"II": "<", b"MM": ">"}
_ORIENTATION_TAG = 0x0112
_SHORT = 3


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


def orientation_segment(orientation: int) -> bytes:
    """Return the smallest JPEG APP1 segment that holds the orientation: 36 bytes."""
    header = struct.pack(">2sHI", b"MM", 42, 8)
    directory = struct.pack(">HHHIHHI", 1, _ORIENTATION_TAG, _SHORT, 1, orientation, 0, 0)
    body = EXIF_PREFIX + header + directory
    return struct.pack(">HH", 0xFFE1, 2 + len(body)) + body
