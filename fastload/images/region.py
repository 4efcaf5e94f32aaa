"""Regions of images: their places by EXIF orientation, and the decoding of one from an image file.

Of a JPEG in tiles, only those that the region touches are decoded: the header and these tiles, with their
markers, make a plain JPEG of the region's size, which OpenCV decodes like any other. Tiles outside the region
cost neither time nor memory.

Of a JPEG without tiles, the TurboJPEG library, libjpeg-turbo's, from version 3 on, decodes a region. All rows
down to the region's last one must be read, because they are one stream of codes; but only the region's own
blocks are transformed, and nothing below it is read. Random crops of photos take 0.8 of the time of decoding
all, those of 12-megapixel photos 0.45. Without that library, and in other formats, the full image is decoded.

The eight orientations are flips and quarter turns (EXIF 2.32, section 4.6.4, tag 274). A region of the
upright image corresponds to a region of the stored one, so only that is decoded.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.contracts import Box
from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, StoredBytes
from fastload.images.decode import decode, encode, is_reducible, require_end
from fastload.images.jpeg import JpegLayout, TileIndex, parse_jpeg
from fastload.images.opencv import cv2

_RST0, _EOI = 0xD0, 0xD9
_FRAME_HEIGHT = 5  # offset of height and width in a start-of-frame segment, from its marker

# A decoder that interpolates chroma reads the neighbouring sample, which is in the next tile if the region
# ends at a tile's edge.
_MARGIN = 1

# The orientations in which the stored image's rows and columns are reversed, before its sides are swapped.
_ROWS_REVERSED, _COLUMNS_REVERSED = (3, 4, 6, 7), (2, 3, 7, 8)

_DECOMPRESS, _RGB = 1, 0  # TJINIT_DECOMPRESS and TJPF_RGB of turbojpeg.h

# Upsampling of chroma reads the neighbouring samples. Two rows and a column, rounded to whole MCUs, are
# enough: half a million random crops of images of all samplings were bit-equal.
_ROW_MARGIN, _COLUMN_MARGIN = 2, 1

_SAMPLINGS = (
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)


def crop(pixels: Pixels, size: tuple[int, int], box: Box, reduction: int = 1) -> Pixels:
    """Return a region of a decoded image as a view.

    The image must have `size`, (height, width), divided by the `reduction` with which it was decoded;
    otherwise DecodeError is raised. `box` is in pixels before that reduction.
    """
    if pixels.shape[:2] != (-(-size[0] // reduction), -(-size[1] // reduction)):
        raise DecodeError(
            f"the image must have {size[0]}x{size[1]} pixels, as its header, record or index says, got "
            f"{pixels.shape[0]}x{pixels.shape[1]} (at 1/{reduction} of each side): it is damaged"
        )
    if reduction > 1:
        box = reduce_box(box, reduction)
    return box.of(pixels)


def reduce_box(box: Box, reduction: int) -> Box:
    """Return the region in a reduced image; its edges move by up to half of that image's pixels."""
    top, left, bottom, right = (
        # Halves are rounded up everywhere; Python's round() rounds them to the even number.
        (2 * edge + reduction) // (2 * reduction)
        for edge in (box.top, box.left, box.top + box.height, box.left + box.width)
    )
    bottom, right = max(top + 1, bottom), max(left + 1, right)
    return Box(top, left, bottom - top, right - left)


def reduction_for(box: Box, size: tuple[int, int], gap: float) -> int:
    """Return the largest reduction that leaves a region at least `gap` times the wanted (height, width)."""
    ratio = min(box.height / size[0], box.width / size[1]) / gap
    return max(reduction for reduction in (1, 2, 4, 8) if reduction == 1 or reduction <= ratio)


def swaps_sides(orientation: int) -> bool:
    """Return True if turning upright swaps height and width."""
    return orientation >= 5


def upright(pixels: Pixels, orientation: int) -> Pixels:
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


class _Span(NamedTuple):
    """Tiles `first` to `stop` (exclusive) along one side, and the pixels that they cover."""

    first: int
    stop: int
    start: int
    length: int


