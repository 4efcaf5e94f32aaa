"""What follows the header of a JPEG: its scans, seen without decoding them.

A baseline file has one scan, and whatever it holds decodes to something. A progressive file has many, with
tables of codes between them; where one of those is damaged, nothing decodes (ITU-T T.81, G.1.1.1; libjpeg's
jdphuff.c).
"""

from __future__ import annotations

import re
import struct

from fastload.images.jpeg import JpegLayout
from fastload.images.tables import MOST_POINT_TRANSFORM, code_tables, quantiser_tables

_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # neither a stuffed zero nor a restart
_SOF2, _DHT, _EOI, _SOS, _DQT, _DRI = 0xC2, 0xC4, 0xD9, 0xDA, 0xDB, 0xDD
_REMARKS = frozenset({*range(0xE0, 0xF0), 0xFE})  # applications' segments and comments
_UINT16 = struct.Struct(">H")
_LAST_COEFFICIENT = 63


def are_scans_ordinary(data: bytes, layout: JpegLayout) -> bool:
    """Whether every decoder can begin each scan of a progressive JPEG and comes to its end.

    It takes 45 us a photo, for which decoding takes 3 ms.

    Args:
        data: The file.
        layout: Its header, an ordinary one.
    """
    names = data[layout.sof_offset + 10 :][: 3 * layout.components : 3]
    tables: set[int] = set()
    scans, offset = 0, 2
    while found := _MARKER.search(data, offset):
        marker, start = data[found.end() - 1], found.end() + 2
        if marker == _EOI or start > len(data):
            return marker == _EOI and scans > 0
        offset = found.end() + _UINT16.unpack_from(data, found.end())[0]
        body = data[start:offset]
        if marker == _DHT:
            tables |= code_tables([body])
        is_ordinary = (
            marker in _REMARKS
            or (marker == _SOF2 and found.start() == layout.sof_offset)
            or (marker == _DHT and bool(code_tables([body])))
            or (marker == _DQT and bool(quantiser_tables((body,))))
            or (marker == _DRI and len(body) == _UINT16.size)
            or (marker == _SOS and _is_scan_ordinary(body, names, tables))
        )
        if not is_ordinary:
            return False
        scans += marker == _SOS
    return False


def _is_scan_ordinary(scan: bytes, names: bytes, tables: set[int]) -> bool:
    """Whether a progressive scan's parameters are possible, and its tables there."""
    if len(scan) < 6 or len(scan) != 4 + 2 * scan[0]:
        return False
    components, codes = scan[1:-3:2], scan[2:-3:2]
    if not {*components} <= {*names} or len({*components}) < len(components):
        return False
    first, last, precision = scan[-3:]
    before, now = divmod(precision, 16)
    if now > MOST_POINT_TRANSFORM or (before and now != before - 1):
        return False
    if first == 0:
        return last == 0 and (bool(before) or {code >> 4 for code in codes} <= tables)
    return first <= last <= _LAST_COEFFICIENT and len(components) == 1 and 0x10 | codes[0] & 15 in tables


def fewest_bytes(data: bytes, layout: JpegLayout) -> int:
    """How many bytes of codes an ordinary JPEG of this size has at least.

    A block has a code for its mean, of a bit or more; in a baseline file also one for the end of its details.
    """
    factors = data[layout.sof_offset + 11 :][: 3 * layout.components : 3]
    blocks = 1 if layout.components == 1 else sum((factor >> 4) * (factor & 15) for factor in factors)
    bits = layout.mcu_rows * layout.mcus_per_row * blocks * (2 if layout.is_baseline else 1)
    return -(-bits // 8)
