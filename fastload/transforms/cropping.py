"""Crops: CenterCrop, RandomCrop, RandomResizedCrop, FiveCrop, TenCrop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.resize import resize
from fastload.system.buffers import reusable_array
from fastload.transforms._pixels import like, to_pixels
from fastload.transforms._resizing import Resizing
from fastload.transforms.compose import TakesPILImages
from fastload.transforms.draws import Draws, integers, random_sides
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.options import Fill, Size, to_colour, to_range, to_size
from fastload.transforms.padding import BoxCrop, Pad, pad_batch
from fastload.transforms.transform import Parameters, Pixels
from fastload.transforms.windows import Gathered, windows_into, windows_over_black_into

_ATTEMPTS = 10  # of RandomResizedCrop, as in torchvision


class CenterCrop(BoxCrop):
    """Crops the middle of images; those that are too small are padded with black.

    Args:
        size: Size of the crop: pixels, or (height, width).
    """

    def __init__(self, size: Size) -> None:
        self.size = to_size(size)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Return the boxes."""
        return np.concatenate(
            (_middle_offsets(self.size, sizes), np.broadcast_to(np.array(self.size), sizes.shape)), axis=1
        )


class RandomResizedCrop(Resizing):
    """Crops a part of random area and proportions, and resizes it.

    Args:
        size: Size of the result: pixels, or (height, width).
        scale: Range of the part's area relative to the image's, above 0.
        ratio: Range of the part's width divided by its height, above 0.
        interpolation: See `Resize`.
        antialias: See `Resize`.
    """

    width = 4

    def __init__(
        self,
        size: Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = to_size(size)
        self.scale = to_range(scale, "scale")
        self.ratio = to_range(ratio, "ratio")
        super().__init__(interpolation, antialias)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw boxes (top, left, height, width): the first of ten attempts that fits, else the middle."""
        numbers = draws.uniform(2 * _ATTEMPTS + 2)
        crop_widths, crop_heights = random_sides(numbers[:, :-2], sizes, self.scale, self.ratio)
        fits = (crop_widths > 0) & (crop_widths <= sizes[:, 1:])
        fits &= (crop_heights > 0) & (crop_heights <= sizes[:, :1])
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
        """Return the size of the result for each image."""
        return np.tile(np.array([self.size], np.int64), (len(sizes), 1))

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """Add the crop and the resize to a geometry."""
        sizes = self.sizes_after(geometry.sizes, parameters)
        boxes = parameters.astype(np.int64)
        return geometry.is_only_crop and geometry.crop(boxes) and geometry.resize(sizes, self._resampling)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Crop and resize the image."""
        top, left, height, width = map(int, parameters)
        return resize(image[top : top + height, left : left + width], *self.size, self._resampling)


class RandomCrop(BoxCrop):
    """Crops a part of a given size at a random place, after padding.

    Args:
        size: Size of the crop: pixels, or (height, width).
        padding: Pixels on each side: one number, (left and right, top and bottom) or (left, top, right,
            bottom).
        pad_if_needed: Whether an image smaller than the crop is padded, on both sides.
        fill: The colour of the padding: a number, or one for each channel.
        padding_mode: `constant`, `edge`, `reflect` or `symmetric`.

    Raises:
        OptionError: Also when used, if an image is too small.
    """

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = to_size(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode
        self._pad = Pad(0 if padding is None else padding, fill, padding_mode)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the boxes."""
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

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Crop all images at once."""
        out = reusable_array((len(images), *self.size, images.shape[3]), images.dtype)
        self.apply_batch_into(images, parameters, out)
        return out

    def apply_batch_into(self, images: Pixels, parameters: Parameters, out: Pixels) -> None:
        """Crop all images at once."""
        self.apply_gathered_into(Gathered.all_of(images), parameters, out)

    def apply_gathered_into(self, gathered: Gathered, parameters: Parameters, out: Pixels) -> None:
        """Crop all images at once, from where they are stored."""
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


class FiveCrop(TakesPILImages):
    """Crops the four corners and the middle.

    It returns a tuple, so the next transform in a Compose must accept one; usually that is a Lambda.

    Args:
        size: Size of the crops: pixels, or (height, width).

    Raises:
        OptionError: Also when used, if an image is too small.
    """

    def __init__(self, size: Size) -> None:
        self.size = to_size(size)

    def __call__(self, image: Any) -> tuple[Any, ...]:
        """Return the crops: upper left, upper right, lower left, lower right, middle; of the image's kind."""
        return tuple(like(image, crop) for crop in self._crops(to_pixels(image)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size!r})"

    def _crops(self, pixels: Pixels) -> list[Pixels]:
        height, width = self.size
        rows, columns = pixels.shape[-3:-1]
        if height > rows or width > columns:
            raise OptionError(
                f"{type(self).__name__} of {self.size} must fit into the image, got {rows}x{columns}: "
                "choose a smaller size or Resize before"
            )
        middle = _middle_offsets(self.size, np.array([[rows, columns]]))[0].astype(int)
        places = [(0, 0), (0, columns - width), (rows - height, 0), (rows - height, columns - width), middle]
        return [pixels[..., top : top + height, left : left + width, :] for top, left in places]


class TenCrop(FiveCrop):
    """Crops the four corners and the middle, of the image and of the image flipped.

    It returns a tuple, so the next transform in a Compose must accept one; usually that is a Lambda.

    Args:
        size: Size of the crops: pixels, or (height, width).
        vertical_flip: Whether the image is flipped upside down instead of left to right.

    Raises:
        OptionError: Also when used, if an image is too small.
    """

    def __init__(self, size: Size, vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def __repr__(self) -> str:
        return f"TenCrop(size={self.size!r}, vertical_flip={self.vertical_flip!r})"

    def _crops(self, pixels: Pixels) -> list[Pixels]:
        flipped = np.flip(pixels, -3 if self.vertical_flip else -2)
        return super()._crops(pixels) + [crop.copy() for crop in super()._crops(flipped)]


def _middle_offsets(size: tuple[int, int], sizes: Sizes) -> NDArray[np.float64]:
    """Return top and left of the middle of each image, (images, 2); negative if the image is too small."""
    wanted = np.array(size, np.int64)
    missing = np.maximum(wanted - sizes, 0)
    # torchvision pads first, with the odd pixel at the bottom and right, and rounds half to even.
    offsets: NDArray[np.float64] = np.rint((sizes + missing - wanted) / 2) - missing // 2
    return offsets
