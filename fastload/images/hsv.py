"""Hue, saturation and value of images multiplied or shifted, to the bit as Ultralytics' RandomHSV does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array

# OpenCV's hues of uint8 images are 0 to 179. A shift of up to 76 is added without an overflow.
_HUES = 180
_MOST_SHIFT = 255 - (_HUES - 1)
_HUE_LEVELS = np.arange(_HUES)
_LEVELS = np.arange(256, dtype=np.uint8).reshape(1, -1)

# Added before rounding, so that numbers are rounded down, as `astype` does.
_DOWN = -0.49998

# Pixels that are changed at a time: both buffers stay in a cache of 1 MiB, and calls take little. At 640x640
# that takes 1.18 ms with the split into planes; half as many 1.23, an eighth 1.54. All at once is as fast
# while nothing else needs the memory.
BAND_PIXELS = 1 << 17


@dataclass(frozen=True, slots=True)
class HsvChange:
    """A change of colours: what each hue, saturation and value becomes.

    Looking levels up takes 0.33 ms for the three planes of 640x640 pixels; adding to hues and multiplying the
    others, 0.12. (Looked up in three channels at once, they take 0.55 ms.) Where that gives the same levels,
    it is done.

    Attributes:
        tables: The new levels, (3, 256), uint8.
        shift: The number added to hues, modulo 180, from -76 to 76; None if a lookup is needed.
        factors: Those of saturation and value; None if a lookup is needed.
        is_bgr: True if the channels of images are BGR, False if RGB.
    """

    tables: NDArray[np.uint8]
    shift: int | None
    factors: tuple[float | None, float | None]
    is_bgr: bool = False

    @classmethod
    def of(cls, gains: tuple[float, float, float], *, is_bgr: bool = False) -> HsvChange:
        """Return the change for the gains that Ultralytics draws, each from minus to plus its parameter.

        The hue is shifted by the first, times 180; the others are multiplied by one plus theirs.
        """
        levels = np.arange(256.0)
        hues = (levels + gains[0] * _HUES) % _HUES
        others = (np.clip(levels * (gain + 1), 0, 255) for gain in gains[1:])
        tables = np.stack((hues, *others)).astype(np.uint8)
        shift = int(tables[0, 0]) - _HUES * bool(tables[0, 0] > _HUES // 2)
        can_add = abs(shift) <= _MOST_SHIFT and np.array_equal(
            (_HUE_LEVELS + shift) % _HUES, tables[0, :_HUES]
        )
        factors = (_factor(tables[1], gains[1] + 1), _factor(tables[2], gains[2] + 1))
        return cls(tables, shift if can_add else None, factors, is_bgr)

    def __call__(self, pixels: Pixels) -> Pixels:
        """Return the changed pixels of an image (height, width, 3), uint8."""
        height, width, _ = pixels.shape
        rows = max(1, BAND_PIXELS // width)
        # Memory of one size for all bands: blocks of other sizes would displace larger, reusable ones.
        out = reusable_array((max(rows, height), width, 3))[:height]
        for top in range(0, len(pixels), rows):
            self._change(pixels[top : top + rows], out[top : top + rows])
        return out

    def _change(self, pixels: Pixels, out: Pixels) -> None:
        there, back = cv2.COLOR_RGB2HSV, cv2.COLOR_HSV2RGB
        if self.is_bgr:
            there, back = cv2.COLOR_BGR2HSV, cv2.COLOR_HSV2BGR
        height, width, _ = pixels.shape
        cv2.cvtColor(pixels, there, dst=out)
        rows = max(height, BAND_PIXELS // width)
        planes = list(reusable_array((3, rows, width))[:, :height])
        cv2.split(out, planes)
        self._change_hues(planes[0])
        for plane, table, factor in zip(planes[1:], self.tables[1:], self.factors, strict=True):
            if factor is None:
                cv2.LUT(plane, table, dst=plane)
            else:
                cv2.convertScaleAbs(plane, dst=plane, alpha=factor, beta=_DOWN)
        cv2.merge(planes, dst=out)
        cv2.cvtColor(out, back, dst=out)

    def _change_hues(self, hues: Pixels) -> None:
        if self.shift is None:
            cv2.LUT(hues, self.tables[0], dst=hues)
            return
        if self.shift == 0:
            return
        # Of the sum and the sum less 180, both modulo 256, the smaller one is the sum modulo 180. A
        # difference is the sum of the mirrored hue, mirrored.
        if self.shift < 0:
            np.subtract(np.uint8(_HUES - 1 - self.shift), hues, out=hues)
        else:
            np.add(hues, np.uint8(self.shift), out=hues)
        np.minimum(hues, hues - np.uint8(_HUES), out=hues)
        if self.shift < 0:
            np.subtract(np.uint8(_HUES - 1), hues, out=hues)


def _factor(table: NDArray[np.uint8], factor: float) -> float | None:
    """Return the factor if multiplying with it makes what the table says."""
    made = cv2.convertScaleAbs(_LEVELS, alpha=factor, beta=_DOWN)
    return factor if np.array_equal(made[0], table) else None
