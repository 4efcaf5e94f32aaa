"""EXIF orientation, applied to whole images or to regions.

The eight orientations are flips and quarter turns (EXIF 2.32, section 4.6.4, tag 274). A region of the
upright image corresponds to a region of the stored one, so only that needs decoding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastload.images.region import Box

# From stored to upright.
_TURNS: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}

# Which axes of the stored image are reversed, (rows, columns), after height and width were swapped.
_IS_REVERSED = {
    1: (False, False),
    2: (False, True),
    3: (True, True),
    4: (True, False),
    5: (False, False),
    6: (True, False),
    7: (True, True),
    8: (False, True),
}


def swaps_sides(orientation: int) -> bool:
    """Return whether turning upright swaps height and width."""
    return orientation >= 5


def upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn stored pixels, (height, width, channels), upright: a contiguous copy, or for 1 the same array."""
    return pixels if orientation == 1 else np.ascontiguousarray(_TURNS[orientation](pixels))


def stored_box(box: Box, stored_size: tuple[int, int], orientation: int) -> Box:
    """Return the region of a stored image, of (height, width), that is `box` in the upright one."""
    if swaps_sides(orientation):
        box = Box(box.left, box.top, box.width, box.height)
    rows_reversed, columns_reversed = _IS_REVERSED[orientation]
    top = stored_size[0] - box.top - box.height if rows_reversed else box.top
    left = stored_size[1] - box.left - box.width if columns_reversed else box.left
    return Box(top, left, box.height, box.width)
