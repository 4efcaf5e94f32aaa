"""Checks of a JPEG's quantization and Huffman tables against ITU-T T.81 and libjpeg's own checks.

A file with damaged tables cannot be decoded, although its markers and its end are in place. Every decoder can
read tables that pass. A file that does not pass, such as one without Huffman tables (Motion JPEG), may still
be decodable: only decoding it shows.

The checks take 6 µs a photo. The files of a dataset often share quantization tables and parameters, so those
results are cached; Huffman tables often differ from file to file.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import mul

from fastload.images.jpeg import DHT, DQT, DRI, FRAMES, SOS, Segment, segments

# The part of the code space that one code of each length, 1 to 16 bits, takes, in units of the longest codes.
# The code of all ones stays unused (T.81, C.2).
_CODE_SPACE = 1 << 16
_CODE_SHARES = tuple(1 << (16 - length) for length in range(1, 17))
_LARGEST_DC_SYMBOL = 15  # the bits of a difference (libjpeg's jdhuff.c)

# Sampling factors, horizontal and vertical in a nibble each, and the number of blocks that they give an MCU.
_BLOCKS = {0x11: 1, 0x12: 2, 0x21: 2, 0x14: 4, 0x22: 4, 0x41: 4}
_MOST_BLOCKS = 10  # of an MCU (T.81, B.2.3)
_COMPONENTS = frozenset({1, 3, 4})  # grey, colour, CMYK

_SEQUENTIAL_SCAN = b"\0\x3f\0"  # all 64 coefficients, at full precision
_METADATA = frozenset({*range(0xE0, 0xF0), 0xFE})  # application segments and comments: decoders ignore them


def has_standard_header(data: bytes) -> bool:
    """Return True if every decoder accepts the header of this baseline JPEG, whose layout has been parsed."""
    bodies: dict[int, list[bytes]] = {DQT: [], DHT: [], DRI: []}
    frames: list[Segment] = []
    scan = b""
    for segment in segments(data):
        body = data[segment.start : segment.end]
        if segment.marker in bodies:
            bodies[segment.marker].append(body)
        elif segment.marker in FRAMES:
            frames.append(segment)
        elif segment.marker == SOS:
            scan = body
        elif segment.marker not in _METADATA:
            return False
    is_recognised = data[2:3] == b"\xff"  # OpenCV recognises a JPEG by three bytes
    if not is_recognised or len(frames) > 1 or any(len(body) != 2 for body in bodies[DRI]):
        return False
    required = _required_tables(data[frames[0].start + 5 : frames[0].end], scan)
    return (
        required is not None
        and required[0] <= _quantization_tables(tuple(bodies[DQT]))
        and required[1] <= _huffman_tables(bodies[DHT])
    )


@functools.lru_cache(maxsize=128)
def _required_tables(components: bytes, scan: bytes) -> tuple[set[int], set[int]] | None:
    """Return the quantization and Huffman tables of a scan; None if its parameters are unusual.

    `components` is the end of the start-of-frame segment: their number, then three bytes for each.
    """
    names, factors, quantizers = components[1::3], components[2::3], components[3::3]
    if not components or components[0] not in _COMPONENTS or len(components) != 1 + 3 * components[0]:
        return None
    if sum(_BLOCKS.get(factor, _MOST_BLOCKS + 1) for factor in factors) > _MOST_BLOCKS:
        return None
    if not scan or len(scan) != 4 + 2 * scan[0] or scan[1:-3:2] != names or len({*names}) < len(names):
        return None
    codes, parameters = scan[2:-3:2], scan[-3:]
    if parameters != _SEQUENTIAL_SCAN:
        return None
    return set(quantizers), {code >> 4 for code in codes} | {0x10 | code & 15 for code in codes}


@functools.lru_cache(maxsize=128)
def _quantization_tables(segments: tuple[bytes, ...]) -> set[int]:
    """Return the numbers of the tables in DQT segments; none if a segment is malformed."""
    numbers: set[int] = set()
    for segment in segments:
        start = 0
        while start < len(segment):
            precision, number = divmod(segment[start], 16)
            if precision > 1 or number > 3:
                return set()
            numbers.add(number)
            start += 129 if precision else 65
        if start != len(segment):
            return set()
    return numbers


def _huffman_tables(segments: Sequence[bytes]) -> set[int]:
    """Return the tables in DHT segments as bytes: class (0 DC, 1 AC), then number; none if malformed."""
    tables: set[int] = set()
    for segment in segments:
        start, end = 0, len(segment)
        while start < end:
            table, counts = segment[start], segment[start + 1 : start + 17]
            stop = start + 17 + sum(counts)
            if table & 0xEC or sum(map(mul, counts, _CODE_SHARES)) >= _CODE_SPACE:
                return set()
            if table < 0x10 and max(segment[start + 17 : stop], default=0) > _LARGEST_DC_SYMBOL:
                return set()
            tables.add(table)
            start = stop
        if start != end:
            return set()
    return tables
