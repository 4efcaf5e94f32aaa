"""Image files that are decoded when their pixels are asked for, and only the region that is needed."""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image
from PIL.JpegImagePlugin import JpegImageFile

from fastload.contracts import Box
from fastload.datasets.compiled.lazy import LazyImage
from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, Size
from fastload.images.decode import require_end
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.images.header import parsed_header
from fastload.images.region import decode_region
from fastload.system.patching import patched

# The size of the last, empty chunk of a PNG file.
_END_BYTES = 12


def lazily_decoded(
    file: bytes | str, load: Callable[[], PIL.Image.Image], most_levels: float = math.inf
) -> PIL.Image.Image:
    """Return an RGB image that is decoded on first use; `load()` if PIL would not open the file as RGB.

    `file` is its content or its path. `load` opens it with PIL, and is also called on first use if OpenCV
    cannot decode it.
    """
    try:
        data = file if isinstance(file, bytes) else Path(file).read_bytes()
        with PIL.Image.open(io.BytesIO(data)) as opened:
            is_plain = opened.mode == "RGB" and "transparency" not in opened.info
            late = _late_image(opened, data, load, most_levels) if is_plain else None
    except (DecodeError, OSError):
        return load()
    return load() if late is None else late


def _late_image(
    opened: PIL.Image.Image, data: bytes, load: Callable[[], PIL.Image.Image], most_levels: float
) -> LazyImage | None:
    """Return a file's image, decoded on first use; None if its pixels are not those of PIL, or turned."""
    header = parsed_header(data)
    if header is None or (header.bit_depth, header.orientation) != (8, 1):
        return None
    size = header.height, header.width
    if (opened.height, opened.width) != size:
        return None
    image = DeferredImage.of(PixelSource(_EncodedImage(data, size, load), 0, size))
    late = LazyImage(image, functools.partial(info_of, data), most_levels)
    return late.kept(is_sure=False, load=load)


@contextlib.contextmanager
def decoded_late(most_levels: float) -> Iterator[None]:
    """Let `PIL.Image.open(path).convert("RGB")` return JPEG files that are decoded on first use.

    Only files that have an end: PIL raises its error of a truncated file here, where code may expect it.
    """

    def convert(
        self: JpegImageFile, mode: str | None = None, *args: object, **options: object
    ) -> PIL.Image.Image:
        file = self.fp
        is_unread = type(self) is JpegImageFile and bool(self.tile) and file is not None
        if is_unread and mode == self.mode == "RGB" and not (args or options):
            with contextlib.suppress(DecodeError, OSError, ValueError):
                file.seek(0)
                data = file.read()
                require_end(data)
                load = functools.partial(PIL.Image.open, io.BytesIO(data))
                late = _late_image(self, data, load, most_levels)
                if late is not None:
                    # Opened by PIL itself, it would be closed after decoding.
                    if self._exclusive_fp:
                        file.close()
                    self.fp = io.BytesIO(data)
                    self.draft = _no_draft  # of an image that PIL has decoded
                    return late
        return PIL.Image.Image.convert(self, mode, *args, **options)

    def _no_draft(mode: str | None, size: tuple[int, int] | None) -> None: ...

    if "convert" in vars(JpegImageFile):  # by other code that runs around this one
        yield
        return
    with patched((JpegImageFile, "convert", convert)):
        yield


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
