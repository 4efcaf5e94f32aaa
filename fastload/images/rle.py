"""Run-length encoding (RLE) of COCO's masks: column by column, beginning with the pixels outside.

COCO also writes the lengths as a text, of which each character holds five bits of a number, lowest first, and
a bit that is set if more follow; from the fourth run on, the difference from the run two before it is
written (pycocotools, maskApi.c). Fractions of a percent of all objects have such masks: crowds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_FIRST_CHARACTER = 48
_MORE, _SIGN = 0x20, 0x10
_MOST_BITS = 64  # more than any run has; reading a longer number takes quadratic time


def decode_counts(text: str) -> list[int]:
    """Return the run lengths of a compressed text; raise ValueError if it is not valid."""
    counts: list[int] = []
    number = shift = 0
    for character in text:
        bits = ord(character) - _FIRST_CHARACTER
        if not 0 <= bits < 2 * _MORE:
            raise ValueError(f"the character {character!r} is not one of a compressed mask")
        number |= (bits & (_MORE - 1)) << shift
        shift += 5
        if not bits & _MORE:
            number -= (1 << shift) if bits & _SIGN else 0
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number = shift = 0
        elif shift > _MOST_BITS:
            raise ValueError("a number of the text is longer than any run")
    if shift:
        raise ValueError("the text ends within a number")
    return counts


def mask_of_counts(counts: Sequence[int], height: int, width: int) -> NDArray[np.uint8]:
    """Return a mask of 0 and 1, (height, width); raise ValueError unless the runs fill it."""
    if any(count < 0 for count in counts) or sum(counts) != height * width:
        raise ValueError(f"the runs must fill {height}x{width} pixels, got {sum(counts)}")
    values = np.arange(len(counts), dtype=np.uint8) & 1
    return np.ascontiguousarray(np.repeat(values, counts).reshape(width, height).T)
