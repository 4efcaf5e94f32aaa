"""Images of TIFF files with other pixels than a picture's of 8 bits, read by tifffile.

Of a file in tiles or strips, only those that a region touches are read and decoded.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fastload.errors import DecodeError, LibraryMissingError
from fastload.images.arrays import Pixels, StoredBytes
from fastload.images.encoding_names import DTYPES
from fastload.images.pixel_types import PixelType, picture_type

# By PhotometricInterpretation: grey, RGB, a palette, CMYK, YCbCr, L*a*b*.
_CHANNELS = {0: 1, 1: 1, 2: 3, 3: 1, 5: 4, 6: 3, 8: 3}
_PLANES = 2  # PlanarConfiguration
_ALPHA = (1, 2)  # ExtraSamples: associated and unassociated


class TiffLayout(NamedTuple):
    """Size and pixel type of a TIFF's image."""

    height: int
    width: int
    channels: int
    pixel_type: PixelType


def read_tiff_layout(data: StoredBytes) -> TiffLayout:
    """Return the layout of a TIFF, without decoding it; may raise DecodeError or LibraryMissingError."""
    with _page(data) as page:
        height, width, channels = page.imagelength, page.imagewidth, page.samplesperpixel
        dtype = "other" if page.dtype is None else page.dtype.name
        alpha = [int(kind) in _ALPHA for kind in page.extrasamples]
        is_picture = all(alpha) and len(alpha) <= 1
        is_picture = is_picture and channels - len(alpha) == _CHANNELS.get(int(page.photometric))
        kind = picture_type(dtype, channels) if is_picture else PixelType(dtype, channels)
        if not kind.is_possible or page.imagedepth != 1:
            raise DecodeError(
                f"a TIFF must have an image of {', '.join(DTYPES)}, got {dtype} of shape {page.shape}: "
                "convert it"
            )
        return TiffLayout(height, width, channels, kind)


def read_tiff(data: StoredBytes, box: tuple[int, int, int, int] | None = None) -> Pixels:
    """Return a TIFF's image, (height, width, channels), or a region of it: (top, left, height, width).

    Raises DecodeError if tifffile cannot read it, or a part of the region is missing.
    """
    with _page(data) as page:
        top, left, height, width = box or (0, 0, page.imagelength, page.imagewidth)
        if top + height > page.imagelength or left + width > page.imagewidth:
            raise DecodeError(
                f"a TIFF must have the {top + height}x{left + width} pixels of the region, got "
                f"{page.imagelength}x{page.imagewidth}: it is damaged or has been replaced"
            )
        bottom, right = top + height, left + width
        if page.is_final:  # one run of pixels that need no decoding
            begin, size = page.dataoffsets[0], page.nbytes
            if begin + size > len(data):
                raise _cut_off(data)
            flat = np.frombuffer(data, np.uint8)[begin : begin + size]
            pixels = flat.view(page.dtype.newbyteorder(page.parent.byteorder)).reshape(page.shape)
            if pixels.ndim == 2:
                pixels = pixels[:, :, None]
            elif page.planarconfig == _PLANES:
                pixels = np.moveaxis(pixels, 0, 2)
            return np.ascontiguousarray(pixels[top:bottom, left:right], page.dtype.newbyteorder("="))
        out = np.zeros((height, width, page.samplesperpixel), page.dtype.newbyteorder("="))
        for number, (row, column, length, breadth) in enumerate(_segments(page)):
            if row >= bottom or row + length <= top or column >= right or column + breadth <= left:
                continue
            offset, size = page.dataoffsets[number], page.databytecounts[number]
            if not size:
                continue  # a sparse file's missing tile is 0
            if offset + size > len(data):
                raise _cut_off(data)
            segment, place, _ = page.decode(bytes(data[offset : offset + size]), number)
            if segment is None:
                continue
            # (plane, depth, row, column, sample) of its first pixel.
            plane, samples = place[0], segment.shape[3]
            first, last = max(row, top), min(row + segment.shape[1], bottom)
            begin, end = max(column, left), min(column + segment.shape[2], right)
            part = segment[0, first - row : last - row, begin - column : end - column]
            out[first - top : last - top, begin - left : end - left, plane : plane + samples] = part
        return out


def _cut_off(data: StoredBytes) -> DecodeError:
    return DecodeError(
        f"a TIFF must have all of its tiles or strips, got the end of its {len(data):,} bytes before one: "
        "the file is truncated"
    )


def _segments(page: Any) -> Iterator[tuple[int, int, int, int]]:
    """Yield top, left, height and width of each tile or strip, in the order of their numbers."""
    planes = page.samplesperpixel if page.planarconfig == _PLANES else 1
    if page.is_tiled:
        length, breadth = page.tilelength, page.tilewidth
    else:
        length, breadth = min(page.rowsperstrip, page.imagelength), page.imagewidth
    for _ in range(planes):
        for row in range(0, page.imagelength, length):
            for column in range(0, page.imagewidth, breadth):
                yield row, column, length, breadth


class _View(io.RawIOBase):
    """A file of bytes in memory, such as a mapped shard, of which only what is read is touched."""

    def __init__(self, data: StoredBytes) -> None:
        self._data, self._at = memoryview(data), 0  # type: ignore[arg-type]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, len(self._data))[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


@contextmanager
def _page(data: StoredBytes) -> Iterator[Any]:
    """Yield tifffile's page of a TIFF's image; raise DecodeError if there are several, or it fails."""
    try:
        import tifffile
    except ImportError as error:
        raise LibraryMissingError(
            "a TIFF with other pixels than a picture's of 8 bits is read by tifffile, which is not installed:"
            " pip install tifffile imagecodecs"
        ) from error
    try:
        with tifffile.TiffFile(io.BufferedReader(_View(data))) as file:
            # Overviews and masks of the image are pages too (NewSubfileType of TIFF 6.0).
            pages = [page for page in file.pages if not int(getattr(page, "subfiletype", 0) or 0)]
            if len(pages) != 1:
                raise DecodeError(
                    f"a TIFF must have one image, got {len(pages)} pages: write each as a file, or the bands "
                    "of one image as channels"
                )
            yield pages[0]
    except (MemoryError, DecodeError):
        raise
    except Exception as error:  # its readers raise anything on a damaged file
        raise DecodeError(
            f"a TIFF must be one that tifffile reads, got: {error}: the file is damaged, or its compression "
            "needs another package: pip install imagecodecs"
        ) from error
