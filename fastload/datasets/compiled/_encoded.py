"""Single encoded images, decoded when their pixels are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastload.datasets.batch import Pixels
from fastload.datasets.compiled._info import info_of
from fastload.datasets.compiled._lazy import LazyImage
from fastload.errors import DecodeError
from fastload.images.header import has_parsed_header, read_header
from fastload.images.region import Box, decode_region

# The place of a PNG file's colour type, and its value for RGB.
_COLOUR_TYPE, _TRUE_COLOUR = 25, 2


def lazily_decoded(data: bytes, load: Callable[[], Any]) -> LazyImage | None:
    """Return the image of a file's bytes; None unless PIL would open it as an upright one of mode RGB.

    Args:
        data: A JPEG or PNG file.
        load: Returns the same as a PIL image: called if OpenCV cannot decode it.
    """
    try:
        header = read_header(data) if has_parsed_header(data) else None
    except DecodeError:
        return None
    if header is None or header.channels != 3 or header.bit_depth != 8 or header.orientation != 1:
        return None
    if header.format == "png" and not _is_true_colour(data):
        return None
    size = header.height, header.width
    return LazyImage.whole(_EncodedImage(data, size, load), 0, size)


def _is_true_colour(data: bytes) -> bool:
    """Return True for a PNG file without a palette, and without a colour that counts as transparent."""
    return data[_COLOUR_TYPE] == _TRUE_COLOUR and b"tRNS" not in data[: data.find(b"IDAT")]


class _EncodedImage:
    """One encoded image; see `Regions`."""

    def __init__(self, data: bytes, size: tuple[int, int], load: Callable[[], Any]) -> None:
        self._data = data
        self._size = size
        self._load = load

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        try:
            return decode_region(self._data, self._size, None, box)
        except DecodeError:
            pixels: Pixels = np.asarray(self._load().convert("RGB"))
        return box.of(pixels)

    def info(self, position: int) -> dict[Any, Any]:
        return info_of(self._data)
