"""PIL images that are decoded on first use, and only in the region that is needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image

from fastload.datasets.batch import Regions, render_view
from fastload.images.arrays import Pixels
from fastload.images.region import Box
from fastload.images.resize import Resampling
from fastload.transforms.geometry import View

# Filters of PIL that kernels of torch reproduce: bilinear within a level, bicubic except for overshoot.
_RESAMPLINGS = {
    PIL.Image.Resampling.BILINEAR: Resampling("bilinear"),
    PIL.Image.Resampling.BICUBIC: Resampling("bicubic"),
}

_MODES = {1: "L", 3: "RGB"}

_UNFLIPPED = (False, False)


class LazyImage(PIL.Image.Image):  # type: ignore[misc]
    """An 8-bit image, RGB or grey, that records crops, resizes and flips, and applies them while decoding.

    At the first operation of another kind, it becomes a plain PIL image.

    Attributes:
        erasures: Boxes of the finished image, each with the value to fill in.
    """

    def __init__(self, source: Regions, position: int, size: Sequence[int], channels: int = 3) -> None:
        # PIL's own attributes are not used, because their names differ between its releases.
        self._source = source
        self._position = position
        self._view = _view_of(Box(0, 0, size[0], size[1]), _UNFLIPPED)
        self._resampling: Resampling | None = None
        self._channels = channels
        self._adjustments: tuple[Callable[[Pixels], Pixels], ...] = ()
        self._keeps_info = True
        self._rendered: Pixels | None = None
        self.erasures: list[tuple[Box, Any]] = []

    @classmethod
    def of(cls, pixels: Pixels, info: Callable[[], dict[Any, Any]] = dict) -> LazyImage:
        """Return pixels (height, width, channels) as an image, with the result of `info` as its `info`."""
        return cls(_Array(pixels, info), 0, pixels.shape[:2], pixels.shape[2])

    @classmethod
    def from_pil(cls, image: PIL.Image.Image) -> LazyImage:
        """Return a PIL image of mode RGB or L as a lazy one."""
        if isinstance(image, LazyImage):
            return image
        pixels = np.asarray(image)
        return cls.of(pixels[:, :, None] if pixels.ndim == 2 else pixels, image.info.copy)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._view.window.height, self._view.window.width, self._channels

    @property
    def size(self) -> tuple[int, int]:
        return self._view.window.width, self._view.window.height

    @property
    def mode(self) -> str:
        return _MODES[self._channels]

    @property
    def im(self) -> Any:
        self._become_plain()
        return self.im

    @property
    def __array_interface__(self) -> dict[str, Any]:
        pixels = self.pixels()
        interface = dict(pixels.__array_interface__)
        interface["data"] = (interface["data"][0], True)  # read-only, like PIL's
        if self._channels == 1:
            interface["shape"] = pixels.shape[:2]
            interface["strides"] = None
        return interface

    def crop(self, box: Any = None) -> PIL.Image.Image:
        height, width, _ = self.shape
        left, top, right, bottom = map(round, box or (0, 0, width, height))
        if self._adjustments or not (0 <= left < right <= width and 0 <= top < bottom <= height):
            return super().crop(box)
        view = self._view
        # A box of a mirrored image is the mirrored box of the original.
        if view.flips[0]:
            top, bottom = height - bottom, height - top
        if view.flips[1]:
            left, right = width - right, width - left
        place = Box(view.window.top + top, view.window.left + left, bottom - top, right - left)
        if self._resampling is not None:
            return self._with(_view=view._replace(window=place))
        inner = Box(view.box.top + place.top, view.box.left + place.left, place.height, place.width)
        return self._with(_view=_view_of(inner, view.flips))

    def resize(
        self, size: Any, resample: int | None = None, box: Any = None, reducing_gap: float | None = None
    ) -> PIL.Image.Image:
        name = PIL.Image.Resampling(PIL.Image.Resampling.BICUBIC if resample is None else resample)
        resampling = _RESAMPLINGS.get(name)
        width, height = size
        if resampling is None or box is not None or reducing_gap is not None or min(width, height) < 1:
            return super().resize(size, resample, box, reducing_gap)
        if (width, height) == self.size:
            return self.copy()
        if self._resampling is not None or self._adjustments or any(self._view.flips):
            info = functools.partial(self._source.info, self._position) if self._keeps_info else dict
            return LazyImage.of(self.pixels(), info).resize(size, resample)
        window = Box(0, 0, height, width)
        view = View(self._view.box, (height, width), window, _UNFLIPPED)
        return self._with(_view=view, _resampling=resampling)

    def transpose(self, method: Any) -> PIL.Image.Image:
        rows, columns = self._view.flips
        if method == PIL.Image.Transpose.FLIP_LEFT_RIGHT and not self._adjustments:
            return self._with(_view=self._view._replace(flips=(rows, not columns)))
        if method == PIL.Image.Transpose.FLIP_TOP_BOTTOM and not self._adjustments:
            return self._with(_view=self._view._replace(flips=(not rows, columns)))
        return super().transpose(method)

    def convert(self, mode: str | None = None, *args: Any, **options: Any) -> PIL.Image.Image:
        if mode == self.mode and not args and not options:
            return self.copy()
        return super().convert(mode, *args, **options)

    def copy(self) -> PIL.Image.Image:
        return self._with()

    def adjusted(
        self, adjust: Callable[[Pixels], Pixels], channels: int | None = None, keeps_info: bool = True
    ) -> LazyImage:
        """Return the image with `adjust`, a function of its pixels, recorded; its result has `channels`."""
        return self._with(
            _adjustments=(*self._adjustments, adjust),
            _channels=channels or self._channels,
            _keeps_info=self._keeps_info and keeps_info,
        )

    def without_info(self) -> LazyImage:
        """Return the image with an empty `info`, for which no file is read."""
        return self._with(_keeps_info=False, _rendered=self._rendered)

    def load(self) -> Any:
        self._become_plain()
        return self.load()

    def pixels(self) -> Pixels:
        """Return the pixels (height, width, channels), decoded once."""
        if self._rendered is None:
            self._rendered = np.empty(self.shape, np.uint8)
            self.render_into(self._rendered)
        return self._rendered

    def render_into(self, out: Pixels) -> None:
        """Write the pixels to an array (height, width, channels), contiguous."""
        if self._rendered is not None and self._rendered is not out:
            np.copyto(out, self._rendered)
            return
        view = self._view
        region = self._source.region(self._position, view.box, view.size)
        if not self._adjustments:
            render_view(region, view, self._resampling, out)
            return
        pixels = np.empty((view.window.height, view.window.width, region.shape[2]), np.uint8)
        render_view(region, view, self._resampling, pixels)
        for adjust in self._adjustments:
            pixels = adjust(pixels)
        np.copyto(out, pixels)

    def _with(self, **changes: Any) -> LazyImage:
        """Return a copy of the image with changed attributes, not decoded yet."""
        image = object.__new__(LazyImage)
        image.__dict__.update({**self.__dict__, "_rendered": None, "erasures": [], **changes})
        return image

    def _become_plain(self) -> None:
        pixels = self.pixels()
        plain = PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        if self._keeps_info:
            plain.info = dict(self._source.info(self._position))
        self.__dict__.clear()
        self.__dict__.update(plain.__dict__, _pixels=pixels)
        self.__class__ = PIL.Image.Image

    def __eq__(self, other: object) -> bool:
        self._become_plain()
        return self == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._become_plain()
        return self.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        # For PIL's own attributes, such as `info` and `palette`.
        if name.startswith("__"):
            raise AttributeError(name)
        self._become_plain()
        return getattr(self, name)


class _Array(Regions):
    """One image in memory."""

    def __init__(self, pixels: Pixels, info: Callable[[], dict[Any, Any]]) -> None:
        self._pixels = pixels
        self._info = info

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        return box.of(self._pixels)

    def info(self, position: int) -> dict[Any, Any]:
        return self._info()


def _view_of(box: Box, flips: tuple[bool, bool]) -> View:
    """Return the view of a region that is not resized."""
    return View(box, (box.height, box.width), Box(0, 0, box.height, box.width), flips)
