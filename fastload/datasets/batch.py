"""Batches of images: decoded where needed, transformed, and written to the batch's final memory.

    source ──region──▶ pixels ──resize, flip──▶ the batch's memory            (photos: one by one)
    source ──gathered──▶ windows ──flip──▶ the batch's memory                 (thumbnails: all at once)

Both paths give the same pixels as `Pipeline.run` for each image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.contracts import BatchMemory, Box, Gathered
from fastload.images.arrays import DType, Pixels, Size
from fastload.images.deferred import View, render_view
from fastload.images.pixel_types import RGB
from fastload.system.buffers import reusable_array, reusable_tensor
from fastload.transforms.levels.rescaling import Rescale
from fastload.transforms.pipeline import Drawn, Pipeline
from fastload.transforms.shapes.cropping import flip_batch
from fastload.transforms.transform import Geometry, Sizes, common_size
from fastload.transforms.windows import memory_for, taken, windows_into

Positions = NDArray[np.int64]
"""Samples by their positions in the dataset, counted from the first one."""


class BatchSource(ABC):
    """The stored images of a batch; see `Regions`."""

    sizes: Sizes  # heights and widths, in pixels: (images, 2)
    channels = RGB.channels  # of every image
    dtype: DType = RGB.numpy_dtype
    gives_own_regions = False  # True if each region is in memory that nobody else uses

    @abstractmethod
    def region(self, position: int, box: Box, size: Size) -> Pixels:
        """Return a region of one image; see `Regions`."""

    def info(self, position: int) -> dict[object, object]:
        """Return PIL's `info` of one image."""
        return {}

    def orientations(self) -> list[int]:
        """Return the EXIF orientation with which each image is stored, 1 if it has none."""
        return [1] * len(self.sizes)

    def gathered(self) -> Gathered | None:
        """Return all images if that needs no decoding and they have one size."""
        return None


class HostMemory:
    """The process's own memory, reused for later batches; see `BatchMemory`."""

    def __init__(self, finishes_on_device: bool = False) -> None:
        self.finishes_on_device = finishes_on_device

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return reusable_tensor(shape, dtype)


def fill_batch(
    source: BatchSource,
    pipeline: Pipeline,
    drawn: Drawn,
    out: BatchMemory,
    memory_format: torch.memory_format,
) -> torch.Tensor | None:
    """Make a batch of images, (images, channels, height, width), in the memory of `out`.

    `drawn` has the parameters for the images of the source; the pipeline must not be foreign. Returns None if
    the results differ in size.
    """
    if drawn.size is None:
        return None
    # The tail is left to the device only for uint8 batches, which are a quarter of the bytes to copy.
    tail = None if out.finishes_on_device and pipeline.dtype == torch.uint8 else pipeline.tail
    shape = (len(source.sizes), *drawn.size, drawn.channels)

    def make(pixels: Pixels) -> Pixels:
        return _fill_pixels(source, drawn, shape, pixels)

    return finished(make, shape, pipeline.dtype, tail, out, memory_format)


def finished(
    make: Callable[[Pixels], Pixels],
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    tail: Rescale | None,
    out: BatchMemory,
    memory_format: torch.memory_format,
) -> torch.Tensor:
    """Return the images that `make` makes, after the tail, as a batch in the memory of `out`.

    Images before the tail have `shape` (images, height, width, channels) and `dtype`. `make` gets an array of
    these, which it may use for its result.
    """
    count, height, width, channels = shape
    is_last = memory_format == torch.channels_last
    final = dtype if tail is None else tail.dtype
    batch = out.empty(shape if is_last else (count, channels, height, width), final)
    batch = batch.permute(0, 3, 1, 2) if is_last else batch
    is_final = is_last and final == dtype
    pixels: Pixels = (batch.permute(0, 2, 3, 1) if is_final else reusable_tensor(shape, dtype)).numpy()
    made = make(pixels)
    if tail is not None:
        tail.into(made, batch)
    elif not (is_final and made is pixels):
        # A view of the batch's own memory, by a user's transform, cannot be copied over it.
        is_view = is_final and np.may_share_memory(made, pixels)
        batch.copy_(torch.from_numpy(made.copy() if is_view else made).permute(0, 3, 1, 2))
    return batch


def render_sample(
    source: BatchSource, drawn: Drawn, view: View, position: int, tail: Rescale | None
) -> torch.Tensor:
    """Make a single image like `fill_batch`, (channels, height, width), in channels-last memory."""
    pixels = source.region(position, view.box, view.size)
    is_finished = pixels.shape[:2] == view.size == view.shown and not any(view.flips)
    if not (is_finished and source.gives_own_regions):
        region, pixels = pixels, np.empty((*view.shown, source.channels), source.dtype)
        render_view(region, view, drawn.geometry.resampling, pixels)
    image = drawn.applied(pixels, position)
    if tail is not None:
        return tail.of_image(image)
    return torch.from_numpy(np.require(image, requirements=("C", "W"))).permute(2, 0, 1)


def _fill_pixels(source: BatchSource, drawn: Drawn, shape: tuple[int, ...], out: Pixels) -> Pixels:
    """Return the images before the tail, in `out` if no further copy is needed."""
    size = common_size(drawn.geometry.sizes)
    if size is not None and (drawn.works_on_batches or not drawn.body):
        may_gather = drawn.works_on_batches and drawn.geometry.resampling is None
        gathered = source.gathered() if may_gather else None
        body = iter(drawn.body)
        if gathered is None:
            made = out
            if drawn.body:
                made = reusable_array((shape[0], *size, source.channels), source.dtype)
            for position, view in enumerate(drawn.geometry.views()):
                pixels = source.region(position, view.box, view.size)
                render_view(pixels, view, drawn.geometry.resampling, made[position])
        elif drawn.body and size == gathered.images.shape[1:3] and not drawn.geometry.flips.any():
            step, parameters = next(body)
            step.require_dtype(gathered.images.dtype)
            made = step.apply_gathered(gathered, parameters, out)
        else:
            made = _crop_gathered(gathered, drawn.geometry, size, out)
        for step, parameters in body:
            step.require_dtype(made.dtype)
            made = step.apply_batch(made, parameters)
        return made
    for position, view in enumerate(drawn.geometry.views()):
        rendered = reusable_array((*view.shown, source.channels), source.dtype)
        render_view(source.region(position, view.box, view.size), view, drawn.geometry.resampling, rendered)
        out[position] = drawn.applied(rendered, position)
    return out


def _crop_gathered(gathered: Gathered, geometry: Geometry, size: Size, out: Pixels | None) -> Pixels:
    """Return gathered images, cropped and flipped; see `memory_for`."""
    if size == gathered.images.shape[1:3]:
        images = taken(gathered, out)
    else:
        shape = len(gathered.rows), *size, gathered.images.shape[3]
        images = memory_for(shape, gathered.images.dtype, out)
        windows_into(gathered, geometry.boxes[:, :2], images)
    for axis in (0, 1):
        flip_batch(images, geometry.flips[:, axis], axis)
    return images
