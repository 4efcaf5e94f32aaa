"""PIL's face of deferred images: decoded on first use, and only in the region that is needed."""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import PIL.Image
import torch
from PIL.JpegImagePlugin import JpegImageFile

from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, Size, with_last_axis
from fastload.images.decode import require_end
from fastload.images.deferred import Change, DeferredImage, PixelSource
from fastload.images.header import parsed_header
from fastload.images.region import Box, decode_region, find_turbojpeg
from fastload.images.resize import Resampling
from fastload.system.patching import patched

# Filters of PIL that kernels of torch reproduce, and the greatest difference in levels, which is that of
# `steps.Closeness`: bicubic weights overshoot at edges, and PIL clips the result of each direction.
_RESAMPLINGS = {
    PIL.Image.Resampling.BILINEAR: (Resampling("bilinear"), 2),
    PIL.Image.Resampling.BICUBIC: (Resampling("bicubic"), 16),
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
        is_tensor: True if it stands for a tensor, whose pixels other code would change.
        erasures: Boxes of the finished image, each with the value to fill in.
    """

    def __init__(self, deferred: DeferredImage, info: Info = dict, most_levels: float = math.inf) -> None:
        # PIL's own attributes are not used, because their names differ between its releases.
        self.deferred = deferred
        self._info = info
        self._most_levels = most_levels
        self.is_tensor = False
        self._rendered: Pixels | None = None
        self.erasures: list[tuple[Box, torch.Tensor]] = []

    @classmethod
    def of(cls, image: PIL.Image.Image, most_levels: float = math.inf) -> LazyImage:
        """Return a PIL image of mode RGB or L as a lazy one."""
        if isinstance(image, LazyImage):
            return image
        pixels = DeferredImage.of_pixels(with_last_axis(np.asarray(image)))
        return cls(pixels, image.info.copy, most_levels)

    def _with(self, deferred: DeferredImage) -> LazyImage:
        image = LazyImage(deferred, self._info, self._most_levels)
        image.is_tensor = self.is_tensor
        return image

    def as_tensor(self) -> LazyImage:
        """Return the same image, as a tensor that it was converted to: others change its pixels there."""
        image = self._with(self.deferred)
        image._most_levels, image.is_tensor = math.inf, True
        return image

    def kept(self, is_sure: bool = True) -> LazyImage:
        """Return the same image for code that may use it several times; if `is_sure`, it certainly does."""
        regions = _Kept(self.deferred, is_sure)
        height, width, channels = self.shape
        source = PixelSource(regions, 0, (height, width), channels, self.deferred.dtype)
        return self._with(DeferredImage.of(source))

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
        return self._with(self.deferred.cropped(Box(top, left, bottom - top, right - left)))

    def resize(
        self,
        size: Sequence[int],
        resample: int | None = None,
        box: object = None,
        reducing_gap: float | None = None,
    ) -> PIL.Image.Image:
        name = PIL.Image.Resampling(PIL.Image.Resampling.BICUBIC if resample is None else resample)
        resampling, levels = _RESAMPLINGS.get(name, (None, 0))
        width, height = size
        if (
            resampling is None
            or levels > self._most_levels
            or box is not None
            or reducing_gap is not None
            or min(width, height) < 1
        ):
            return super().resize(size, resample, box, reducing_gap)
        return self._with(self.deferred.resized((height, width), resampling))

    def transpose(self, method: object) -> PIL.Image.Image:
        if method == PIL.Image.Transpose.FLIP_LEFT_RIGHT:
            return self._with(self.deferred.flipped(mirrored=True))
        if method == PIL.Image.Transpose.FLIP_TOP_BOTTOM:
            return self._with(self.deferred.flipped(upside_down=True))
        return super().transpose(method)

    def convert(self, mode: str | None = None, *args: object, **options: object) -> PIL.Image.Image:
        if mode == self.mode and not args and not options:
            return self.copy()
        return super().convert(mode, *args, **options)

    def copy(self) -> PIL.Image.Image:
        return self._with(self.deferred)

    def changed(self, change: Change, channels: int, keeps_info: bool = True) -> LazyImage:
        """Return the image with a change recorded, whose result has `channels`."""
        image = self._with(self.deferred.changed(change, channels))
        return image if keeps_info else image.without_info()

    def without_info(self) -> LazyImage:
        """Return the image with an empty `info`, for which no file is read."""
        image = LazyImage(self.deferred, dict, self._most_levels)
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


class _Kept:
    """The regions of one image that may be asked for several times, and is then decoded as a whole.

    Attributes:
        is_usual: True if an image of this process has been: then the others probably are, too.
    """

    is_usual = False

    def __init__(self, image: DeferredImage, is_sure: bool) -> None:
        self._image = image
        self._pixels: Pixels | None = None
        # Without TurboJPEG, all of an image is decoded for its first region.
        self._keeps = is_sure or _Kept.is_usual or find_turbojpeg() is None
        self._was_asked = False

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        is_part = (box.height, box.width) != self._image.size
        if self._pixels is None and is_part and not (self._keeps or self._was_asked):
            self._was_asked = True
            return self._image.cropped(box).pixels()
        _Kept.is_usual |= self._was_asked
        if self._pixels is None:
            self._pixels = self._image.pixels()
        return box.of(self._pixels)


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
    return LazyImage(image, functools.partial(info_of, data), most_levels).kept(is_sure=False)


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
                    return late
        return PIL.Image.Image.convert(self, mode, *args, **options)

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
