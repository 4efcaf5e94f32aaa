"""Decoding a part of a JPEG: only the tiles that a region touches.

The tiles are cut out with their markers, put behind the file's own header, and that, a plain JPEG of the
region's size, is decoded by OpenCV like any other. What a decoder reads of a file's other tiles is nothing:
they cost neither time nor memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.decode import decode
from fastload.images.jpeg import TileIndex

_RST0, _EOI = 0xD0, 0xD9
_FRAME_HEIGHT = 5  # where a start-of-frame segment says its height and width, from its marker on

# A decoder that interpolates chroma looks at the neighbouring sample, which lies in the neighbouring
# tile where a region ends with one.
_MARGIN = 1


class Box(NamedTuple):
    """A region of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def cropped(
    pixels: NDArray[np.uint8], size: tuple[int, int], box: Box, reduction: int = 1
) -> NDArray[np.uint8]:
    """A region of a decoded image, a view of it.

    Args:
        pixels: (height, width, channels).
        size: The (height, width) that they must have, before they are reduced.
        box: The region, in pixels of that size.
        reduction: By how much each side was shrunk while decoding.

    Raises:
        DecodeError: They have another size.
    """
    if pixels.shape[:2] != (-(-size[0] // reduction), -(-size[1] // reduction)):
        raise DecodeError(
            f"the image must have {size[0]}x{size[1]} pixels, as its header, record or index says, got "
            f"{pixels.shape[0]}x{pixels.shape[1]} (at 1/{reduction} of each side): it is damaged"
        )
    if reduction > 1:
        box = reduced(box, reduction)
    return pixels[box.top : box.top + box.height, box.left : box.left + box.width]


def reduced(box: Box, reduction: int) -> Box:
    """The region in an image whose sides have been shrunk: its edges move by up to half a pixel of that."""
    top, left, bottom, right = (
        # Halves go up, from wherever one counts; Python's round() takes them to the even number.
        (2 * edge + reduction) // (2 * reduction)
        for edge in (box.top, box.left, box.top + box.height, box.left + box.width)
    )
    bottom, right = max(top + 1, bottom), max(left + 1, right)
    return Box(top, left, bottom - top, right - left)


def reduction_for(box: Box, size: tuple[int, int], gap: float) -> int:
    """By how much a region can be shrunk while decoding and still have `gap` times the sides that are wanted.

    Args:
        box: The region.
        size: The (height, width) wanted of it.
        gap: At least 1.
    """
    ratio = min(box.height / size[0], box.width / size[1]) / gap
    return max(reduction for reduction in (1, 2, 4, 8) if reduction == 1 or reduction <= ratio)


class _Span(NamedTuple):
    """Tiles from `first` up to `stop` along one side, and the pixels that they cover."""

    first: int
    stop: int
    start: int
    length: int


def decode_region(
    data: bytes | NDArray[np.uint8],
    size: tuple[int, int],
    index: TileIndex,
    box: Box,
    reduction: int = 1,
) -> NDArray[np.uint8]:
    """Decodes a region of a JPEG that is a grid of tiles; to the bit what decoding all and cropping gives.

    Args:
        data: The JPEG.
        size: Its (height, width), in pixels.
        index: Its tiles.
        box: The region, within the image.
        reduction: By how much each side is shrunk meanwhile: see `reduced`.

    Returns:
        RGB, uint8, (box.height, box.width, 3), or the size of the reduced box; a view of what was decoded.

    Raises:
        DecodeError: The bytes are damaged, or are not those that the index describes.
    """
    _, _, tile_height, tile_width = index.grid
    margin = _MARGIN * reduction
    rows = _touched(box.top, box.height, tile_height, size[0], margin)
    columns = _touched(box.left, box.width, tile_width, size[1], margin)
    across = -(-size[1] // tile_width)
    down = -(-size[0] // tile_height)
    if index.lengths.size != across * down:
        raise DecodeError(
            f"the index must have {down} rows of {across} tiles, got {index.lengths.size} in all: "
            "the record is damaged"
        )
    lengths = index.lengths.reshape(down, across)
    if (rows.stop - rows.first) * (columns.stop - columns.first) == lengths.size:
        pixels = decode(data, reduction)
    else:
        jpeg = _cut(np.frombuffer(data, np.uint8), index, lengths, rows, columns)
        pixels = decode(jpeg, reduction)
    inner = Box(box.top - rows.start, box.left - columns.start, box.height, box.width)
    return cropped(pixels, (rows.length, columns.length), inner, reduction)


def _touched(start: int, length: int, tile: int, size: int, margin: int) -> _Span:
    first = max(0, start - margin) // tile
    stop = -(-min(size, start + length + margin) // tile)
    return _Span(first, stop, first * tile, min(size, stop * tile) - first * tile)


def _cut(
    data: NDArray[np.uint8],
    index: TileIndex,
    lengths: NDArray[np.uint16],
    rows: _Span,
    columns: _Span,
) -> NDArray[np.uint8]:
    """The JPEG of some rows and columns of tiles."""
    sof_offset, scan_offset, _, _ = index.grid
    # Each tile is followed by a marker of two bytes, the last one by the end of the image. (In int64: NumPy 1
    # would add them up in the index's 16 bits.)
    sizes = lengths.astype(np.int64) + 2
    ends = np.cumsum(sizes).reshape(sizes.shape) + scan_offset
    starts = (ends - sizes)[rows.first : rows.stop, columns.first]
    stops = ends[rows.first : rows.stop, columns.stop - 1]
    pieces = [data[:scan_offset]]
    pieces += [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    jpeg = np.concatenate(pieces)
    markers = np.cumsum(sizes[rows.first : rows.stop, columns.first : columns.stop]) + (scan_offset - 1)
    if markers[-1] != jpeg.size - 1:
        raise DecodeError("the tiles must lie within the record, got an index that says otherwise")
    jpeg[markers] = _RST0 + np.arange(markers.size) % 8
    jpeg[-1] = _EOI
    frame = sof_offset + _FRAME_HEIGHT
    jpeg[frame : frame + 4] = (rows.length >> 8, rows.length & 255, columns.length >> 8, columns.length & 255)
    return jpeg
