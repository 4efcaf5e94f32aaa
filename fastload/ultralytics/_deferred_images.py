"""Images rendered only when their pixels are needed, once all steps of a transform are known.

Ultralytics pastes a mosaic, warps it, changes its colours and flips it, each into a new array. A deferred
image stands in for the array: it has its shape, records the steps, and renders only the visible pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.images.arrays import Pixels, Size
from fastload.images.opencv import cv2
from fastload.images.region import Box
from fastload.system.buffers import reusable_array
from fastload.transforms.canvas import GREY, Canvas, render
from fastload.transforms.hsv import BAND_PIXELS, HsvChange


class PixelSource(Protocol):
    """Pixels of a part of a deferred image, in the colour order in which they are stored."""

    @property
    def is_rgb(self) -> bool:
        """True if the channels are RGB, False if BGR."""

    @property
    def size(self) -> Size:
        """Height and width."""

    def region(self, box: Box) -> Pixels:
        """Return the pixels of a box within the image; they may be a read-only view."""


@dataclass(frozen=True, slots=True)
class Image:
    """Decoded pixels."""

    pixels: Pixels
    is_rgb: bool = False

    @property
    def size(self) -> Size:
        """See `PixelSource`."""
        return self.pixels.shape[0], self.pixels.shape[1]

    def region(self, box: Box) -> Pixels:
        """See `PixelSource`."""
        return box.of(self.pixels)


@dataclass(frozen=True, slots=True, eq=False)
class DeferredImage:
    """Image rendered on demand, in place of an array of shape (height, width, 3), BGR, uint8.

    Attributes:
        canvas: The placed parts of the image, before colours are changed and the image is flipped.
        sources: The images of these parts.
        change: The change of colours, or None.
        flip: OpenCV's code of a flip, or None.
    """

    ndim: ClassVar[int] = 3
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)

    canvas: Canvas
    sources: Sequence[PixelSource]
    change: HsvChange | None = None
    flip: int | None = None

    @classmethod
    def of(cls, source: PixelSource) -> DeferredImage:
        """Return the deferred image of one unchanged source."""
        return cls(Canvas.of(source.size), (source,))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return (*self.canvas.output, 3)

    @property
    def is_rgb(self) -> bool:
        """True if the image is rendered as RGB, False if as BGR."""
        return self.sources[0].is_rgb

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.pixels() if dtype is None else self.pixels().astype(dtype)

    def source(self) -> PixelSource:
        """Return the image as a part of another one; it is rendered unless it is an unchanged source."""
        if self._is_flat and self.canvas == Canvas.of(self.canvas.output):
            return self.sources[0]
        return Image(self._changed(render(self.canvas, self._region)), self.is_rgb)

    def flattened(self) -> DeferredImage:
        """Return the same image without a matrix, a change of colours or a flip, which are rendered."""
        return self if self._is_flat else DeferredImage.of(self.source())

    def coloured(self, change: HsvChange) -> DeferredImage:
        """Return the image with other hues, saturations and values."""
        base = self if self.change is None and self.flip is None else self.flattened()
        return DeferredImage(base.canvas, base.sources, change)

    def flipped(self, is_vertical: bool) -> DeferredImage:
        """Return the image upside down, or mirrored."""
        code = 0 if is_vertical else 1
        base = self if self.flip is None else self.flattened()
        return DeferredImage(base.canvas, base.sources, base.change, code)

    def pixels(self) -> Pixels:
        """Return the pixels in an array of their own, BGR."""
        pixels = self._changed(render(self.canvas, self._region))
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)) if self.is_rgb else pixels

    def write(self, out: Pixels, is_rgb: bool) -> None:
        """Write the pixels into an array (3, height, width), in RGB or BGR."""
        planes = out if self.is_rgb == is_rgb else out[::-1]
        canvas = self.canvas
        height, width, _ = self.shape
        first, end = canvas.shown_rows
        if end - first < height:
            canvas = canvas.of_rows(first, end)
            first, end = (height - end, height - first) if self.flip == 0 else (first, end)
            grey = self._changed(np.full((1, 1, 3), GREY, np.uint8))
            for plane, level in zip(planes, grey[0, 0], strict=True):
                plane[:first] = plane[end:] = level
        pixels = render(canvas, self._region)
        rows = max(1, BAND_PIXELS // width)
        memory = reusable_array((rows, width, 3))
        for top in range(0, len(pixels), rows):
            band = self._changed(pixels[top : top + rows], memory)
            # An image that is flipped vertically is written from its end.
            start = end - top - len(band) if self.flip == 0 else first + top
            cv2.split(band, list(planes[:, start : start + len(band)]))

    def tensor(self, is_rgb: bool) -> torch.Tensor:
        """Return the pixels as a tensor (3, height, width)."""
        height, width, channels = self.shape
        out = torch.empty((channels, height, width), dtype=torch.uint8)
        self.write(out.numpy(), is_rgb)
        return out

    @property
    def _is_flat(self) -> bool:
        """True if there is no matrix, no change of colours and no flip."""
        return self.canvas.matrix is None and self.change is None and self.flip is None

    def _region(self, number: int, box: Box, size: Size) -> Pixels:
        source = self.sources[number]
        pixels = source.region(box)
        return pixels if source.is_rgb == self.is_rgb else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))

    def _changed(self, pixels: Pixels, out: Pixels | None = None) -> Pixels:
        """Return rows with their colours changed and flipped, in `out` if there is anything to do."""
        if self.change is None and self.flip is None:
            return pixels
        out = reusable_array(pixels.shape) if out is None else out[: len(pixels)]
        if self.change is not None:
            self.change.apply(pixels, is_bgr=not self.is_rgb, out=out)
            pixels = out
        if self.flip is not None:
            cv2.flip(pixels, self.flip, dst=out)
        return out
