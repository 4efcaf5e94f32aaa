"""Hue, saturation and value of images multiplied or shifted, to the bit as Ultralytics' RandomHSV does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array

# OpenCV's hues of uint8 images are 0 to 179.
_HUES = 180

# Pixels that are changed at a time: both buffers stay in a cache of 1 MiB, and calls take little. At 640x640
# that takes 1.18 ms with the split into planes; half as many 1.23, an eighth 1.54. All at once is as fast
# while nothing else needs the memory.
BAND_PIXELS = 1 << 17


@dataclass(frozen=True, slots=True)
class HsvChange:
    """A change of colours: what each hue, saturation and value becomes.

    Attributes:
        tables: The new levels, (3, 256), uint8.
        is_bgr: True if the channels of images are BGR, False if RGB.
    """

    tables: NDArray[np.uint8]
    is_bgr: bool = False

    @classmethod
    def of(cls, gains: tuple[float, float, float], *, is_bgr: bool = False) -> HsvChange:
        """Return the change for the gains that Ultralytics draws, each from minus to plus its parameter.

        The hue is shifted by the first, times 180; the others are multiplied by one plus theirs.
        """
        levels = np.arange(256.0)
        hues = (levels + gains[0] * _HUES) % _HUES
        others = (np.clip(levels * (gain + 1), 0, 255) for gain in gains[1:])
        return cls(np.stack((hues, *others)).astype(np.uint8), is_bgr)

    def __call__(self, pixels: Pixels) -> Pixels:
        """Return the changed pixels of an image (height, width, 3), uint8."""
        there, back = cv2.COLOR_RGB2HSV, cv2.COLOR_HSV2RGB
        if self.is_bgr:
            there, back = cv2.COLOR_BGR2HSV, cv2.COLOR_HSV2BGR
        height, width, _ = pixels.shape
        rows = max(1, BAND_PIXELS // width)
        # Memory of one size for all bands: blocks of other sizes would displace larger, reusable ones.
        out = reusable_array((max(rows, height), width, 3))[:height]
        buffers = reusable_array((3, rows, width))
        for top in range(0, height, rows):
            band = out[top : top + rows]
            planes = list(buffers[:, : len(band)])
            cv2.cvtColor(pixels[top : top + rows], there, dst=band)
            cv2.split(band, planes)
            # One by one: looked up in three channels at once, levels take half as long again.
            for plane, table in zip(planes, self.tables, strict=True):
                cv2.LUT(plane, table, dst=plane)
            cv2.merge(planes, dst=band)
            cv2.cvtColor(band, back, dst=band)
        return out
