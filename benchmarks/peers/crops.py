"""Boxes of RandomResizedCrop with torchvision's distribution, drawn without tensors."""

from __future__ import annotations

import math
import random

_SCALE = (0.08, 1.0)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))


def draw_crop(height: int, width: int) -> tuple[int, int, int, int]:
    """Draw a box (top, left, height, width)."""
    for _ in range(10):
        area = height * width * random.uniform(*_SCALE)
        ratio = math.exp(random.uniform(*_LOG_RATIO))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            return random.randint(0, height - down), random.randint(0, width - across), down, across
    # For fewer than one in ten thousand photos: the middle, as large as the ratios allow.
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (height - down) // 2, (width - across) // 2, down, across
