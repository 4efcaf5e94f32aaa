"""Hue, saturation and value of images multiplied or shifted, to the bit as Ultralytics' RandomHSV does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2

# OpenCV's hues of uint8 images are 0 to 179.
_HUES = 180


@dataclass(frozen=True, slots=True)
class HsvChange:
    """A change of colours: what each hue, saturation and value becomes."""

    tables: NDArray[np.uint8]  # the new levels, (3, 256)
    is_bgr: bool = False  # True if the channels of images are BGR, False if RGB

    @classmethod
    def of(cls, gains: Sequence[float], *, is_bgr: bool = False) -> HsvChange:
        """Return the change for the three gains that Ultralytics draws, from minus to plus its parameters.

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
        hsv = cv2.cvtColor(pixels, there)
        # One by one: looked up in three channels at once, levels take half as long again.
        planes = [cv2.LUT(*pair) for pair in zip(cv2.split(hsv), self.tables, strict=True)]
        return np.asarray(cv2.cvtColor(cv2.merge(planes, dst=hsv), back, dst=hsv))
