"""PIL's face of deferred images: decoded on first use, and only in the region that is needed."""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
import PIL.Image
import torch

from fastload.contracts import Box
from fastload.images.arrays import Pixels, Size, with_last_axis
from fastload.images.deferred import Change, DeferredImage, PixelSource
from fastload.images.region import find_turbojpeg
from fastload.images.resize import Resampling

# Filters of PIL that kernels of torch reproduce, and the greatest difference in levels, which is that of
# `steps.Closeness`: bicubic weights overshoot at edges, and PIL clips the result of each direction.
_RESAMPLINGS = {
    PIL.Image.Resampling.BILINEAR: (Resampling("bilinear"), 2),
    PIL.Image.Resampling.BICUBIC: (Resampling("bicubic"), 16),
}

_MODES = {1: "L", 3: "RGB"}

_alive: list[weakref.ref[LazyImage]] | None = None  # lazy images made in a block of `plain_afterwards`

Info = Callable[[], dict[object, object]]
"""Returns PIL's `info` of an image, perhaps from its file."""


class LazyImage(PIL.Image.Image):  # type: ignore[misc]
    """An 8-bit image, RGB or grey, that records crops, resizes and flips, and applies them while decoding.

    At the first operation of another kind, it becomes a plain PIL image.

    Attributes:
        deferred: The image as it is recorded.
        open: Opens its file with PIL, if all of it is one that has not been decoded; it may return None then.
        is_tensor: True if it stands for a tensor, whose pixels other code would change.
        erasures: Boxes of the finished image, each with the value to fill in.
    """

    def __init__(self, deferred: DeferredImage, info: Info = dict, most_levels: float = math.inf) -> None:
        # PIL's own attributes are not used, because their names differ between its releases.
        self.deferred = deferred
        self._info = info
        self._most_levels = most_levels
        self.open: Callable[[], PIL.Image.Image | None] | None = None
        self.is_tensor = False
        self._rendered: Pixels | None = None
        self.erasures: list[tuple[Box, torch.Tensor]] = []
        if _alive is not None:
            _alive.append(weakref.ref(self))

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

    def kept(self, is_sure: bool = True, load: Callable[[], PIL.Image.Image] | None = None) -> LazyImage:
        """Return the same image for code that may use it several times; if `is_sure`, it certainly does.

        `load` opens its file with PIL.
        """
        regions = _Kept(self.deferred, is_sure)
        height, width, channels = self.shape
        source = PixelSource(regions, 0, (height, width), channels, self.deferred.dtype)
        image = self._with(DeferredImage.of(source))
        if load is not None:
            image.open = functools.partial(regions.opened, load)
        return image

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

    @im.setter
    def im(self, value: object) -> None:
        self._become_plain()
        self.im = value

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
        opened = self.open() if self.open is not None and self._rendered is None else None
        if opened is not None:
            plain = PIL.Image.Image.convert(opened, "RGB")  # not of the file, which may be decoded late
        else:
            pixels = self._pixels()
            plain = PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
            plain.info = dict(self._info())
            plain._pixels = pixels  # arrays may refer to them
        theirs = {name: value for name, value in self.__dict__.items() if name not in _ATTRIBUTES}
        self.__dict__.clear()
        self.__dict__.update(plain.__dict__, **theirs)
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


_ATTRIBUTES = frozenset(vars(LazyImage(DeferredImage.of_pixels(np.zeros((1, 1, 3), np.uint8)))))


@contextlib.contextmanager
def plain_afterwards() -> Iterator[None]:
    """Let lazy images that outlive the block become plain: code may have kept them, or handed them out."""
    global _alive
    if _alive is not None:
        yield
        return
    made: list[weakref.ref[LazyImage]] = []
    _alive = made
    try:
        yield
    finally:
        _alive = None
    for reference in made:
        image = reference()
        if type(image) is LazyImage:
            image.load()


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

    def opened(self, load: Callable[[], PIL.Image.Image]) -> PIL.Image.Image | None:
        """Return the result of `load`; None if all of the image has been decoded."""
        _Kept.is_usual |= self._was_asked
        return load() if self._pixels is None else None

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        is_part = (box.height, box.width) != self._image.size
        if self._pixels is None and is_part and not (self._keeps or self._was_asked):
            self._was_asked = True
            return self._image.cropped(box).pixels()
        _Kept.is_usual |= self._was_asked
        if self._pixels is None:
            self._pixels = self._image.pixels()
        return box.of(self._pixels)
