"""Changes of colours, beside a table for each of hue, saturation and value."""

from __future__ import annotations

import cv2
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fastload.images.hsv import HsvChange

GAIN = st.floats(-1, 1)


def looked_up(image: np.ndarray, gains: tuple[float, float, float], is_bgr: bool) -> np.ndarray:
    levels = np.arange(256.0)
    hues = ((levels + gains[0] * 180) % 180).astype(np.uint8)
    others = [np.clip(levels * (gain + 1), 0, 255).astype(np.uint8) for gain in gains[1:]]
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV if is_bgr else cv2.COLOR_RGB2HSV)
    changed = cv2.merge([cv2.LUT(hsv[..., at], table) for at, table in enumerate([hues, *others])])
    return cv2.cvtColor(changed, cv2.COLOR_HSV2BGR if is_bgr else cv2.COLOR_HSV2RGB)


@given(hue=GAIN, saturation=GAIN, value=GAIN, is_bgr=st.booleans())
@example(hue=-0.015, saturation=0.7, value=-0.4, is_bgr=True)
@example(hue=0.015, saturation=-0.7, value=0.4, is_bgr=False)
@example(hue=-1e-19, saturation=0.0, value=-1.0, is_bgr=False)
def test_levels_are_those_of_tables(hue, saturation, value, is_bgr):
    image = np.random.default_rng(0).integers(0, 256, (2000, 80, 3), dtype=np.uint8)
    gains = (hue, saturation, value)
    expected = looked_up(image, gains, is_bgr)
    assert np.array_equal(HsvChange.of(gains, is_bgr=is_bgr)(image), expected)
