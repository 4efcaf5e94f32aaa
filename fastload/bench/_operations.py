"""Operations that are compared, with the parameters that every library gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

# The means and deviations of ImageNet's channels, which torchvision's models are trained with.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

PAD = 16  # pixels on each side
ANGLE = 30.0  # degrees, counter-clockwise
BRIGHTNESS, CONTRAST, SATURATION, HUE = 1.2, 0.8, 1.3, 0.05  # hue: a share of the circle
COLOURS = {"brightness": BRIGHTNESS, "contrast": CONTRAST, "saturation": SATURATION, "hue": HUE}
BLUR_SIGMA, BLUR_SIZE = 1.5, 9  # three deviations to each side

EVALUATION_RATIO = 256 / 224
"""Ratio of the resized shorter side to the crop in torchvision's recipe for evaluation."""

Start = Literal["data", "pixels", "small", "sample"]
"""Input of an operation: a file's bytes, RGB pixels, their middle, or a `Sample`."""


class DrawnCrop(NamedTuple):
    """Crop of a training pipeline in pixels, and its flip."""

    top: int
    left: int
    height: int
    width: int
    is_flipped: bool


class Sample(NamedTuple):
    """Input of a pipeline: a file's bytes and the box drawn for it."""

    data: bytes
    box: DrawnCrop


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on images; `key` stays the same from release to release.

    In `title`, `{side}`, `{half}` and `{shorter}` stand for sizes. `is_normalised` tells that the result is
    normalised with ImageNet's mean and deviation.
    """

    key: str
    group: str
    title: str
    start: Start = "pixels"
    is_normalised: bool = False

    def titled(self, size: int) -> str:
        """Return the title with the sizes of this run."""
        return self.title.format(side=size, half=size // 2, shorter=shorter_side(size))


_PIPELINE = "Pipeline, one core"
_EVALUATION = "evaluation: decode, shorter side to {shorter}, middle {side}, normalise"
OPERATIONS = (
    Operation("decode", "Decode", "decode to RGB, file in memory", "data"),
    Operation("decode-half", "Decode", "decode at half the size", "data"),
    Operation("shrink-nearest", "Resize", "shrink to {side}, nearest"),
    Operation("shrink-box", "Resize", "shrink to {side}, box (area)"),
    Operation("shrink-bilinear", "Resize", "shrink to {side}, bilinear"),
    Operation("shrink-bicubic", "Resize", "shrink to {side}, bicubic"),
    Operation("shrink-lanczos", "Resize", "shrink to {side}, Lanczos"),
    Operation("enlarge-nearest", "Resize", "enlarge {half} to {side}, nearest", "small"),
    Operation("enlarge-bilinear", "Resize", "enlarge {half} to {side}, bilinear", "small"),
    Operation("enlarge-bicubic", "Resize", "enlarge {half} to {side}, bicubic", "small"),
    Operation("enlarge-lanczos", "Resize", "enlarge {half} to {side}, Lanczos", "small"),
    Operation("crop", "Geometry", "crop the middle {side}, copied"),
    Operation("resized-crop", "Geometry", "crop the middle half, resize to {side}, bilinear"),
    Operation("pad", "Geometry", f"pad with {PAD} black pixels on each side"),
    Operation("flip", "Geometry", "flip left to right"),
    Operation("rotate", "Geometry", f"rotate by {ANGLE:.0f}°, bilinear"),
    Operation("brightness", "Colour", f"brightness × {BRIGHTNESS}"),
    Operation("contrast", "Colour", f"contrast × {CONTRAST}"),
    Operation("saturation", "Colour", f"saturation × {SATURATION}"),
    Operation("hue", "Colour", f"hue + {HUE} of the circle"),
    Operation("grey", "Colour", "to grey"),
    Operation("blur", "Colour", f"Gaussian blur, σ = {BLUR_SIGMA}"),
    Operation("normalise", "Tensor", "to a float tensor and normalise", is_normalised=True),
    Operation(
        "training", _PIPELINE, "training: decode, random crop to {side}, flip, normalise", "sample", True
    ),
    Operation("evaluation", _PIPELINE, _EVALUATION, "sample", True),
)

RESIZES = tuple(operation.key for operation in OPERATIONS if operation.group == "Resize")


def shorter_side(side: int) -> int:
    """Return the length that an evaluation pipeline gives the shorter side before it crops."""
    return round(side * EVALUATION_RATIO)


def evaluation_size(shape: Sequence[int], side: int) -> tuple[int, int]:
    """Return the (height, width) of the resize before the evaluation crop, rounded like torchvision."""
    height, width, shorter = shape[0], shape[1], shorter_side(side)
    if height <= width:
        return shorter, shorter * width // height
    return shorter * height // width, shorter


def middle(shape: Sequence[int], side: int) -> tuple[int, int]:
    """Return the (top, left) of the square in the middle, rounded like torchvision."""
    return round((shape[0] - side) / 2), round((shape[1] - side) / 2)


def middle_half(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return (top, left, height, width) of the middle with half of each side."""
    return shape[0] // 4, shape[1] // 4, shape[0] // 2, shape[1] // 2


def draw_box(shape: Sequence[int], seed: int) -> DrawnCrop:
    """Draw a box with the default distribution of RandomResizedCrop and RandomHorizontalFlip."""
    height, width = shape[0], shape[1]
    random = np.random.default_rng(seed)
    is_flipped = bool(random.random() < 0.5)
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = int(random.integers(height - h, endpoint=True))
            return DrawnCrop(top, int(random.integers(width - w, endpoint=True)), h, w, is_flipped)
    # Very long images: the largest part with an allowed ratio, as in torchvision.
    h, w = min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))
    return DrawnCrop((height - h) // 2, (width - w) // 2, h, w, is_flipped)
