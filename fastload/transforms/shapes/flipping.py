"""Flips: RandomHorizontalFlip, RandomVerticalFlip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array
from fastload.transforms import options
from fastload.transforms.transform import Annotations, BernoulliTransform, Geometry, Parameters, Row


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


class RandomHorizontalFlip(_RandomFlip):
    """Flips images left to right, each with probability `p`.

    `flip_idx` has, for each key point of an object, the index of the one that it becomes in a mirror: the
    left eye becomes the right one. Without it, keypoints only move.
    """

    _axis = 1

    def __init__(self, p: float = 0.5, flip_idx: Sequence[int] | None = None) -> None:
        super().__init__(p)
        if flip_idx is not None:
            options.require(
                sorted(flip_idx) == list(range(len(flip_idx))),
                "flip_idx must hold the index of every key point once",
                flip_idx,
            )
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
