"""Operations that are compared, with the parameters that every library gets."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

# The means and deviations of ImageNet's channels, with which torchvision's models are trained.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

IMAGE_SIDE = 224  # pixels, of crops and resizes

DETECTION_SIDE = 640  # pixels, of letterboxed images
PADDING = 114  # level, of Ultralytics' letterbox

_SCALE = (0.08, 1.0)  # shares of the area
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))

BRIGHTNESS, CONTRAST, SATURATION, HUE = 1.2, 0.8, 1.3, 0.05  # hue: a share of the circle

Start = Literal["data", "pixels", "sample"]
"""Input of an operation: the bytes of a file, RGB pixels, or a `Sample`."""


class DrawnCrop(NamedTuple):
    """Crop of a training pipeline in pixels, and its flip."""

    top: int
    left: int
    height: int
    width: int
    is_flipped: bool


class Sample(NamedTuple):
    """Input of a pipeline: the bytes of a file, and the box drawn for it."""

    data: bytes
    box: DrawnCrop


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on images; `is_normalised` if the result is normalised with ImageNet's statistics."""

    key: str
    group: str
    title: str
    start: Start = "pixels"
    is_normalised: bool = False


_JITTER = f"brightness × {BRIGHTNESS}, contrast × {CONTRAST}, saturation × {SATURATION}, hue + {HUE}"
OPERATIONS = (
    Operation("decode", "Decode", "decode to RGB, file in memory", "data"),
    Operation("resize", "Resize", f"resize to {IMAGE_SIDE}, bilinear"),
    Operation("resized-crop", "Resize", f"crop the middle half, resize to {IMAGE_SIDE}, bilinear"),
    Operation("flip", "Flip and colour", "flip left to right"),
    Operation("jitter", "Flip and colour", f"colour jitter: {_JITTER}"),
    Operation("normalise", "Tensor", "to a float tensor and normalise", is_normalised=True),
    Operation(
        "detection",
        "Pipeline, one core",
        f"detection: decode, letterbox to {DETECTION_SIDE}, to a float tensor",
        "data",
    ),
    Operation(
        "training",
        "Pipeline, one core",
        f"training: decode, random crop to {IMAGE_SIDE}, flip, normalise",
        "sample",
        True,
    ),
)


def middle_half(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return (top, left, height, width) of the middle with half of each side."""
    return shape[0] // 4, shape[1] // 4, shape[0] // 2, shape[1] // 2


def letterbox(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return (height, width, top, left) of an image that is letterboxed, rounded as by Ultralytics."""
    ratio = DETECTION_SIDE / max(shape[:2])
    height, width = round(shape[0] * ratio), round(shape[1] * ratio)
    top, left = (round((DETECTION_SIDE - side) / 2 - 0.1) for side in (height, width))
    return height, width, top, left


def draw_box(shape: Sequence[int], seed: int) -> DrawnCrop:
    """Draw a box with the default distribution of RandomResizedCrop and RandomHorizontalFlip."""
    generator = random.Random(seed)
    return DrawnCrop(*_draw_crop(shape[0], shape[1], generator), generator.random() < 0.5)


def _draw_crop(height: int, width: int, generator: random.Random) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = height * width * generator.uniform(*_SCALE)
        ratio = math.exp(generator.uniform(*_LOG_RATIO))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            return generator.randint(0, height - down), generator.randint(0, width - across), down, across
    # For fewer than one in ten thousand photos: the middle, as large as the ratios allow.
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (height - down) // 2, (width - across) // 2, down, across
