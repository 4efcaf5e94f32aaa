"""Whether a JPEG's header describes what every decoder reads, told from its bytes alone.

A file whose tables are damaged decodes to nothing at all, though its markers and its end are in
place. Tables and parameters are therefore held against ITU-T T.81 and libjpeg's own checks. What
passes is ordinary; what does not may still be decodable, such as a file without Huffman tables
(as in Motion JPEG), so that only decoding it tells.

Most files of a dataset share their tables, so that verdicts are remembered: 4 us a photo instead of 8.
"""

from __future__ import annotations

import functools
from operator import mul

# How many codes of each length, 1 to 16 bits, use up all codes: 2**16 in units of the longest. The
# code of ones alone stays unused (T.81, C.2).
_CODE_SPACE = 1 << 16
_CODE_SHARES = tuple(1 << (16 - length) for length in range(1, 17))
_LARGEST_DC_SYMBOL = 15  # a difference of so many bits (libjpeg's jdhuff.c)

# Sampling factors, horizontal and vertical in a nibble each, and the blocks of an MCU that they make.
_BLOCKS = {0x11: 1, 0x12: 2, 0x21: 2, 0x14: 4, 0x22: 4, 0x41: 4}
_MOST_BLOCKS = 10  # of an MCU (T.81, B.2.3)
_COMPONENTS = frozenset({1, 3, 4})  # grey, colour, CMYK

_SEQUENTIAL_SCAN = b"\0\x3f\0"  # all 64 coefficients, at full precision
_MOST_POINT_TRANSFORM = 13


@functools.lru_cache(maxsize=512)
def _quantisers(segment: bytes) -> frozenset[int] | None:
    """The numbers of the tables in a DQT segment's body; None where they are malformed."""
    numbers, start = set(), 0
    while start < len(segment):
        precision, number = divmod(segment[start], 16)
        if precision > 1 or number > 3:
            return None
        numbers.add(number)
        start += 129 if precision else 65
    return frozenset(numbers) if start == len(segment) else None


@functools.lru_cache(maxsize=512)
def _codes(segment: bytes) -> frozenset[int] | None:
    """The tables in a DHT segment's body: class (0 DC, 1 AC) and number, a nibble each; or None."""
    tables, start = set(), 0
    while start < len(segment):
        table, counts = segment[start], segment[start + 1 : start + 17]
        end = start + 17 + sum(counts)
        if table & 0xEC or sum(map(mul, counts, _CODE_SHARES)) >= _CODE_SPACE:
            return None
        if table < 0x10 and max(segment[start + 17 : end], default=0) > _LARGEST_DC_SYMBOL:
            return None
        tables.add(table)
        start = end
    return frozenset(tables) if start == len(segment) else None


@functools.lru_cache(maxsize=512)
def _wanted(
    components: bytes, scan: bytes, is_progressive: bool
) -> tuple[frozenset[int], frozenset[int]] | None:
    """The quantisers and the codes that a picture's first scan needs; None where it is odd.

    Args:
        components: Their number, then three bytes each, as a start-of-frame segment ends.
        scan: The body of the start-of-scan segment.
        is_progressive: Whether the scan is one of many, with DC coefficients alone.
    """
    names, factors, quantisers = components[1::3], components[2::3], components[3::3]
    if components[0] not in _COMPONENTS or len(components) != 1 + 3 * components[0]:
        return None
    if sum(_BLOCKS.get(factor, _MOST_BLOCKS + 1) for factor in factors) > _MOST_BLOCKS:
        return None
    if len(scan) != 4 + 2 * scan[0] or scan[1:-3:2] != names or len({*names}) < len(names):
        return None
    codes, parameters = scan[2:-3:2], scan[-3:]
    dc_codes = frozenset(code >> 4 for code in codes)
    if is_progressive:
        is_usual = parameters[:2] == b"\0\0" and parameters[2] <= _MOST_POINT_TRANSFORM
        return (frozenset(quantisers), dc_codes) if is_usual else None
    if parameters != _SEQUENTIAL_SCAN:
        return None
    return frozenset(quantisers), dc_codes.union(0x10 | code & 15 for code in codes)


class DecoderTables:
    """The tables that a file's header defines, and whether all of them are well-formed."""

    __slots__ = ("_codes", "_is_well_formed", "_quantisers")

    def __init__(self) -> None:
        self._quantisers: frozenset[int] = frozenset()
        self._codes: frozenset[int] = frozenset()
        self._is_well_formed = True

    def add_quantisers(self, segment: bytes) -> None:
        """Takes the body of a DQT segment: tables of 64 numbers, 8 or 16 bits each."""
        found = _quantisers(segment)
        self._is_well_formed &= found is not None
        self._quantisers |= found or frozenset()

    def add_codes(self, segment: bytes) -> None:
        """Takes the body of a DHT segment: tables of 16 counts, and of a symbol for each code."""
        found = _codes(segment)
        self._is_well_formed &= found is not None
        self._codes |= found or frozenset()

    def suffice(self, components: bytes, scan: bytes, is_progressive: bool) -> bool:
        """Whether every decoder can begin a picture with these tables; for the arguments see `_wanted`."""
        wanted = _wanted(components, scan, is_progressive)
        return (
            self._is_well_formed
            and wanted is not None
            and wanted[0] <= self._quantisers
            and wanted[1] <= self._codes
        )
