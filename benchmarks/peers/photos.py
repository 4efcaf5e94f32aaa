"""Photos in class folders, and the random crops that OpenCV makes of them, without fastload."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import cv2
import numpy as np

_SCALE = (0.08, 1.0)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))


def list_photos(folder: str) -> list[tuple[str, int]]:
    """Return the path and label of every photo, as ImageFolder does."""
    classes = sorted(path for path in Path(folder).iterdir() if path.is_dir())
    return [(str(file), label) for label, path in enumerate(classes) for file in sorted(path.iterdir())]


def random_crop(data: Any, size: int) -> Any:
    """Return a file's random crop, resized to `size` and perhaps flipped: RGB, uint8, (size, size, 3).

    It is bilinear and not antialiased, as is usual where OpenCV replaces PIL.
    """
    pixels: Any = cv2.imdecode(
        np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    )
    top, left, height, width = draw_crop(*pixels.shape[:2])
    crop = pixels[top : top + height, left : left + width]
    image = cv2.resize(crop, (size, size), interpolation=cv2.INTER_LINEAR)
    return cv2.flip(image, 1) if random.random() < 0.5 else image


def draw_crop(height: int, width: int) -> tuple[int, int, int, int]:
    """Draw a box (top, left, height, width) with the distribution of torchvision's RandomResizedCrop."""
    for _ in range(10):
        area = height * width * random.uniform(*_SCALE)
        ratio = math.exp(random.uniform(*_LOG_RATIO))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            return random.randint(0, height - down), random.randint(0, width - across), down, across
    # For fewer than one in ten thousand photos: the middle, as large as the ratios allow.
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (height - down) // 2, (width - across) // 2, down, across
