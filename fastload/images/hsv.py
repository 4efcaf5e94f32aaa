"""Hue, saturation and value of images multiplied or shifted, to the bit as Ultralytics' RandomHSV does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array

# OpenCV's hues of uint8 images are 0 to 179. Shifted by up to 76, those that went around stay above 179.
_HUES = 180
_MOST_SHIFT = 256 - _HUES
_LEVELS = np.arange(256, dtype=np.uint8)

# Added before rounding, so that numbers are rounded down, as `astype` does.
_DOWN = -0.49998


@dataclass(frozen=True, slots=True)
class HsvChange:
    """A change of colours: what each hue, saturation and value becomes.

    A lookup of 640x640 levels takes 0.11 ms, a sum or a product 0.03; they are used where they give the same.

    Attributes:
        tables: The new levels, (3, 256), uint8.
        shift: The number added to hues, modulo 180; None if a lookup is needed.
        factors: Those of saturation and value; None if a lookup is needed.
        is_bgr: True if the channels of images are BGR, False if RGB.
    """

    tables: NDArray[np.uint8]
    shift: int | None = None
    factors: tuple[float | None, float | None] = (None, None)
    is_bgr: bool = False

    @classmethod
    def of(cls, gains: Sequence[float], *, is_bgr: bool = False) -> HsvChange:
        """Return the change for the three gains that Ultralytics draws, from minus to plus its parameters.

        The hue is shifted by 180 times the first gain; saturation and value are multiplied by 1 plus theirs.
        """
        levels = np.arange(256.0)
        hues = (levels + gains[0] * _HUES) % _HUES
        others = (np.clip(levels * (gain + 1), 0, 255) for gain in gains[1:])
        tables = np.stack((hues, *others)).astype(np.uint8)
        shift = int(np.floor(gains[0] * _HUES))
        is_sum = abs(shift) <= _MOST_SHIFT and np.array_equal(
            _shifted(_LEVELS[:_HUES].copy(), shift), tables[0, :_HUES]
        )
        saturation, value = (
            _factor(table, gain + 1) for table, gain in zip(tables[1:], gains[1:], strict=True)
        )
        return cls(tables, shift if is_sum else None, (saturation, value), is_bgr)

    def __call__(self, pixels: Pixels) -> Pixels:
        """Return the changed pixels of an image (height, width, 3), uint8, contiguous, in other memory."""
        there, back = cv2.COLOR_RGB2HSV, cv2.COLOR_HSV2RGB
        if self.is_bgr:
            there, back = cv2.COLOR_BGR2HSV, cv2.COLOR_HSV2BGR
        # In other memory, because `merge` takes five times as long if its rows do not follow each other.
        changed = reusable_array(pixels.shape)
        cv2.cvtColor(pixels, there, dst=changed)
        planes = list(reusable_array((3, *pixels.shape[:2])))
        cv2.split(changed, planes)
        if self.shift is None:
            cv2.LUT(planes[0], self.tables[0], dst=planes[0])
        else:
            _shifted(planes[0], self.shift)
        for plane, table, factor in zip(planes[1:], self.tables[1:], self.factors, strict=True):
            if factor is None:
                cv2.LUT(plane, table, dst=plane)
            else:
                cv2.convertScaleAbs(plane, dst=plane, alpha=factor, beta=_DOWN)
        cv2.merge(planes, dst=changed)
        cv2.cvtColor(changed, back, dst=changed)
        return changed


def _shifted(hues: NDArray[np.uint8], shift: int) -> NDArray[np.uint8]:
    """Add to hues in place, modulo 180, and return them."""
    np.add(hues, np.uint8(shift % 256), out=hues)
    excess = _HUES if shift > 0 else 256 - _HUES
    _, around = cv2.threshold(hues, _HUES - 1, excess, cv2.THRESH_BINARY)
    return np.subtract(hues, around.reshape(hues.shape), out=hues, dtype=np.uint8)


def _factor(table: NDArray[np.uint8], factor: float) -> float | None:
    """Return the factor if multiplying with it makes what the table says."""
    made = cv2.convertScaleAbs(_LEVELS, alpha=factor, beta=_DOWN)
    return factor if np.array_equal(made.ravel(), table) else None
