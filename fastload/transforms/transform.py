"""Base classes of all transforms: draw the parameters, then apply them to one image or to a whole batch.

    parameters = transform.draw(draws, sizes)           # for a batch: float64 (images, transform.width)
    image = transform.apply(image, parameters[i])       # one image (height, width, channels)
    images = transform.apply_batch(images, parameters)  # images of one size (images, height, width, channels)
    annotations = transform.apply_to(annotations, parameters[i])  # boxes, masks, keypoints of one image
    tensor = transform.on_device(tensor, parameters)    # on a device: (images, channels, height, width)

Called like a function, a transform accepts the images and samples that torchvision's transforms accept, and
returns the same types.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeGuard, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.contracts import Box, Gathered
from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels
from fastload.images.deferred import View
from fastload.images.resize import Resampling
from fastload.transforms.annotations import Annotations as Annotations
from fastload.transforms.draws import Draws as Draws
from fastload.transforms.draws import fresh_draws
from fastload.transforms.options import Described, to_probability
from fastload.transforms.pixels import Image, is_pil, like, to_pixels, tv_kind
from fastload.transforms.samples import SampleParts
from fastload.transforms.windows import taken

Ints = NDArray[np.int64]
Sizes = Ints  # (images, 2): heights and widths
Parameters = NDArray[np.float64]  # (images, width)
Row = Sequence[float]  # the parameters of one image

_Sample = TypeVar("_Sample")
_Target = TypeVar("_Target")


class Geometry:
    """The crops, resizes and flips of every image of a batch as one geometry that a decoder can carry out.

    Transforms at the head of a pipeline fold themselves into it one after the other, as long as a `View` of
    each image can express them. It is made for images of the given sizes.
    """

    def __init__(self, sizes: Sizes) -> None:
        # Regions of the sources: top, left, height, width.
        self.boxes: Ints = np.concatenate((np.zeros_like(sizes), sizes), axis=1)
        self.resampling: Resampling | None = None  # of regions; None if they are not resized
        self.flips: NDArray[np.bool_] = np.zeros((len(sizes), 2), bool)  # along rows and along columns
        self._region_sizes = sizes
        self._windows: Ints | None = None  # crops of the resized regions; None for all of each

    @property
    def sizes(self) -> Sizes:
        """Sizes of the results in pixels."""
        return self._region_sizes if self._windows is None else self._windows[:, 2:]

    def crop(self, boxes: Ints) -> bool:
        """Crop to boxes (images, 4); return False after a flip, or if a box extends beyond its image."""
        is_outside = (boxes[:, :2] < 0) | (boxes[:, :2] + boxes[:, 2:] > self.sizes)
        if self.flips.any() or is_outside.any():
            return False
        if self.resampling is None:
            self.boxes = _box_in_box(self.boxes, boxes)
            self._region_sizes = boxes[:, 2:]
        else:
            self._windows = boxes if self._windows is None else _box_in_box(self._windows, boxes)
        return True

    def resize(self, sizes: Sizes, resampling: Resampling) -> bool:
        """Resize to (images, 2) heights and widths; return False after a flip or an earlier resize."""
        if self.resampling is not None or self.flips.any():
            return False
        self.resampling = resampling
        self._region_sizes = sizes
        return True

    def flip(self, axis: int, which: NDArray[np.bool_]) -> bool:
        """Flip some images along an axis, 0 for rows, 1 for columns."""
        self.flips[:, axis] ^= which
        return True

    def views(self) -> list[View]:
        """Return the geometry of each image."""
        sizes = self._region_sizes.tolist()
        windows = [(0, 0, *size) for size in sizes] if self._windows is None else self._windows.tolist()
        parts = zip(self.boxes.tolist(), sizes, windows, self.flips.tolist(), strict=True)
        return [
            View(Box(*box), tuple(size), Box(*window), tuple(flips)) for box, size, window, flips in parts
        ]


class Transform(Described):
    """Base class of all transforms; derive from it to write your own.

    A subclass defines `apply`, `draw` if it is random, `sizes_after` if it changes an image's size,
    `apply_to` if images have boxes, masks or keypoints, and `on_device` if it can transform batches there.
    Making a transform with a parameter outside the documented range raises `OptionError`.

    Attributes:
        width: The number of parameters of one image.
    """

    width: int = 0

    #: True if pixels of any dtype are accepted, False if only uint8 is.
    takes_any_dtype: ClassVar[bool] = False

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the parameters of a batch, float64 (images, `width`), given heights and widths (images, 2)."""
        return np.empty((len(sizes), 0))

    def draw_with(self, draws: Draws, sizes: Sizes, annotations: Sequence[Annotations]) -> Parameters:
        """Draw the parameters of a batch as `draw` does, if they depend on the images' objects."""
        return self.draw(draws, sizes)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """Return the sizes of the results, given the sizes of the images."""
        return sizes

    def channels_after(self, channels: int) -> int:
        """Return the number of channels of the result, given that of the image."""
        return channels

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """Add this transform to a geometry; return False if the geometry cannot express it."""
        return False

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        """Apply one row of the result of `draw` to one image (height, width, channels).

        The image may be read-only or not contiguous, and is not changed; the result may be a view of it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define apply(self, image, parameters)")

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Apply the result of `draw` to images of one size; see `AppliesToImages`."""
        return np.stack([self.apply(*pair) for pair in zip(images, parameters.tolist(), strict=True)])

    def apply_gathered(self, gathered: Gathered, parameters: Parameters, out: Pixels | None = None) -> Pixels:
        """Apply the result of `draw` to a batch of stored images; see `AppliesToImages`."""
        return self.apply_batch(taken(gathered, out), parameters)

    def on_device(self, images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        """Apply the result of `draw` to a batch on a device, with the same results as `apply_batch`.

        Images and results are (images, channels, height, width), each of one size, in any memory format; the
        images are not changed. See `runs_on_device`.
        """
        raise NotImplementedError

    @property
    def runs_on_device(self) -> bool:
        """True if `on_device` does what `apply` does: a subclass that changes `apply` has to define both."""
        applies, runs = (_definer(type(self), name) for name in ("apply", "on_device"))
        return runs is not Transform and issubclass(runs, applies)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        """Move the annotations of one image as `apply` moves its pixels; raise OptionError if it cannot."""
        raise OptionError(
            f"{type(self).__name__} must define apply_to(self, annotations, parameters) for images with "
            "objects or a mask: return the annotations themselves if it changes only colours"
        )

    @overload
    def __call__(self, sample: _Sample, /) -> _Sample: ...
    @overload
    def __call__(self, image: _Sample, target: _Target, /) -> tuple[_Sample, _Target]: ...
    @overload
    def __call__(self, *inputs: object) -> object: ...
    def __call__(self, *inputs: object) -> object:
        """Transform one image, each image of a batch with its own parameters, or an image with its target.

        An image is a tensor (3, height, width) or (images, 3, height, width), an array (height, width, 3) or
        (images, height, width, 3), or a PIL image. Grey images have 1 channel instead of 3. A sample is an
        image and its target, as further arguments, or in a tuple, a list or a dict. Of a target,
        torchvision's `tv_tensors` are transformed, and the entries of a dict that have the names of those
        that PackedDataset gives: `boxes`, x1 y1 x2 y2 in pixels, `labels` and others. The result has the same
        type or structure. Raises `OptionError` if there is no image or annotation, or one that the transform
        does not accept.
        """
        structure = inputs[0] if len(inputs) == 1 else inputs
        return self.of_image(structure) if is_image(structure) else self.of_sample(structure)

    def of_image(self, image: Image) -> Image:
        """Return the transform of an image, or of each image of a batch."""
        pixels = to_pixels(image)
        count = len(pixels) if pixels.ndim == 4 else 1
        sizes = np.tile(np.array([pixels.shape[-3:-1]], np.int64), (count, 1))
        return like(image, self._applied(pixels, self.draw(fresh_draws(count), sizes).tolist()))

    def _applied(self, pixels: Pixels, rows: Sequence[Row]) -> Pixels:
        """Return an image, or a batch of images, transformed with a row of parameters for each."""
        if pixels.ndim == 3:
            return self.apply_checked(pixels, rows[0])
        results = [self.apply_checked(each, row) for each, row in zip(pixels, rows, strict=True)]
        if len({result.shape for result in results}) > 1:
            raise OptionError(
                f"{type(self).__name__} must give a batch's images one size, got {results[0].shape[:2]} "
                "and others: call it on one image at a time"
            )
        return np.stack(results)

    def of_sample(self, structure: object) -> object:
        """Return a sample with all its images and annotations transformed with the same parameters."""
        sample = SampleParts(structure)
        if not self.width or (not sample.has_annotations and len(sample.images) == 1):
            images = [self.of_image(image) for image in sample.images]
            return sample.rebuilt(images, lambda annotations: self.apply_to(annotations, ()))
        row = self.draw_with(fresh_draws(1), np.array([sample.size]), [sample.annotations])[0].tolist()
        everything = [(image, to_pixels(image)) for image in sample.images]
        images = [like(image, self._applied(pixels, [row] * len(pixels))) for image, pixels in everything]
        return sample.rebuilt(images, lambda annotations: self.apply_to(annotations, row))

    def apply_checked(self, image: Pixels, parameters: Row) -> Pixels:
        """Check the dtype of an image, then apply parameters to it; see `AppliesToImages`."""
        self.require_dtype(image.dtype)
        return self.apply(image, parameters)

    def require_dtype(self, dtype: DType) -> None:
        """Raise OptionError unless the transform accepts pixels of this dtype."""
        if dtype != np.uint8 and not self.takes_any_dtype:
            raise OptionError(
                f"{type(self).__name__} takes uint8 pixels, got {dtype}: put it before ToTensor, ToDtype and "
                "Normalize, or ToDtype(torch.uint8, scale=True) before it"
            )


def is_image(structure: object) -> TypeGuard[Image]:
    """Return True for anything but a sample: a container, or one of torchvision's annotations alone."""
    is_container = isinstance(structure, (Mapping, tuple, list))
    return is_pil(structure) or (not is_container and tv_kind(structure) in ("", "Image"))


class ColourTransform(Transform):
    """Base class of transforms that leave every pixel where it is."""

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        return annotations


class BatchTransform(Described):
    """Base class of transforms of whole batches, as a DataLoader returns them."""

    def __call__(self, *batch: object) -> object:
        raise NotImplementedError


class PixelKeeping(Transform):
    """Base class of transforms that change no pixel, only an image's type or its objects."""

    takes_any_dtype = True

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        return True

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        return image


class BernoulliTransform(ColourTransform):
    """Base class of transforms that change each image with probability `p`; the parameter is 1 or 0."""

    width = 1

    def __init__(self, p: float = 0.5) -> None:
        self.p = to_probability(p)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        return (draws.uniform(1) < self.p).astype(np.float64)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        return self.changed(image) if parameters[0] else image

    def changed(self, image: Pixels) -> Pixels:
        """Return the changed image."""
        raise NotImplementedError


def _definer(kind: type, name: str) -> type:
    """Return the class that defines a method of a class."""
    return next(each for each in kind.__mro__ if name in vars(each))


def common_size(sizes: Sizes) -> tuple[int, int] | None:
    """Return the one (height, width) of all images; None if they differ."""
    is_one = sizes.strides[0] == 0 or not (sizes != sizes[0]).any()
    return (int(sizes[0, 0]), int(sizes[0, 1])) if is_one else None


@functools.lru_cache(256)
def equal_sizes(size: tuple[int, int], count: int) -> Sizes:
    """Return the sizes of images that all have one (height, width), read-only."""
    return np.broadcast_to(size, (count, 2))  # 6 µs


def _box_in_box(outer: Ints, inner: Ints) -> Ints:
    """Convert boxes relative to other boxes into boxes relative to the image."""
    return np.concatenate((outer[:, :2] + inner[:, :2], inner[:, 2:]), axis=1)
