"""Crops: a part of an image at its middle, or anywhere, resized or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import OptionError
from fastload.images.resize import resize
from fastload.system.buffers import recycled
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.padding import Pad, crop_padded, pad_batch
from fastload.transforms.resizing import require_resizable
from fastload.transforms.transform import (
    Parameters,
    Pixels,
    Transform,
    to_colour,
    to_pair,
    to_resampling,
    to_size,
)
from fastload.transforms.windows import Gathered, windows_into, windows_over_black_into

_ATTEMPTS = 10  # of RandomResizedCrop, as torchvision's


class CenterCrop(Transform):
    """Crops the middle; what an image is too small for is padded with black.

    Args:
        size: Of the crop: pixels, or (height, width).

    Raises:
        OptionError: It is none.
    """

    width = 4
    takes_any_dtype = True

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = to_size(size)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Boxes (top, left, height, width); negative where the image is too small."""
        wanted = np.array(self.size, np.int64)
        missing = np.maximum(wanted - sizes, 0)
        # torchvision pads first, a pixel more at the bottom and right, and rounds half to even.
        offsets = np.rint((sizes + missing - wanted) / 2) - missing // 2
        return np.concatenate((offsets, np.broadcast_to(wanted, sizes.shape)), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The crop's size."""
        return parameters[:, 2:].astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """A crop."""
        return geometry.crop(parameters.astype(np.int64))

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Crops."""
        top, left, height, width = map(int, parameters)
        return crop_padded(image, top, left, height, width)


class RandomResizedCrop(Transform):
    """Crops a part of random area and proportions, and resizes it.

    Args:
        size: Of the result: pixels, or (height, width).
        scale: The part's area, as shares of the image's.
        ratio: Its proportions, width over height.
        interpolation: `bilinear`, `bicubic`, `nearest`, `nearest-exact` or `area`, or torchvision's name
            of it.
        antialias: Whether every pixel of the part counts when it shrinks. False is faster, and OpenCV's.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 4
    takes_any_dtype = True

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = to_size(size)
        self.scale = to_pair(scale, "scale")
        self.ratio = to_pair(ratio, "ratio")
        if not 0 < self.scale[0] <= self.scale[1] or not 0 < self.ratio[0] <= self.ratio[1]:
            raise OptionError(
                f"scale and ratio must be positive, the smaller first, got {self.scale} and {self.ratio}"
            )
        self.interpolation = interpolation
        self.antialias = antialias
        self._resampling = to_resampling(interpolation, antialias)

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Requires pixels of a type that can be resized.

        Raises:
            OptionError: They are not.
        """
        require_resizable(dtype, "RandomResizedCrop")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Boxes (top, left, height, width): the first of ten attempts that fits, else the middle."""
        heights, widths = sizes[:, :1], sizes[:, 1:]
        numbers = draws.uniform(2 * _ATTEMPTS + 2)
        shares = self.scale[0] + (self.scale[1] - self.scale[0]) * numbers[:, :_ATTEMPTS]
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratios = np.exp(low + (high - low) * numbers[:, _ATTEMPTS : 2 * _ATTEMPTS])
        areas = shares * (heights * widths)
        crop_widths, crop_heights = np.rint(np.sqrt(areas * ratios)), np.rint(np.sqrt(areas / ratios))
        fits = (crop_widths > 0) & (crop_widths <= widths) & (crop_heights > 0) & (crop_heights <= heights)
        chosen = fits.argmax(axis=1)
        each = np.arange(len(sizes))
        boxes = np.empty((len(sizes), 4))
        boxes[:, 2], boxes[:, 3] = crop_heights[each, chosen], crop_widths[each, chosen]
        boxes[:, :2] = integers(numbers[:, -2:], sizes - boxes[:, 2:].astype(np.int64) + 1)
        for image in np.flatnonzero(~fits[each, chosen]).tolist():
            boxes[image] = self._middle(*sizes[image].tolist())
        return boxes

    def _middle(self, height: int, width: int) -> tuple[int, int, int, int]:
        proportions = width / height
        crop_height, crop_width = height, width
        if proportions < self.ratio[0]:
            crop_height = max(1, round(width / self.ratio[0]))
        elif proportions > self.ratio[1]:
            crop_width = max(1, round(height * self.ratio[1]))
        return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The result's size."""
        return np.tile(np.array([self.size], np.int64), (len(sizes), 1))

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """A crop and a resize."""
        sizes = self.sizes_after(geometry.sizes, parameters)
        boxes = parameters.astype(np.int64)
        return geometry.is_only_crop and geometry.crop(boxes) and geometry.resize(sizes, self._resampling)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Crops and resizes."""
        top, left, height, width = map(int, parameters)
        return resize(image[top : top + height, left : left + width], *self.size, self._resampling)


class RandomCrop(Transform):
    """Crops a part of a given size anywhere, after padding.

    Args:
        size: Of the crop: pixels, or (height, width).
        padding: Pixels at each side: one number, (left and right, top and bottom) or (left, top, right,
            bottom).
        pad_if_needed: Whether an image smaller than the crop is padded, at both ends of the side.
        fill: The padding's colour: a number, or one for each channel.
        padding_mode: `constant`, `edge`, `reflect` or `symmetric`.

    Raises:
        OptionError: A parameter is none of these; on use, an image is too small.
    """

    width = 4
    takes_any_dtype = True

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = to_size(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode
        self._pad = Pad(0 if padding is None else padding, fill, padding_mode)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Boxes (top, left, height, width); what lies outside of the image is padding."""
        left, top, right, bottom = self._pad.sides
        wanted = np.array(self.size, np.int64)
        before = np.broadcast_to(np.array([top, left], np.int64), sizes.shape)
        padded = sizes + np.array([top + bottom, left + right], np.int64)
        missing = np.maximum(wanted - padded, 0)
        if missing.any():
            if not self.pad_if_needed:
                smallest = tuple(padded[missing.any(axis=1)][0].tolist())
                raise OptionError(
                    f"RandomCrop of {self.size} must fit into the padded image, got one of {smallest}: "
                    "choose a smaller size or pad_if_needed=True"
                )
            before, padded = before + missing, padded + 2 * missing
        offsets = integers(draws.uniform(2), padded - wanted + 1) - before
        sides = np.broadcast_to(wanted, sizes.shape)
        boxes: Parameters = np.concatenate((offsets, sides), axis=1, dtype=np.float64)
        return boxes

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The crop's size."""
        return parameters[:, 2:].astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """A crop, where no padding is needed."""
        return geometry.crop(parameters.astype(np.int64))

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Pads and crops."""
        top, left, height, width = map(int, parameters)
        return crop_padded(image, top, left, height, width, self.fill, self.padding_mode)

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Pads all images at once, then takes all windows at once."""
        out = recycled((len(images), *self.size, images.shape[3]), images.dtype)
        self.apply_batch_into(images, parameters, out)
        return out

    def apply_batch_into(self, images: Pixels, parameters: Parameters, out: Pixels) -> None:
        """See `apply_batch`."""
        self.apply_gathered_into(Gathered.all_of(images), parameters, out)

    def apply_gathered_into(self, gathered: Gathered, parameters: Parameters, out: Pixels) -> None:
        """See `apply_batch`: rows of pixels are copied from where they are stored."""
        offsets = parameters[:, :2].astype(np.int64)
        is_black = self.padding_mode == "constant" and not np.any(to_colour(self.fill, out.shape[3]))
        if is_black and windows_over_black_into(gathered, offsets, out):
            return
        images = gathered.taken()
        size = np.array(images.shape[1:3])
        before = np.maximum(-offsets.min(axis=0), 0)
        after = np.maximum(offsets.max(axis=0) + self.size - size, 0)
        (top, left), (bottom, right) = before.tolist(), after.tolist()
        padded = pad_batch(images, (top, bottom), (left, right), self.fill, self.padding_mode)
        windows_into(Gathered.all_of(padded), offsets + before, out)
