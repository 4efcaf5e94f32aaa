"""Flips: left and right, or top and bottom, change places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastload.images.opencv import cv2
from fastload.system.buffers import recycled
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.layout import with_channels
from fastload.transforms.transform import Parameters, Pixels, Transform, to_probability


class _RandomFlip(Transform):
    """Flips some images.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    width = 1
    takes_any_dtype = True
    works_in_place = True

    _axis: ClassVar[int]

    def __init__(self, p: float = 0.5) -> None:
        self.p = to_probability(p)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """1 where an image is flipped."""
        return (draws.uniform(1) < self.p).astype(np.float64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """A flip."""
        return geometry.flip(self._axis, parameters[:, 0] > 0)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Flips."""
        if image.shape[self._axis] == 1:
            return image  # a view of it would have a stride that torch refuses
        if not parameters[0]:
            return image
        if self._axis == 1 and image.flags.c_contiguous and _is_opencvs(image):
            # Whoever copied a mirrored view would take 150 us for 224x224; this is 5.
            return with_channels(cv2.flip(image, 1), image.shape[2])
        return np.flip(image, self._axis)

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Flips in place."""
        flip_batch(images, parameters[:, 0] > 0, self._axis)
        return images


class RandomHorizontalFlip(_RandomFlip):
    """Flips some images left to right.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    _axis = 1


class RandomVerticalFlip(_RandomFlip):
    """Flips some images upside down.

    Args:
        p: The share of images that are.

    Raises:
        OptionError: It is no probability.
    """

    _axis = 0


def flip_batch(images: Pixels, which: NDArray[np.bool_], axis: int) -> None:
    """Flips some images of a batch in place, along an axis, 0 for rows, 1 for columns."""
    chosen = np.flatnonzero(which)
    if chosen.size == 0:
        return
    flipped = recycled((len(chosen), *images.shape[1:]), images.dtype)
    np.take(images, chosen, axis=0, out=flipped, mode="clip")
    count, height, width, channels = flipped.shape
    if axis == 1 and _is_opencvs(flipped):
        # All rows of all images are the rows of one tall picture: one call flips them.
        tall = flipped.reshape(count * height, width, channels)
        cv2.flip(tall, 1, dst=tall)
        images[chosen] = flipped
    else:
        images[chosen] = np.flip(flipped, axis + 1)


def _is_opencvs(pixels: Pixels) -> bool:
    """Whether OpenCV mirrors pixels of this size faster than NumPy."""
    return pixels.dtype.itemsize * pixels.shape[-1] in (1, 3, 4, 12)
