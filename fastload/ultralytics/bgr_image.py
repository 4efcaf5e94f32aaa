"""Ultralytics' face of a deferred image: an array of BGR pixels, rendered on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from fastload.images.arrays import DType, Pixels
from fastload.images.deferred import DeferredImage
from fastload.images.opencv import cv2


@dataclass(frozen=True, slots=True, eq=False)
class BgrImage:
    """Array of an image, rendered on demand."""

    ndim: ClassVar[int] = 3

    deferred: DeferredImage

    @classmethod
    def of(cls, pixels: Pixels) -> BgrImage:
        """Return an array of Ultralytics, which must not change any more."""
        return cls(DeferredImage.of_pixels(pixels, is_bgr=True))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.deferred.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the array."""
        return self.deferred.dtype

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.generic]:
        """Return the pixels in memory of their own, BGR."""
        image = self.deferred
        pixels = image.pixels() if image.is_bgr else cv2.cvtColor(image.pixels(), cv2.COLOR_RGB2BGR)
        return np.array(pixels, dtype, copy=True if image.is_source and image.is_bgr else None)

    def write(self, out: Pixels, is_rgb: bool) -> None:
        """Write the pixels into an array (3, height, width), in RGB or BGR."""
        planes = out if self.deferred.is_bgr != is_rgb else out[::-1]
        cv2.split(self.deferred.pixels(), list(planes))

    def tensor(self, is_rgb: bool) -> torch.Tensor:
        """Return the pixels as a tensor (3, height, width)."""
        height, width, channels = self.shape
        out = torch.empty((channels, height, width), dtype=torch.uint8)
        self.write(out.numpy(), is_rgb)
        return out
