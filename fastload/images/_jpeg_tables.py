"""Checks of a JPEG's quantization and Huffman tables against ITU-T T.81 and libjpeg's own checks.

A file with damaged tables cannot be decoded, although its markers and its end are in place. Tables that pass
are readable by every decoder; others may still be decodable, such as a file without Huffman tables (Motion
JPEG), which only decoding tells.

The checks take 6 us a photo. Files of one dataset share quantization tables and parameters, so those results
are cached; Huffman tables often differ from file to file.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import mul

# The share of the code space that one code of each length, 1 to 16 bits, takes: 2**16 in units of the
# longest. The code of all ones stays unused (T.81, C.2).
_CODE_SPACE = 1 << 16
_CODE_SHARES = tuple(1 << (16 - length) for length in range(1, 17))
_LARGEST_DC_SYMBOL = 15  # the bits of a difference (libjpeg's jdhuff.c)

# Sampling factors, horizontal and vertical in a nibble each, and the blocks of an MCU that they make.
_BLOCKS = {0x11: 1, 0x12: 2, 0x21: 2, 0x14: 4, 0x22: 4, 0x41: 4}
_MOST_BLOCKS = 10  # of an MCU (T.81, B.2.3)
_COMPONENTS = frozenset({1, 3, 4})  # grey, colour, CMYK

_SEQUENTIAL_SCAN = b"\0\x3f\0"  # all 64 coefficients, at full precision
_MOST_POINT_TRANSFORM = 13


def are_tables_standard(
    quantizers: Sequence[bytes], codes: Sequence[bytes], components: bytes, scan: bytes, is_progressive: bool
) -> bool:
    """Return whether every decoder can start an image with these tables.

    Takes the bodies of all DQT and DHT segments, the end of the start-of-frame segment (the number of
    components, then three bytes each), and the body of the first start-of-scan segment.
    """
    required = _required_tables(components, scan, is_progressive)
    return (
        required is not None
        and required[0] <= _quantization_tables(tuple(quantizers))
        and required[1] <= _huffman_tables(codes)
    )


@functools.lru_cache(maxsize=128)
def _required_tables(
    components: bytes, scan: bytes, is_progressive: bool
) -> tuple[set[int], set[int]] | None:
    """Return the quantization and Huffman tables of the first scan; None if its parameters are unusual."""
    names, factors, quantizers = components[1::3], components[2::3], components[3::3]
    if components[0] not in _COMPONENTS or len(components) != 1 + 3 * components[0]:
        return None
    if sum(_BLOCKS.get(factor, _MOST_BLOCKS + 1) for factor in factors) > _MOST_BLOCKS:
        return None
    if len(scan) != 4 + 2 * scan[0] or scan[1:-3:2] != names or len({*names}) < len(names):
        return None
    codes, parameters = scan[2:-3:2], scan[-3:]
    dc_codes = {code >> 4 for code in codes}
    if is_progressive:
        is_usual = parameters[:2] == b"\0\0" and parameters[2] <= _MOST_POINT_TRANSFORM
        return (set(quantizers), dc_codes) if is_usual else None
    if parameters != _SEQUENTIAL_SCAN:
        return None
    return set(quantizers), dc_codes.union(0x10 | code & 15 for code in codes)


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
    """Return the tables in DHT segments, class (0 DC, 1 AC) and number a nibble each; none if malformed."""
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
