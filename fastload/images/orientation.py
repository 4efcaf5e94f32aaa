"""Turning pictures as their EXIF orientation says, whole or in part.

The eight orientations are flips and quarter turns (EXIF 2.32, section 4.6.4, tag 274). A part of the upright
picture is a part of the stored one, which is what is decoded.
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

# Which sides of the stored picture are counted from their far end, after height and width have changed places
# where they do: (rows, columns).
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


def is_on_its_side(orientation: int) -> bool:
    """Whether height and width change places."""
    return orientation >= 5


def upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turns stored pixels upright.

    Args:
        pixels: (height, width, channels).
        orientation: 1 to 8.

    Returns:
        Contiguous; for orientation 1 the pixels themselves.
    """
    return pixels if orientation == 1 else np.ascontiguousarray(_TURNS[orientation](pixels))


def stored_box(box: Box, stored_size: tuple[int, int], orientation: int) -> Box:
    """The part of a stored picture that is a part of the upright one.

    Args:
        box: The part of the upright picture.
        stored_size: (height, width) of the stored one.
        orientation: 1 to 8.
    """
    if is_on_its_side(orientation):
        box = Box(box.left, box.top, box.width, box.height)
    rows_reversed, columns_reversed = _IS_REVERSED[orientation]
    top = stored_size[0] - box.top - box.height if rows_reversed else box.top
    left = stored_size[1] - box.left - box.width if columns_reversed else box.left
    return Box(top, left, box.height, box.width)