def decode_region(
    data: StoredBytes,
    size: tuple[int, int],
    index: TileIndex | None,
    box: Box,
    reduction: int = 1,
) -> Pixels:
    """Decode a region of a file of size (height, width), bit-equal to decoding all of it and cropping.

    `index` holds the tiles of a JPEG, None if it has none. Other formats ignore `reduction`. Returns RGB,
    uint8, of the size of the box, or of `reduce_box`; a view. Raises DecodeError if the bytes are damaged, or
    are not of that size, or not those that the index describes.
    """
    if not is_reducible(data):
        return crop(decode(data), size, box)
    if index is not None:
        return _decode_tiles(data, size, index, box, reduction)
    if reduction == 1 and (box.height, box.width) != size:
        require_end(data)
        part = decode_part(data, size, box)
        if part is not None:
            return part
    return crop(decode(data, reduction), size, box, reduction)


def _decode_tiles(
    data: StoredBytes, size: tuple[int, int], index: TileIndex, box: Box, reduction: int
) -> Pixels:
    _, _, tile_height, tile_width = index.grid
    margin = _MARGIN * reduction
    rows = _touched(box.top, box.height, tile_height, size[0], margin)
    columns = _touched(box.left, box.width, tile_width, size[1], margin)
    per_row = -(-size[1] // tile_width)
    row_count = -(-size[0] // tile_height)
    if index.lengths.size != per_row * row_count:
        raise DecodeError(
            f"the index must have {row_count} rows of {per_row} tiles, got {index.lengths.size} in all: "
            "the record is damaged"
        )
    needs_all = (rows.stop - rows.first) * (columns.stop - columns.first) == index.lengths.size
    jpeg = data if needs_all else _extract(np.frombuffer(data, np.uint8).data, index, per_row, rows, columns)
    pixels = decode(jpeg, reduction)
    inner = Box(box.top - rows.start, box.left - columns.start, box.height, box.width)
    return crop(pixels, (rows.length, columns.length), inner, reduction)


def _touched(start: int, length: int, tile: int, size: int, margin: int) -> _Span:
    first = max(0, start - margin) // tile
    stop = -(-min(size, start + length + margin) // tile)
    return _Span(first, stop, first * tile, min(size, stop * tile) - first * tile)


def _extract(
    data: memoryview, index: TileIndex, per_row: int, rows: _Span, columns: _Span
) -> NDArray[np.uint8]:
    """Return a JPEG of some rows and columns of the tiles; the image has `per_row` tiles in a row."""
    sof_offset, scan_offset, _, _ = index.grid
    # Each tile is followed by a marker of two bytes, the last one by the end of the image.
    ends = index.lengths.cumsum(dtype=np.int64)
    ends += np.arange(scan_offset + 2, scan_offset + 2 + 2 * ends.size, 2)
    first, last = rows.first * per_row + columns.first, rows.first * per_row + columns.stop - 1
    stops = ends[last : rows.stop * per_row : per_row]
    starts = (ends - index.lengths)[first : rows.stop * per_row : per_row] - 2
    pieces = [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    # Joined in half the time that NumPy takes to concatenate arrays.
    jpeg = np.frombuffer(bytearray().join((data[:scan_offset], *pieces)), np.uint8)
    # A row's markers move by as much as the row.
    moved = (stops - starts).cumsum() + scan_offset - stops
    markers = ends.reshape(-1, per_row)[rows.first : rows.stop, columns.first : columns.stop] - 1
    markers += moved[:, None]
    if markers[-1, -1] != jpeg.size - 1:
        raise DecodeError("the tiles must lie within the record, but by the index they do not: it is damaged")
    jpeg[markers] = (_RST0 + np.arange(markers.size) % 8).reshape(markers.shape)
    jpeg[-1] = _EOI
    frame = sof_offset + _FRAME_HEIGHT
    jpeg[frame : frame + 4] = (rows.length >> 8, rows.length & 255, columns.length >> 8, columns.length & 255)
    return jpeg


class _Part(ctypes.Structure):
    """The part of an image that is decoded, in pixels; the library's `tjregion`."""

    left: int
    top: int
    width: int
    height: int
    _fields_ = tuple((name, ctypes.c_int) for name in ("left", "top", "width", "height"))


def decode_part(data: StoredBytes, size: tuple[int, int], box: tuple[int, int, int, int]) -> Pixels | None:
    """Decode a region, (top, left, height, width), of a complete JPEG to RGB.

    Returns a view, (height, width, 3), bit-equal to a crop of the decoded image; or None if the full image
    must be decoded: it is progressive, CMYK, damaged or not of `size`, (height, width), or no library is
    installed.
    """
    library = find_turbojpeg()
    if library is None:
        return None
    file = bytes(data)
    try:
        layout = parse_jpeg(file)
    except DecodeError:
        return None
    # The scans of a progressive file would all be decoded; and not every OpenCV reads arithmetic codes.
    if (layout.height, layout.width) != size or not layout.is_baseline:
        return None
    return _decode(library, file, layout, box)


def _decode(
    library: ctypes.CDLL, file: bytes, layout: JpegLayout, box: tuple[int, int, int, int]
) -> Pixels | None:
    # With the samples that its pixels depend on; the left edge is an MCU's.
    (top, left, height, width), mcu = box, layout.mcu_width
    first = max(0, left - _COLUMN_MARGIN) // mcu * mcu
    stop = min(layout.width, -(-(left + width + _COLUMN_MARGIN) // mcu) * mcu)
    if first > 0 and stop - first < mcu:
        first -= mcu  # upsampling is wrong if a last MCU with a single sample of chroma is decoded alone
    first_row, stop_row = max(0, top - _ROW_MARGIN), min(layout.height, top + height + _ROW_MARGIN)
    part = _Part(first, first_row, stop - first, stop_row - first_row)
    pixels = np.empty((part.height, part.width, 3), np.uint8)
    # A new decoder for each image takes 1 µs. A used one has the tables of the image before, with which it
    # would decode a file that lacks its own; and after a damaged header it refuses all later files.
    decoder = library.tj3Init(_DECOMPRESS)
    try:
        # A warning is a failure here: what the pixels of a damaged file are is left to OpenCV.
        has_failed = (
            library.tj3DecompressHeader(decoder, file, len(file))
            or library.tj3SetCroppingRegion(decoder, part)
            or library.tj3Decompress8(decoder, file, len(file), pixels.ctypes.data, 0, _RGB)
        )
    finally:
        library.tj3Destroy(decoder)
    return None if has_failed else pixels[top - first_row :, left - first :][:height, :width]


@functools.cache
def find_turbojpeg() -> ctypes.CDLL | None:
    """Return a TurboJPEG library that decodes regions as OpenCV does, or None; cached for the process.

    Conda, the system, Homebrew and the wheel `turbojpeg` install it.
    """
    number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    name = "libturbojpeg.dylib" if sys.platform == "darwin" else "libturbojpeg.so.0"
    wheels = (path for folder in sys.path for path in Path(folder).glob("turbojpeg.*libs/libturbojpeg*"))
    for path in (Path(sys.prefix, "lib", name), name, Path("/opt/homebrew/lib", name), *wheels):
        try:
            library = ctypes.CDLL(str(path))
            library.tj3Init.argtypes, library.tj3Init.restype = [number], pointer
            library.tj3Destroy.argtypes, library.tj3Destroy.restype = [pointer], None
            library.tj3DecompressHeader.argtypes = [pointer, pointer, size]
            library.tj3SetCroppingRegion.argtypes = [pointer, _Part]
            library.tj3Decompress8.argtypes = [pointer, pointer, size, pointer, number, number]
        except (OSError, AttributeError):  # it does not exist, or is older than version 3
            continue
        if all(_decodes_alike(library, sampling) for sampling in _SAMPLINGS):
            return library
    return None


def _decodes_alike(library: ctypes.CDLL, sampling: int) -> bool:
    """Return True if a region of a small image is the same from the library and from OpenCV.

    OpenCV can be built with another libjpeg, which upsamples chroma in another way.
    """
    noise = np.random.default_rng(0).integers(0, 256, (40, 80, 3), np.uint8)
    file = encode(noise, ".jpg", (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling))
    part = _decode(library, file, parse_jpeg(file), (9, 35, 20, 30))
    return part is not None and np.array_equal(part, decode(file)[9:29, 35:65])
