"""Metadata of image files, such as EXIF, resolution and colour profile, as PIL keeps them."""

from __future__ import annotations

import io
from typing import Any

import PIL.Image

_END_BYTES = 12  # of a PNG's last chunk, which is empty


def info_of(data: bytes) -> dict[Any, Any]:
    """Return the `info` that a file's image has once PIL has converted it to RGB.

    JPEG files, and PNG files with nothing behind their pixels, are not decoded for it.
    """
    with PIL.Image.open(io.BytesIO(data)) as image:
        is_complete = image.format in ("JPEG", "MPO") or (
            image.format == "PNG" and "transparency" not in image.info and _ends_with_pixels(data)
        )
        return dict(image.info if is_complete else image.convert("RGB").info)


def _ends_with_pixels(data: bytes) -> bool:
    """Return True if a PNG's last chunk of pixels is followed by its end."""
    name = data.rfind(b"IDAT")
    length = int.from_bytes(data[name - 4 : name])
    return name + 8 + length == len(data) - _END_BYTES
