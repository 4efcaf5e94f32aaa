"""Whether a JPEG's header describes what every decoder reads, told from its bytes alone.

A file whose tables are damaged decodes to nothing at all, though its markers and its end are in
place. Tables and parameters are therefore held against ITU-T T.81 and libjpeg's own checks. What
passes is ordinary; what does not may still be decodable, such as a file without Huffman tables
(as in Motion JPEG), so that only decoding it tells.
"""

from __future__ import annotations

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


class DecoderTables:
    """The tables that a file's header defines, and whether all of them are well-formed."""

    __slots__ = ("_codes", "_quantisers", "_well_formed")

    def __init__(self) -> None:
        self._quantisers: set[int] = set()
        self._codes: set[int] = set()  # class (0 DC, 1 AC) and number, in a nibble each
        self._well_formed = True

    def add_quantisers(self, data: bytes, start: int, end: int) -> None:
        """Takes the body of a DQT segment: tables of 64 numbers, 8 or 16 bits each."""
        while start < end:
            precision, number = divmod(data[start], 16)
            self._well_formed &= precision <= 1 and number <= 3
            self._quantisers.add(number)
            start += 129 if precision else 65
        self._well_formed &= start == end

    def add_codes(self, data: bytes, start: int, end: int) -> None:
        """Takes the body of a DHT segment: tables of 16 counts, and of a symbol for each code."""
        while start < end:
            kind, counts = data[start], data[start + 1 : start + 17]
            symbols = data[start + 17 : start + 17 + sum(counts)]
            self._well_formed &= kind & 0xEC == 0 and sum(map(mul, counts, _CODE_SHARES)) < _CODE_SPACE
            self._well_formed &= kind >= 0x10 or max(symbols, default=0) <= _LARGEST_DC_SYMBOL
            self._codes.add(kind)
            start += 17 + sum(counts)
        self._well_formed &= start == end

    def suffice(self, frame: bytes, scan: bytes, is_progressive: bool) -> bool:
        """Whether a picture can be decoded with these tables.

        Args:
            frame: The body of its start-of-frame segment.
            scan: The body of its first start-of-scan segment.
            is_progressive: Whether that scan is one of many, with the DC coefficients alone.
        """
        if not self._well_formed or len(frame) != 6 + 3 * frame[5] or len(scan) != 4 + 2 * scan[0]:
            return False
        names, factors, quantisers = frame[6::3], frame[7::3], frame[8::3]
        blocks = sum(_BLOCKS.get(factor, _MOST_BLOCKS + 1) for factor in factors)
        if (
            frame[5] not in _COMPONENTS
            or blocks > _MOST_BLOCKS
            or not self._quantisers.issuperset(quantisers)
        ):
            return False
        chosen, codes, parameters = scan[1:-3:2], scan[2:-3:2], scan[-3:]
        if not chosen or not set(names).issuperset(chosen) or len({*names}) < len(names):
            return False
        if not self._codes.issuperset(code >> 4 for code in codes):
            return False
        if is_progressive:
            return parameters[:2] == b"\0\0" and parameters[2] <= _MOST_POINT_TRANSFORM
        return parameters == _SEQUENTIAL_SCAN and self._codes.issuperset(0x10 | code & 15 for code in codes)
