"""Crops, padding and flips: RandomCrop, Pad, RandomZoomOut, FiveCrop, RandomHorizontalFlip and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.contracts import Gathered
from fastload.errors import OptionError
from fastload.images.arrays import Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array
from fastload.transforms import options
from fastload.transforms.compose import TakesPILImages
from fastload.transforms.draws import Draws, between, integers
from fastload.transforms.options import Fill, FillLevels, SizeOption
from fastload.transforms.pixels import like, to_pixels
from fastload.transforms.samples import SampleParts
from fastload.transforms.transform import (
    Annotations,
    BernoulliTransform,
    Geometry,
    Parameters,
    Row,
    Sizes,
    Transform,
    equal_sizes,
    is_image,
)
from fastload.transforms.windows import (
    BORDERS,
    crop_on_device,
    crop_padded,
    memory_for,
    taken,
    windows_over_black_into,
)


class BoxCrop(Transform):
    """Base class of crops and padding by a box (top, left, height, width), partly outside if need be."""

    width = 4
    takes_any_dtype = True

    _fills: tuple[FillLevels, options.MaskFill] = (0, options.MaskFill())  # of images and of masks
    padding_mode = "constant"
    _may_do_nothing = False  # As in torchvision, boxes are then not even clipped.

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return parameters[:, 2:].astype(np.int64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        return geometry.crop(parameters.astype(np.int64))

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        top, left, height, width = map(int, parameters)
        return crop_padded(image, top, left, height, width, self._fills[0], self.padding_mode)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        top, left, height, width = map(int, parameters[:4])
        if self._may_do_nothing and (top, left, height, width) == (0, 0, *annotations.size):
            return annotations
        last = top + height - annotations.size[0], left + width - annotations.size[1]
        is_padded = min(top, left) < 0 or max(last) > 0
        if is_padded and self.padding_mode != "constant" and len(annotations):
            raise OptionError(
                f"{type(self).__name__} must have padding_mode 'constant' for images with objects, whose "
                f"mirror images would have no boxes, got {self.padding_mode!r}"
            )
        return annotations.cropped(top, left, height, width, self._fills[1], self.padding_mode)


class WindowCrop(BoxCrop):
    """Base class of crops and padding whose boxes have one size in images of one size."""

    def on_device(self, images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        return crop_on_device(images, parameters.astype(np.int64), self._fills[0], self.padding_mode)


class Pad(WindowCrop):
    """Pads images; parameters as in torchvision, none of the sides negative."""

    def __init__(self, padding: SizeOption, fill: Fill = 0, padding_mode: str = "constant") -> None:
        rule = f"padding_mode must be one of {', '.join(BORDERS)}"
        options.require(padding_mode in BORDERS, rule, padding_mode)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode
        rule = "padding must be pixels: a number, (left and right, top and bottom) or each of the four sides"
        sides = options.to_numbers(padding, rule, (1, 2, 4), 0, kind=options.is_whole)
        left, top, right, bottom = sides if len(sides) == 4 else (sides[0], sides[-1]) * 2
        self.sides = int(left), int(top), int(right), int(bottom)
        self._fills = options.to_fills(fill)

    def padded(self, sizes: Sizes) -> tuple[Sizes, Sizes]:
        """Return top and left of all padded images, relative to those before, and their sizes."""
        left, top, right, bottom = self.sides
        return np.array([-top, -left]), sizes + np.array([top + bottom, left + right])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        first, padded = self.padded(sizes)
        return np.concatenate((np.broadcast_to(first, sizes.shape), padded), axis=1, dtype=np.float64)


class CenterCrop(WindowCrop):
    """Crops the middle of images, padding small ones with black; parameters as in torchvision."""

    def __init__(self, size: SizeOption) -> None:
        self.size = options.to_size(size)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        sides = equal_sizes(self.size, len(sizes))
        return np.concatenate((_middle_offsets(self.size, sizes), sides), axis=1)


class RandomCrop(WindowCrop):
    """Crops a region of a given size at a random position, after padding; parameters as in torchvision.

    Using it raises `OptionError` if an image is too small.
    """

    _may_do_nothing = True

    def __init__(
        self,
        size: SizeOption,
        padding: SizeOption | None = None,
        pad_if_needed: bool = False,
        fill: Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = options.to_size(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode
        self._pad = Pad(0 if padding is None else padding, fill, padding_mode)
        self._fills = self._pad._fills
        self._is_black = padding_mode == "constant" and not any(options.to_colour(self._fills[0]))

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return equal_sizes(self.size, len(sizes))

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        (first, padded), wanted = self._pad.padded(sizes), np.array(self.size)
        missing = np.maximum(wanted - padded, 0)
        if missing.any():
            if not self.pad_if_needed:
                smallest = tuple(padded[missing.any(axis=1)][0].tolist())
                raise OptionError(
                    f"RandomCrop of {self.size} must fit into the padded image, got one of {smallest}: "
                    "choose a smaller size or pad_if_needed=True"
                )
            first, padded = first - missing, padded + 2 * missing
        boxes = np.empty((len(sizes), 4))
        boxes[:, :2], boxes[:, 2:] = first + integers(draws.uniform(2), padded - wanted + 1), wanted
        return boxes

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        return self.apply_gathered(Gathered(images, np.arange(len(images))), parameters)

    def apply_gathered(self, gathered: Gathered, parameters: Parameters, out: Pixels | None = None) -> Pixels:
        if self._is_black:
            shape = len(gathered.rows), *self.size, gathered.images.shape[3]
            out = memory_for(shape, gathered.images.dtype, out)
            if windows_over_black_into(gathered, parameters[:, :2].astype(np.int64), out):
                return out
        return super().apply_batch(taken(gathered), parameters)


class RandomZoomOut(BoxCrop):
    """Places images at random on a larger canvas of one colour; parameters as in torchvision.

    Liu et al., "SSD: Single Shot MultiBox Detector", https://arxiv.org/abs/1512.02325.
    """

    _may_do_nothing = True

    def __init__(self, fill: Fill = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5) -> None:
        self.fill = fill
        self.side_range = options.to_range(side_range, "side_range", 1)
        self.p = options.to_probability(p)
        self._fills = options.to_fills(fill)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the canvas, as a box around the image."""
        numbers = draws.uniform(4)
        factors = np.where(numbers[:, :1] < self.p, between(numbers[:, 1:2], *self.side_range), 1)
        canvas = np.floor(sizes * factors)
        offsets = np.floor((canvas - sizes) * numbers[:, 2:])
        return np.concatenate((-offsets, canvas), axis=1)


