"""What is compared: the operations, and the parameters that every library is given alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The means and deviations of ImageNet's channels, which torchvision's models are trained with.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

PAD = 16  # pixels a side
ANGLE = 30.0  # degrees, counter-clockwise
AFFINE_ANGLE, AFFINE_SCALE = 10.0, 1.1  # degrees, clockwise
BRIGHTNESS, CONTRAST, SATURATION, HUE = 1.2, 0.8, 1.3, 0.05  # hue: a share of the circle
BLUR_SIGMA, BLUR_SIZE = 1.5, 9  # three deviations to each side

EVALUATION_RATIO = 256 / 224
"""To what the shorter side is resized before the crop, as a share of the crop: torchvision's recipe."""

Given = Literal["path", "data", "pixels", "bgr", "small", "sample"]
"""What an operation starts from: a file's path or bytes, RGB or BGR pixels, their middle, or a `Sample`."""


class Box(NamedTuple):
    """The part of a picture that a training pipeline takes, and whether it is flipped."""

    top: int
    left: int
    height: int
    width: int
    is_flipped: bool


class Sample(NamedTuple):
    """What a pipeline starts from: a file's bytes, and the parameters drawn for it."""

    data: bytes
    box: Box


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that libraries do.

    Attributes:
        key: A short name that stays the same from release to release.
        group: What kind of operation it is.
        title: What is done; `{side}` stands for the side of crops and resizes.
        given: What it starts from; made outside of what is timed.
        is_normalised: Whether the result has ImageNet's mean subtracted, and is divided by its deviation.
    """

    key: str
    group: str
    title: str
    given: Given = "pixels"
    is_normalised: bool = False


OPERATIONS = (
    Operation("read", "Decode", "read a file and decode it to RGB", "path"),
    Operation("decode", "Decode", "decode to RGB, file in memory", "data"),
    Operation("decode-half", "Decode", "decode at half the size", "data"),
    Operation("to-rgb", "Decode", "BGR pixels to RGB", "bgr"),
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
    Operation("pad", "Geometry", f"pad by {PAD} black pixels a side"),
    Operation("flip-horizontal", "Geometry", "flip left to right"),
    Operation("flip-vertical", "Geometry", "flip upside down"),
    Operation("rotate", "Geometry", f"rotate by {ANGLE:.0f}°, bilinear"),
    Operation(
        "affine", "Geometry", f"affine: rotate by {AFFINE_ANGLE:.0f}°, scale by {AFFINE_SCALE}, bilinear"
    ),
    Operation("brightness", "Colour", f"brightness × {BRIGHTNESS}"),
    Operation("contrast", "Colour", f"contrast × {CONTRAST}"),
    Operation("saturation", "Colour", f"saturation × {SATURATION}"),
    Operation("hue", "Colour", f"hue + {HUE} of the circle"),
    Operation("jitter", "Colour", "colour jitter: all four"),
    Operation("grey", "Colour", "to grey"),
    Operation("blur", "Colour", f"Gaussian blur, σ = {BLUR_SIGMA}"),
    Operation("to-tensor", "Tensor", "to a float tensor, 0…1"),
    Operation("normalise", "Tensor", "to a float tensor and normalise", is_normalised=True),
    Operation(
        "training",
        "Pipeline, one core",
        "training: decode, random crop to {side}, flip, normalise",
        "sample",
        is_normalised=True,
    ),
    Operation(
        "training-jitter",
        "Pipeline, one core",
        "training with brightness, contrast and saturation",
        "sample",
        is_normalised=True,
    ),
    Operation(
        "evaluation",
        "Pipeline, one core",
        "evaluation: decode, shorter side to {shorter}, middle {side}, normalise",
        "sample",
        is_normalised=True,
    ),
)

BY_KEY = {operation.key: operation for operation in OPERATIONS}


def shorter_side(side: int) -> int:
    """To what an evaluation pipeline resizes the shorter side before it crops."""
    return round(side * EVALUATION_RATIO)


def evaluation_size(shape: Sequence[int], side: int) -> tuple[int, int]:
    """(height, width) that a picture is resized to for evaluation, rounded as torchvision does."""
    height, width, shorter = shape[0], shape[1], shorter_side(side)
    if height <= width:
        return shorter, shorter * width // height
    return shorter * height // width, shorter


def middle(shape: Sequence[int], side: int) -> tuple[int, int]:
    """(top, left) of the square in the middle, rounded as torchvision does."""
    return round((shape[0] - side) / 2), round((shape[1] - side) / 2)


def middle_half(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the middle of half the sides."""
    return shape[0] // 4, shape[1] // 4, shape[0] // 2, shape[1] // 2


def affine_matrix(shape: Sequence[int], angle: float, scale: float = 1.0) -> NDArray[np.float64]:
    """The 2×3 matrix that turns clockwise around the middle, and scales.

    It maps points (x, y) of the source to points of the result, in pixels from the upper left corner, where
    the first pixel's middle is at (0.5, 0.5): PIL's and torchvision's convention.
    """
    radians = math.radians(angle)
    cosine, sine = scale * math.cos(radians), scale * math.sin(radians)
    turn = np.array(((cosine, -sine), (sine, cosine)))
    centre = np.array((shape[1] / 2, shape[0] / 2))
    offset = centre - turn @ centre
    return np.hstack((turn, offset[:, None]))


def between_pixel_centres(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same map where the first pixel's middle is at (0, 0): OpenCV's and kornia's convention."""
    result = np.array(matrix)
    result[:, 2] += matrix[:, :2].sum(axis=1) / 2 - 0.5
    return result


def inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 2×3 matrix of the map backwards."""
    turn = np.linalg.inv(matrix[:, :2])
    return np.asarray(np.hstack((turn, -turn @ matrix[:, 2:])), np.float64)


def draw_box(shape: Sequence[int], seed: int) -> Box:
    """Draws what torchvision's RandomResizedCrop and RandomHorizontalFlip draw by default."""
    height, width = shape[0], shape[1]
    random = np.random.default_rng(seed)
    is_flipped = bool(random.random() < 0.5)
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = int(random.integers(height - h, endpoint=True))
            return Box(top, int(random.integers(width - w, endpoint=True)), h, w, is_flipped)
    side = min(height, width)
    return Box((height - side) // 2, (width - side) // 2, side, side, is_flipped)
