"""A batch of pixels: pictures decoded as far as they are needed, transformed, written where the batch lies.

    pictures ──region──▶ pixels ──resize, flip──▶ the batch's memory            (photos: one by one)
    pictures ──gathered──▶ windows ──flip──▶ the batch's memory                 (tiny ones: all at once)

Both ways give, to the bit, what `Pipeline.run` gives picture by picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from fastload.images.region import Box
from fastload.images.resize import resize, resize_into
from fastload.recycling import recycled
from fastload.transforms.draws import Draws
from fastload.transforms.flipping import flip_batch
from fastload.transforms.geometry import Geometry, Sizes, View
from fastload.transforms.pipeline import Drawn, Pipeline
from fastload.transforms.windows import windows_into

Pixels = NDArray[np.uint8]

_CHANNELS = 3


class Pictures(Protocol):
    """The stored pictures that a batch is made of."""

    @property
    def sizes(self) -> Sizes:
        """Heights and widths, in pixels: (pictures, 2)."""

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        """A part of one picture, of which a resize to `size` is wanted.

        Returns:
            RGB, (box.height, box.width, 3), or reduced towards the size; possibly a view, and read-only.
        """

    def gathered(self) -> Pixels | None:
        """All, where that needs no decoding and they have one size: (pictures, height, width, 3), a copy."""


class Memory(Protocol):
    """Where a batch's tensors are made."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised, contiguous tensor on the CPU."""


def fill(
    pictures: Pictures,
    pipeline: Pipeline,
    draws: Draws,
    out: Memory,
    memory_format: torch.memory_format,
    leaves_tail: bool = False,
) -> torch.Tensor | None:
    """Makes a batch of images.

    Args:
        pictures: What they are made of.
        pipeline: What is done to them; not foreign.
        draws: The numbers of each.
        out: Where the batch is to lie.
        memory_format: `torch.channels_last` or `torch.contiguous_format`.
        leaves_tail: Whether the pipeline's tail is left to be done elsewhere, if it is given uint8.

    Returns:
        (pictures, channels, height, width); None where the images would not have one size.

    Raises:
        DecodeError: A picture cannot be decoded.
    """
    drawn = pipeline.draw(draws, pictures.sizes)
    if drawn.size is None:
        return None
    tail = None if leaves_tail and pipeline.dtype == torch.uint8 else pipeline.tail
    shape = (len(draws), *drawn.size, drawn.channels)
    is_last = memory_format == torch.channels_last
    dtype = pipeline.dtype if tail is None else tail.dtype
    batch = out.empty(shape if is_last else (shape[0], drawn.channels, *drawn.size), dtype)
    batch = batch.permute(0, 3, 1, 2) if is_last else batch
    lies_ready = is_last and dtype == pipeline.dtype == torch.uint8
    pixels = batch.permute(0, 2, 3, 1).numpy() if lies_ready else None
    made = _fill_pixels(pictures, pipeline, drawn, shape, pixels)
    if tail is not None:
        tail.into(made, batch)
    elif made is not pixels:
        batch.copy_(torch.from_numpy(made).permute(0, 3, 1, 2))
    return batch


def render(pictures: Pictures, pipeline: Pipeline, drawn: Drawn, view: View, position: int) -> torch.Tensor:
    """Makes one image of a batch: what `fill` makes of it, by itself.

    Returns:
        (channels, height, width), in channels-last memory.
    """
    out = np.empty((*_view_size(view), _CHANNELS), np.uint8)
    _render(pictures.region(position, view.box, view.size), view, drawn.geometry, out)
    image = drawn.applied(out, position)
    if pipeline.tail is not None:
        return pipeline.tail.of_image(image)
    return torch.from_numpy(np.require(image, requirements=("C", "W"))).permute(2, 0, 1)


def _fill_pixels(
    pictures: Pictures, pipeline: Pipeline, drawn: Drawn, shape: tuple[int, ...], out: Pixels | None
) -> Pixels:
    """The images before the tail: in `out` where it is given and that takes no further copy."""
    size = drawn.geometry.uniform_size
    if size is not None and pipeline.works_on_batches(size, _CHANNELS):
        gathered = pictures.gathered() if drawn.geometry.is_only_crop else None
        if gathered is None:
            gathered = _rendered(pictures, drawn.geometry, size, None if drawn.body else out)
        else:
            gathered = _cropped(gathered, drawn.geometry, size, None if drawn.body else out)
        return _with_body(gathered, drawn, out)
    if not drawn.body:
        assert size is not None
        return _rendered(pictures, drawn.geometry, size, out)
    images = out
    for position, view in enumerate(drawn.geometry.views()):
        rendered = recycled((*_view_size(view), _CHANNELS))
        _render(pictures.region(position, view.box, view.size), view, drawn.geometry, rendered)
        image = drawn.applied(rendered, position)
        if images is None:
            images = recycled(shape, image.dtype)
        images[position] = image
    assert images is not None
    return images


def _cropped(images: Pixels, geometry: Geometry, size: tuple[int, int], out: Pixels | None) -> Pixels:
    if size != images.shape[1:3]:
        shape = len(images), *size, images.shape[3]
        cropped = recycled(shape, images.dtype) if out is None else out
        windows_into(images, geometry.boxes[:, :2], cropped)
        images = cropped
    for axis in (0, 1):
        flip_batch(images, geometry.flipped()[:, axis], axis)
    return images


def _with_body(images: Pixels, drawn: Drawn, out: Pixels | None) -> Pixels:
    """Applies the body to a whole batch; its last step that makes new images makes them in `out`."""
    makes_new = [place for place, (step, _) in enumerate(drawn.body) if not step.works_in_place]
    for place, (step, parameters) in enumerate(drawn.body):
        step.require_dtype(images.dtype)
        if out is not None and makes_new and place == makes_new[-1]:
            step.apply_batch_into(images, parameters, out)
            images = out
        else:
            images = step.apply_batch(images, parameters)
    return images


def _rendered(pictures: Pictures, geometry: Geometry, size: tuple[int, int], out: Pixels | None) -> Pixels:
    images = recycled((len(geometry.boxes), *size, _CHANNELS)) if out is None else out
    for position, view in enumerate(geometry.views()):
        _render(pictures.region(position, view.box, view.size), view, geometry, images[position])
    return images


def _render(pixels: Pixels, view: View, geometry: Geometry, out: Pixels) -> None:
    """Resizes a region, takes the window out of it, and flips that."""
    is_resized = view.size != pixels.shape[:2]
    if is_resized and geometry.resampling is not None:
        if view.size == out.shape[:2]:
            resize_into(pixels, out, geometry.resampling)
            pixels = out
        else:
            pixels = resize(pixels, *view.size, geometry.resampling)
    top, left, height, width = view.window
    if pixels is not out:
        pixels = pixels[top : top + height, left : left + width]
    if any(view.flips):
        # OpenCV's code: 0 for upside down, 1 for left and right, -1 for both.
        code = -1 if all(view.flips) else int(view.flips[1])
        cv2.flip(pixels, code, dst=out)
    elif pixels is not out:
        np.copyto(out, pixels)


def _view_size(view: View) -> tuple[int, int]:
    return view.window.height, view.window.width