class FiveCrop(TakesPILImages):
    """Crops the four corners and the middle; parameters as in torchvision.

    It returns a tuple, so the next transform in a Compose must accept one; usually that is a Lambda. Using it
    raises `OptionError` if an image is too small.
    """

    def __init__(self, size: SizeOption) -> None:
        self.size = options.to_size(size)

    def __call__(self, *inputs: object) -> Any:
        """Return the crops: upper left, upper right, lower left, lower right, middle; of the image's type.

        Of a sample, they take the place of its image.
        """
        structure = inputs[0] if len(inputs) == 1 else inputs
        if is_image(structure):
            return tuple(like(structure, crop) for crop in self._crops(to_pixels(structure)))
        sample = SampleParts(structure)
        if sample.has_annotations:
            raise OptionError(f"{self!r} must be given images without boxes, masks and keypoints")
        return sample.rebuilt([self(image) for image in sample.images])

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
    """Crops as FiveCrop does, from the image and from the image flipped; parameters as in torchvision."""

    def __init__(self, size: SizeOption, vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def _crops(self, pixels: Pixels) -> list[Pixels]:
        flipped = np.flip(pixels, -3 if self.vertical_flip else -2)
        return super()._crops(pixels) + [crop.copy() for crop in super()._crops(flipped)]


class _RandomFlip(BernoulliTransform):
    takes_any_dtype = True

    _axis: ClassVar[int]

    flip_idx: Sequence[int] | None = None

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        return geometry.flip(self._axis, parameters[:, 0] > 0)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        if not parameters[0] or image.shape[self._axis] == 1:
            return image  # a flipped view of one row or column would have a stride that torch refuses
        if self._axis == 1 and image.flags.c_contiguous and _is_faster_in_opencv(image):
            # Copying a mirrored view later would take 150 µs for 224x224; this takes 5 µs.
            return with_last_axis(cv2.flip(image, 1))
        return np.flip(image, self._axis)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        return annotations.flipped(self._axis, self.flip_idx) if parameters[0] else annotations

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        flip_batch(images, parameters[:, 0] > 0, self._axis)
        return images

    def on_device(self, images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        is_flipped = torch.from_numpy(parameters[:, 0] > 0).to(images.device)[:, None, None, None]
        return torch.where(is_flipped, images.flip(2 + self._axis), images)


class RandomHorizontalFlip(_RandomFlip):
    """Flips images left to right, each with probability `p`.

    `flip_idx` has, for each key point of an object, the index of the one that it becomes in a mirror: the
    left eye becomes the right one. Without it, keypoints only move.
    """

    _axis = 1

    def __init__(self, p: float = 0.5, flip_idx: Sequence[int] | None = None) -> None:
        super().__init__(p)
        if flip_idx is not None:
            is_valid = sorted(flip_idx) == list(range(len(flip_idx)))
            options.require(is_valid, "flip_idx must hold the index of every key point once", flip_idx)
        self.flip_idx = flip_idx


class RandomVerticalFlip(_RandomFlip):
    """Flips images upside down, each with probability `p`."""

    _axis = 0


def flip_batch(images: Pixels, which: NDArray[np.bool_], axis: int) -> None:
    """Flip some images of a batch in place along an axis, 0 for rows, 1 for columns."""
    chosen = np.flatnonzero(which)
    if chosen.size == 0:
        return
    flipped = reusable_array((len(chosen), *images.shape[1:]), images.dtype)
    np.take(images, chosen, axis=0, out=flipped, mode="clip")
    count, height, width, channels = flipped.shape
    if axis == 1 and _is_faster_in_opencv(flipped):
        # The rows of all images are the rows of one tall image, which one call flips.
        tall = flipped.reshape(count * height, width, channels)
        cv2.flip(tall, 1, dst=tall)
        images[chosen] = flipped
    else:
        images[chosen] = np.flip(flipped, axis + 1)


def _is_faster_in_opencv(pixels: Pixels) -> bool:
    """Return True if OpenCV flips pixels of this size faster than NumPy does."""
    return pixels.dtype.itemsize * pixels.shape[-1] in (1, 3, 4, 12)


def _middle_offsets(size: tuple[int, int], sizes: Sizes) -> NDArray[np.float64]:
    """Return top and left of the middle of each image, (images, 2); negative if the image is too small."""
    wanted = np.array(size, np.int64)
    missing = np.maximum(wanted - sizes, 0)
    # torchvision pads first, with the odd pixel at the bottom and right, and rounds half to even.
    return np.asarray(np.rint((sizes + missing - wanted) / 2) - missing // 2)
