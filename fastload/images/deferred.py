"""Images whose changes are recorded, and carried out when their pixels are needed, into memory that is given.

    sources ──placed, warped──▶ canvas ──crop, resize, window──▶ pixels ──changes──▶ flips ──▶ memory

Only the regions of the sources that are seen are read, and each step is done once. A step that cannot be
recorded after the others renders them first. Faces of it: a PIL image (`datasets.compiled`), an array as
Ultralytics makes (`ultralytics`), an image with its objects (`transforms.scenes`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastload.contracts import Box, Regions
from fastload.images.arrays import DType, Pixels, Size
from fastload.images.canvas import Canvas, Matrix, render
from fastload.images.opencv import cv2
from fastload.images.resize import Resampling, resize, resize_into
from fastload.system.buffers import reusable_array

Change = Callable[[Pixels], Pixels]
"""Returns an image with other colours, or filtered, perhaps in the memory of the given one, of the same size.

It must do the same to a mirrored image: flips are done last.
"""

_LEVELS = np.dtype(np.uint8)


class View(NamedTuple):
    """Geometry of one image; `flips` is (upside down, left to right).

    source ──box──▶ region ──resize──▶ size ──window──▶ crop ──flips──▶ result
    """

    box: Box
    size: Size
    window: Box
    flips: tuple[bool, bool] = (False, False)

    @property
    def shown(self) -> Size:
        """Height and width of the result."""
        return self.window.height, self.window.width

    @classmethod
    def of(cls, box: Box, flips: tuple[bool, bool] = (False, False)) -> View:
        """Return the view of a region that is not resized."""
        return cls(box, (box.height, box.width), Box(0, 0, box.height, box.width), flips)


class InMemory(NamedTuple):
    """One image in memory; see `Regions`."""

    pixels: Pixels

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        """See `Regions`."""
        return box.of(self.pixels)


class PixelSource(NamedTuple):
    """One image of some `Regions`, at a position."""

    regions: Regions
    position: int
    size: Size
    channels: int = 3
    dtype: DType = _LEVELS
    is_bgr: bool = False

    @classmethod
    def of(cls, pixels: Pixels, is_bgr: bool = False) -> PixelSource:
        """Return pixels (height, width, channels) as a source; they must not change any more."""
        height, width, channels = pixels.shape
        return cls(InMemory(pixels), 0, (height, width), channels, pixels.dtype, is_bgr)


@dataclass(frozen=True, slots=True, eq=False)
class DeferredImage:
    """Image rendered on demand."""

    sources: tuple[PixelSource, ...]  # all of one dtype and number of channels
    canvas: Canvas  # their places, and the matrix of a warp
    view: View  # the part of the canvas that is shown
    channels: int
    resampling: Resampling | None = None  # of the view; None if it is not resized
    changes: tuple[Change, ...] = ()

    @classmethod
    def of(cls, source: PixelSource) -> DeferredImage:
        """Return the image of a source as it is."""
        return cls((source,), Canvas.of(source.size), _whole(source.size), source.channels)

    @classmethod
    def of_pixels(cls, pixels: Pixels, is_bgr: bool = False) -> DeferredImage:
        """Return pixels (height, width, channels), which must not change any more, as an image."""
        return cls.of(PixelSource.of(pixels, is_bgr))

    @classmethod
    def on(cls, canvas: Canvas, images: Sequence[DeferredImage]) -> DeferredImage:
        """Return images placed on a canvas, which refers to them by number."""
        sources = tuple([image.source() for image in images])
        return cls(sources, canvas, _whole(canvas.output), sources[0].channels)

    @property
    def size(self) -> Size:
        """Height and width."""
        return self.view.shown

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return (*self.size, self.channels)

    @property
    def dtype(self) -> DType:
        """The dtype of its pixels."""
        return self.sources[0].dtype

    @property
    def is_bgr(self) -> bool:
        """True if its channels are BGR."""
        return self.sources[0].is_bgr

    @property
    def is_source(self) -> bool:
        """True if it is one source as it is."""
        return self._is_canvas and self.canvas.is_plain

    def source(self) -> PixelSource:
        """Return the image as a source of another one; it is rendered unless it is one."""
        return self.sources[0] if self.is_source else PixelSource.of(self.pixels(), self.is_bgr)

    def flattened(self) -> DeferredImage:
        """Return the same image as placed sources and nothing else; other steps are rendered."""
        return self if self._is_canvas and self.canvas.matrix is None else DeferredImage.of(self.source())

    def cropped(self, box: Box) -> DeferredImage:
        """Return a box, which lies within the image."""
        if self.changes:
            return self.flattened().cropped(box)
        (height, width), view = self.size, self.view
        # A box of a mirrored image is the mirrored box of the original.
        top = height - box.top - box.height if view.flips[0] else box.top
        left = width - box.left - box.width if view.flips[1] else box.left
        window = Box(view.window.top + top, view.window.left + left, box.height, box.width)
        if self.resampling is not None:
            return replace(self, view=view._replace(window=window))
        inner = Box(view.box.top + window.top, view.box.left + window.left, box.height, box.width)
        return replace(self, view=View.of(inner, view.flips))

    def resized(self, size: Size, resampling: Resampling) -> DeferredImage:
        """Return the image with other sides."""
        if size == self.size:
            return self
        if self.resampling is not None or self.changes or any(self.view.flips):
            return self.flattened().resized(size, resampling)
        view = View(self.view.box, size, Box(0, 0, *size))
        return replace(self, view=view, resampling=resampling)

    def flipped(self, upside_down: bool = False, mirrored: bool = False) -> DeferredImage:
        """Return the image upside down, mirrored, or both."""
        flips = self.view.flips[0] ^ upside_down, self.view.flips[1] ^ mirrored
        return replace(self, view=self.view._replace(flips=flips))

    def changed(self, change: Change, channels: int | None = None) -> DeferredImage:
        """Return the image with changed pixels, which have `channels` if their number changes."""
        return replace(self, changes=(*self.changes, change), channels=channels or self.channels)

    def warped(self, matrix: Matrix, output: Size, is_exact: bool = False) -> DeferredImage:
        """Return the image moved by a matrix, (3, 3), to the size `output`; `is_exact` as for a `Canvas`."""
        flat = self.flattened()
        canvas = replace(flat.canvas, matrix=matrix, output=output, is_exact=is_exact)
        return replace(flat, canvas=canvas, view=_whole(output))

    def pixels(self) -> Pixels:
        """Return the pixels, (height, width, channels), perhaps a read-only view of a source."""
        if self.changes:
            pixels = self._changed()
            _flip_into(pixels, self.view.flips, pixels)
            return pixels
        if self.resampling is None and not any(self.view.flips):
            return self._region()
        out = reusable_array(self.shape, self.dtype)
        self.render_into(out)
        return out

    def render_into(self, out: Pixels) -> None:
        """Write the pixels to an array (height, width, channels), contiguous."""
        if self.changes:
            _flip_into(self._changed(), self.view.flips, out)
        else:
            render_view(self._region(), self.view, self.resampling, out)

    def _changed(self) -> Pixels:
        """Return the pixels with all changes, in memory of their own, but not flipped."""
        pixels = self._region()
        if self.canvas.is_plain or self.resampling is not None:
            region, pixels = pixels, reusable_array((*self.size, pixels.shape[2]), self.dtype)
            render_view(region, self.view._replace(flips=(False, False)), self.resampling, pixels)
        return functools.reduce(lambda changed, change: change(changed), self.changes, pixels)

    @property
    def _is_canvas(self) -> bool:
        """True if the canvas is shown as it is."""
        return not self.changes and self.view == _whole(self.canvas.output)

    def _region(self) -> Pixels:
        box, size = self.view.box, self.view.size
        if self.canvas.is_plain:
            return self._part(0, box, size)
        first = self.sources[0]
        return box.of(render(self.canvas, self._part, first.channels, first.dtype))

    def _part(self, number: int, box: Box, size: Size) -> Pixels:
        source = self.sources[number]
        pixels = source.regions.region(source.position, box, size)
        # Reversed, by OpenCV.
        return pixels if source.is_bgr == self.is_bgr else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)


def render_view(pixels: Pixels, view: View, resampling: Resampling | None, out: Pixels) -> None:
    """Resize a region, crop the window, and flip it."""
    is_resized = view.size != pixels.shape[:2]
    if is_resized and resampling is not None:
        if view.size == out.shape[:2]:
            resize_into(pixels, out, resampling)
            pixels = out
        else:
            pixels = resize(pixels, *view.size, resampling)
    _flip_into(pixels if pixels is out else view.window.of(pixels), view.flips, out)


def _flip_into(pixels: Pixels, flips: tuple[bool, bool], out: Pixels) -> None:
    if any(flips):
        # OpenCV's code of a flip: 0 is vertical, 1 is horizontal, -1 is both.
        cv2.flip(pixels, -1 if all(flips) else int(flips[1]), dst=out)
    elif pixels is not out:
        np.copyto(out, pixels)


@functools.lru_cache(1024)
def _whole(size: Size) -> View:
    return View.of(Box(0, 0, *size))
