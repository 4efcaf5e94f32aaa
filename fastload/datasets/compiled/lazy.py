"""PIL's face of deferred images: decoded on first use, and only in the region that is needed."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import PIL.Image
import torch

from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, Size, with_last_axis
from fastload.images.deferred import Change, DeferredImage, PixelSource
from fastload.images.header import parsed_header
from fastload.images.region import Box, decode_region
from fastload.images.resize import Resampling

# Filters of PIL that kernels of torch reproduce: bilinear within a level, bicubic except for overshoot.
_RESAMPLINGS = {
    PIL.Image.Resampling.BILINEAR: Resampling("bilinear"),
    PIL.Image.Resampling.BICUBIC: Resampling("bicubic"),
}

# The size of the last, empty chunk of a PNG file.
_END_BYTES = 12

_MODES = {1: "L", 3: "RGB"}

Info = Callable[[], dict[object, object]]
"""Returns PIL's `info` of an image, perhaps from its file."""


class LazyImage(PIL.Image.Image):  # type: ignore[misc]
    """An 8-bit image, RGB or grey, that records crops, resizes and flips, and applies them while decoding.

    At the first operation of another kind, it becomes a plain PIL image.

    Attributes:
        deferred: The image as it is recorded.
        erasures: Boxes of the finished image, each with the value to fill in.
    """

    def __init__(self, deferred: DeferredImage, info: Info = dict) -> None:
        # PIL's own attributes are not used, because their names differ between its releases.
        self.deferred = deferred
        self._info = info
        self._rendered: Pixels | None = None
        self.erasures: list[tuple[Box, torch.Tensor]] = []

    @classmethod
    def of(cls, image: PIL.Image.Image) -> LazyImage:
        """Return a PIL image of mode RGB or L as a lazy one."""
        if isinstance(image, LazyImage):
            return image
        return cls(DeferredImage.of_pixels(with_last_axis(np.asarray(image))), image.info.copy)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.deferred.shape

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.deferred.size
        return width, height

    @property
    def mode(self) -> str:
        return _MODES[self.deferred.channels]

    @property
    def im(self) -> object:
        self._become_plain()
        return self.im

    @property
    def __array_interface__(self) -> dict[str, object]:
        pixels = self._pixels()
        interface = dict((pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).__array_interface__)
        interface["data"] = (interface["data"][0], True)  # read-only, like PIL's
        return interface

    def crop(self, box: Sequence[float] | None = None) -> PIL.Image.Image:
        width, height = self.size
        left, top, right, bottom = map(round, box or (0, 0, width, height))
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            return super().crop(box)
        return LazyImage(self.deferred.cropped(Box(top, left, bottom - top, right - left)), self._info)

    def resize(
        self,
        size: Sequence[int],
        resample: int | None = None,
        box: object = None,
        reducing_gap: float | None = None,
    ) -> PIL.Image.Image:
        name = PIL.Image.Resampling(PIL.Image.Resampling.BICUBIC if resample is None else resample)
        resampling = _RESAMPLINGS.get(name)
        width, height = size
        if resampling is None or box is not None or reducing_gap is not None or min(width, height) < 1:
            return super().resize(size, resample, box, reducing_gap)
        return LazyImage(self.deferred.resized((height, width), resampling), self._info)

    def transpose(self, method: object) -> PIL.Image.Image:
        if method == PIL.Image.Transpose.FLIP_LEFT_RIGHT:
            return LazyImage(self.deferred.flipped(mirrored=True), self._info)
        if method == PIL.Image.Transpose.FLIP_TOP_BOTTOM:
            return LazyImage(self.deferred.flipped(upside_down=True), self._info)
        return super().transpose(method)

    def convert(self, mode: str | None = None, *args: object, **options: object) -> PIL.Image.Image:
        if mode == self.mode and not args and not options:
            return self.copy()
        return super().convert(mode, *args, **options)

    def copy(self) -> PIL.Image.Image:
        return LazyImage(self.deferred, self._info)

    def changed(self, change: Change, channels: int, keeps_info: bool = True) -> LazyImage:
        """Return the image with a change recorded, whose result has `channels`."""
        return LazyImage(self.deferred.changed(change, channels), self._info if keeps_info else dict)

    def without_info(self) -> LazyImage:
        """Return the image with an empty `info`, for which no file is read."""
        image = LazyImage(self.deferred)
        image._rendered = self._rendered
        return image

    def load(self) -> object:
        self._become_plain()
        return self.load()

    def render_into(self, out: Pixels) -> None:
        """Write the pixels to an array (height, width, channels), contiguous."""
        if self._rendered is None:
            self.deferred.render_into(out)
        else:
            np.copyto(out, self._rendered)

    def _pixels(self) -> Pixels:
        """Return the pixels (height, width, channels), decoded once."""
        if self._rendered is None:
            rendered = np.empty(self.shape, self.deferred.dtype)
            self.deferred.render_into(rendered)
            self._rendered = rendered
        return self._rendered

    def _become_plain(self) -> None:
        pixels = self._pixels()
        plain = PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        plain.info = dict(self._info())
        self.__dict__.clear()
        self.__dict__.update(plain.__dict__, _pixels=pixels)
        self.__class__ = PIL.Image.Image

    def __eq__(self, other: object) -> bool:
        self._become_plain()
        return self == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        self._become_plain()
        return self.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        # For PIL's own attributes, such as `info` and `palette`.
        if name.startswith("__"):
            raise AttributeError(name)
        self._become_plain()
        return getattr(self, name)


def lazily_decoded(file: bytes | str, load: Callable[[], PIL.Image.Image]) -> PIL.Image.Image:
    """Return an RGB image that is decoded on first use; `load()` if PIL would not open the file as RGB.

    `file` is its content or its path. `load` opens it with PIL, and is also called on first use if OpenCV
    cannot decode it.
    """
    try:
        data = file if isinstance(file, bytes) else Path(file).read_bytes()
        header = parsed_header(data)
        with PIL.Image.open(io.BytesIO(data)) as opened:
            is_plain = opened.mode == "RGB" and "transparency" not in opened.info
    except (DecodeError, OSError):
        return load()
    if header is None or not is_plain or (header.bit_depth, header.orientation) != (8, 1):
        return load()
    size = header.height, header.width
    image = DeferredImage.of(PixelSource(_EncodedImage(data, size, load), 0, size))
    return LazyImage(image, functools.partial(info_of, data))


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


def late_loader(load: Callable[[str], PIL.Image.Image], path: str) -> PIL.Image.Image:
    """Return an image file as torchvision's loader `load` does, but decoded on first use."""
    return lazily_decoded(path, lambda: load(path))
