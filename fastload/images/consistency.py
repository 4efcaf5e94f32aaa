"""Consistency of a stored image with its record: encoding, shape and tiles.

JPEG and PNG are checked by their headers, without decoding: 30 µs for a JPEG of 100 KB.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.jpeg import SOI, index_tiles, parse_jpeg

_CHANNELS = range(1, 5)
_TILED = ("tiled", "jpeg")


def find_contradiction(
    encoding: str, data: bytes, shape: tuple[int, int, int], grid: tuple[int, ...], tiles: NDArray[np.uint16]
) -> str | None:
    """Return how the stored bytes of an image contradict its record; None if they agree.

    `shape` is (height, width, channels), not zeros; `grid` and `tiles` are as stored, see `TileIndex`.
    """
    if not (shape[0] and shape[1] and shape[2] in _CHANNELS):
        return f"its shape is {shape}, which is impossible for an image"
    if (any(grid) or tiles.size) and encoding not in _TILED:
        return f"it has tiles, which {encoding} never has"
    if encoding in ("raw", "yuv420"):
        return _size_mismatch(encoding, len(data), shape)
    try:
        found = _shape_of(encoding, data)
        if found != shape:
            return f"its shape is stored as {shape}, its header says {found}"
        return _tile_mismatch(data, grid, tiles)
    except DecodeError as error:
        return f"its shape is stored as {shape}, but it is not a readable image: {error}"


def _size_mismatch(encoding: str, size: int, shape: tuple[int, int, int]) -> str | None:
    height, width, channels = shape
    if channels != 3:
        return f"its shape is {shape}, but {encoding} has 3 channels"
    # Not nv12_size, whose module needs OpenCV.
    expected = height * width * 3
    if encoding == "yuv420":
        expected = (height + height % 2) * (width + width % 2) * 3 // 2
    return None if size == expected else f"{encoding} of shape {shape} has {expected:,} bytes, not {size:,}"


def _shape_of(encoding: str, data: bytes) -> tuple[int, int, int]:
    if data.startswith(SOI):
        layout = parse_jpeg(data)
        return layout.height, layout.width, layout.components
    if encoding == "jpeg":
        raise DecodeError(f"a JPEG must start with {SOI!r}, got {data[:2]!r}")
    from fastload.images.header import read_header  # needs OpenCV, which JPEG does not

    return read_header(data).shape


def _tile_mismatch(data: bytes, grid: tuple[int, ...], tiles: NDArray[np.uint16]) -> str | None:
    if not any(grid) and not tiles.size:
        return None
    index = index_tiles(data) if data.startswith(SOI) else None
    if index is None or index.grid != grid or not np.array_equal(index.lengths, tiles):
        return "its tiles are not where the index says"
    return None
