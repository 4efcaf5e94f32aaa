"""EXIF orientation, applied to full images or to regions.

The eight orientations are flips and quarter turns (EXIF 2.32, section 4.6.4, tag 274). A region of the
upright image corresponds to a region of the stored one, so only that is decoded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastload.images.region import Box

# The orientations in which the stored image's rows and columns are reversed, before its sides are swapped.
_ROWS_REVERSED, _COLUMNS_REVERSED = (3, 4, 6, 7), (2, 3, 7, 8)


def swaps_sides(orientation: int) -> bool:
    """Return True if turning upright swaps height and width."""
    return orientation >= 5


def upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn stored pixels, (height, width, channels), upright: a contiguous copy, or for 1 the same array."""
    if orientation == 1:
        return pixels
    row_step = -1 if orientation in _ROWS_REVERSED else 1
    turned = pixels[::row_step, :: -1 if orientation in _COLUMNS_REVERSED else 1]
    return np.ascontiguousarray(turned.swapaxes(0, 1) if swaps_sides(orientation) else turned)


def stored_box(box: Box, stored_size: tuple[int, int], orientation: int) -> Box:
    """Return the region of a stored image, of (height, width), that is `box` in the upright one."""
    if swaps_sides(orientation):
        box = Box(box.left, box.top, box.width, box.height)
    top = stored_size[0] - box.top - box.height if orientation in _ROWS_REVERSED else box.top
    left = stored_size[1] - box.left - box.width if orientation in _COLUMNS_REVERSED else box.left
    return Box(top, left, box.height, box.width)
