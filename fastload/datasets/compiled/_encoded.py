"""Single image files that are decoded on first use, and their metadata as in PIL."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image

from fastload.datasets.compiled._lazy import LazyImage
from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, Size
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.images.header import parsed_header
from fastload.images.region import Box, decode_region

# Offset of the colour type in a PNG file, its value for RGB, and the size of the last, empty chunk.
_COLOUR_TYPE, _TRUE_COLOUR, _END_BYTES = 25, 2, 12


def lazily_decoded(file: bytes | str, load: Callable[[], PIL.Image.Image]) -> PIL.Image.Image:
    """Return an RGB image that is decoded on first use; `load()` if PIL would not open the file as RGB.

    `file` is its content or its path. `load` opens it with PIL, and is also called on first use if OpenCV
    cannot decode it.
    """
    try:
        data = file if isinstance(file, bytes) else Path(file).read_bytes()
        header = parsed_header(data)
    except (DecodeError, OSError):
        return load()
    if header is None or (header.channels, header.bit_depth, header.orientation) != (3, 8, 1):
        return load()
    if header.format == "png" and not _is_true_colour(data):
        return load()
    size = header.height, header.width
    image = DeferredImage.of(PixelSource(_EncodedImage(data, size, load), 0, size))
    return LazyImage(image, functools.partial(info_of, data))


def _is_true_colour(data: bytes) -> bool:
    """Return True for a PNG file without a palette and without a transparent colour."""
    return data[_COLOUR_TYPE] == _TRUE_COLOUR and b"tRNS" not in data[: data.find(b"IDAT")]


@dataclass(frozen=True, slots=True)
class _EncodedImage:
    """One encoded image; see `Regions`."""

    data: bytes
    size: Size
    load: Callable[[], PIL.Image.Image]

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        try:
            return decode_region(self.data, self.size, None, box)
        except DecodeError:
            pixels: Pixels = np.asarray(self.load().convert("RGB"))
        return box.of(pixels)


def info_of(data: bytes) -> dict[object, object]:
    """Return PIL's `info` of a file's image after conversion to RGB: EXIF, resolution, colour profile.

    JPEG files, and PNG files with nothing after their pixels, are not decoded for this.
    """
    with PIL.Image.open(io.BytesIO(data)) as image:
        is_complete = image.format in ("JPEG", "MPO") or (
            image.format == "PNG" and "transparency" not in image.info and _ends_with_pixels(data)
        )
        return dict(image.info if is_complete else image.convert("RGB").info)


def _ends_with_pixels(data: bytes) -> bool:
    """Return True if only the end chunk follows the last chunk of pixels of a PNG."""
    name = data.rfind(b"IDAT")
    length = int.from_bytes(data[name - 4 : name])
    return name + 8 + length == len(data) - _END_BYTES
