"""Pictures: images that are drawn as a whole, after all steps of a transform are known.

Ultralytics pastes a mosaic, warps it, changes its colours and flips it, each into a new array. A picture
stands in for the array: it has its shape, keeps what is to be done, and makes only the pixels that are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array
from fastload.transforms.hsv import BAND_PIXELS, HsvChange

Pixels = NDArray[np.uint8]

# Ultralytics' grey around images, and around what a warp shows of them.
GREY = 114


class Node(Protocol):
    """Origin of a picture's pixels, in the order of colours that they are stored in."""

    @property
    def is_rgb(self) -> bool:
        """Order of the channels: RGB, otherwise BGR."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""

    def region(self, left: int, top: int, width: int, height: int) -> Pixels:
        """Return the pixels of a box within the image; they may be a read-only view."""


@dataclass(frozen=True, slots=True)
class Image:
    """Decoded pixels."""

    pixels: Pixels
    is_rgb: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """See `Node`."""
        height, width, channels = self.pixels.shape
        return height, width, channels

    def region(self, left: int, top: int, width: int, height: int) -> Pixels:
        """See `Node`."""
        return self.pixels[top : top + height, left : left + width]


@dataclass(frozen=True, slots=True)
class Piece:
    """An image at (left, top) of a canvas, of which the canvas shows the box (x1, y1, x2, y2)."""

    node: Node
    left: int
    top: int
    box: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Canvas:
    """Images beside each other, and one colour where there is none."""

    shape: tuple[int, int, int]
    pieces: Sequence[Piece]
    fill: int = GREY

    @property
    def is_rgb(self) -> bool:
        """See `Node`."""
        return self.pieces[0].node.is_rgb

    def region(self, left: int, top: int, width: int, height: int) -> Pixels:
        """See `Node`; beside the canvas all is grey."""
        out: Pixels = reusable_array((height, width, self.shape[2]))
        out[...] = self.fill
        for node, (x1, y1, x2, y2), source in self._seen(left, top, width, height):
            pixels = node.region(*source, x2 - x1, y2 - y1)
            if node.is_rgb != self.is_rgb:
                pixels = pixels[..., ::-1]
            out[y1 - top : y2 - top, x1 - left : x2 - left] = pixels
        return out

    def write(self, planes: Sequence[Pixels]) -> None:
        """Write the whole canvas into one array per channel."""
        height, width, _ = self.shape
        for plane in planes:
            plane[...] = self.fill
        for node, (x1, y1, x2, y2), source in self._seen(0, 0, width, height):
            pixels = node.region(*source, x2 - x1, y2 - y1)
            order = planes if node.is_rgb == self.is_rgb else planes[::-1]
            cv2.split(pixels, [plane[y1:y2, x1:x2] for plane in order])

    def _seen(self, left: int, top: int, width: int, height: int) -> Any:
        for piece in self.pieces:
            x1, y1 = max(piece.box[0], left), max(piece.box[1], top)
            x2, y2 = min(piece.box[2], left + width), min(piece.box[3], top + height)
            if x1 < x2 and y1 < y2:
                yield piece.node, (x1, y1, x2, y2), (x1 - piece.left, y1 - piece.top)


def placed(node: Node, left: int, top: int, size: tuple[int, int], fill: int = GREY) -> Canvas:
    """Return a canvas of `size` (width, height) that shows an image at (left, top)."""
    height, width, channels = node.shape
    box = max(left, 0), max(top, 0), min(left + width, size[0]), min(top + height, size[1])
    return Canvas((size[1], size[0], channels), [Piece(node, left, top, box)], fill)


class Picture:
    """An image to be made, in place of an array of shape (height, width, 3), BGR, uint8.

    Attributes:
        node: The pixels before colours are changed and the image is flipped.
        change: What is done to the colours; None leaves them.
        flip: OpenCV's code of a flip; None does not flip.
    """

    __slots__ = ("change", "flip", "node")
    ndim = 3
    dtype = np.dtype(np.uint8)

    def __init__(self, node: Node, change: HsvChange | None = None, flip: int | None = None) -> None:
        self.node = node
        self.change = change
        self.flip = flip

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.node.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.pixels() if dtype is None else self.pixels().astype(dtype)

    def settled(self) -> Node:
        """Return a node with all changes made so far."""
        if self.change is None and self.flip is None:
            return self.node
        height, width, _ = self.shape
        return Image(self._changed(self.node.region(0, 0, width, height)), self.node.is_rgb)

    def coloured(self, change: HsvChange) -> Picture:
        """Return the picture with other hues, saturations and values."""
        return Picture(self.settled(), change)

    def flipped(self, is_vertical: bool) -> Picture:
        """Return the picture upside down, or mirrored."""
        code = 0 if is_vertical else 1
        if self.flip is None:
            return Picture(self.node, self.change, code)
        return Picture(self.settled(), None, code)

    def pixels(self) -> Pixels:
        """Return the pixels in an array of their own, BGR."""
        node = self.settled()
        height, width, _ = node.shape
        pixels = node.region(0, 0, width, height)
        if node.is_rgb:
            return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
        return pixels.copy() if pixels.base is not None or not pixels.flags.writeable else pixels

    def write(self, out: Pixels, is_rgb: bool) -> None:
        """Write the pixels into an array (3, height, width), in RGB or BGR."""
        planes = [out[0], out[1], out[2]]
        if self.node.is_rgb != is_rgb:
            planes.reverse()
        if self.change is None and self.flip is None and isinstance(self.node, Canvas):
            self.node.write(planes)
            return
        height, width, channels = self.shape
        pixels = self.node.region(0, 0, width, height)
        rows = max(1, BAND_PIXELS // width)
        memory = reusable_array((rows, width, channels))
        for top in range(0, height, rows):
            band = self._changed(pixels[top : top + rows], memory)
            # An image that is turned upside down is written from its end.
            start = height - top - len(band) if self.flip == 0 else top
            cv2.split(band, [plane[start : start + len(band)] for plane in planes])

    def tensor(self, is_rgb: bool) -> torch.Tensor:
        """Return the pixels as a tensor (3, height, width)."""
        height, width, channels = self.shape
        out = torch.empty((channels, height, width), dtype=torch.uint8)
        self.write(out.numpy(), is_rgb)
        return out

    def _changed(self, pixels: Pixels, out: Pixels | None = None) -> Pixels:
        """Return some of the rows changed, in `out` if there is anything to change."""
        if self.change is None and self.flip is None:
            return pixels
        out = reusable_array(pixels.shape) if out is None else out[: len(pixels)]
        if self.change is not None:
            self.change.apply(pixels, is_bgr=not self.node.is_rgb, out=out)
            pixels = out
        if self.flip is not None:
            cv2.flip(pixels, self.flip, dst=out)
        return out
