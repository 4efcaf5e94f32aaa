"""The changes that automatic augmentation chooses from, and how strong each of them is.

Names, strengths and what is done are torchvision's. So is the single precision that strengths are computed
in: whether an image is shifted by 31 pixels or by 32 is a matter of its rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.images.opencv import cv2
from fastload.transforms import adjusting
from fastload.transforms.geometry import Sizes
from fastload.transforms.transform import Pixels
from fastload.transforms.warping import inverse_matrix, rotated, warped


class Edges(NamedTuple):
    """What is done about pixels that are moved.

    Attributes:
        interpolation: `nearest` or `bilinear`.
        fill: The colour around them.
    """

    interpolation: str
    fill: Any


class Strengths(NamedTuple):
    """How strong a change may be.

    Attributes:
        weakest: The first of its strengths.
        strongest: The last of them.
        is_signed: Whether half of the images have the strength's negative.
        of_side: The side that strengths are shares of: 0 for the height, 1 for the width; None for neither.
        is_whole: Whether they are whole numbers.
    """

    weakest: float = 0.0
    strongest: float = 0.0
    is_signed: bool = False
    of_side: int | None = None
    is_whole: bool = False


Space = dict[str, Strengths]  # the changes that a policy has, in torchvision's order


def space(shear: float, shift: float, is_share: bool, angle: float, factor: float, bits: int) -> Space:
    """The changes that all policies have.

    Args:
        shear: The largest tangent.
        shift: The longest, in pixels or as a share of the side.
        is_share: Which of the two.
        angle: The largest, in degrees.
        factor: The most that factors are away from 1.
        bits: The fewest that levels keep.
    """
    factors = Strengths(0, factor, True)
    return {
        "ShearX": Strengths(0, shear, True),
        "ShearY": Strengths(0, shear, True),
        "TranslateX": Strengths(0, shift, True, 1 if is_share else None),
        "TranslateY": Strengths(0, shift, True, 0 if is_share else None),
        "Rotate": Strengths(0, angle, True),
        "Brightness": factors,
        "Color": factors,
        "Contrast": factors,
        "Sharpness": factors,
        "Posterize": Strengths(8, bits, is_whole=True),
        "Solarize": Strengths(1, 0),
        "AutoContrast": Strengths(),
        "Equalize": Strengths(),
    }


def strengths_of(
    changes: Sequence[Strengths],
    chosen: NDArray[np.int64],
    bins: NDArray[np.int64] | int,
    count: int,
    signs: NDArray[np.float64],
    sizes: Sizes,
) -> NDArray[np.float64]:
    """The strengths of changes, one for each image.

    Args:
        changes: A policy's.
        chosen: Which of them.
        bins: Which of its strengths.
        count: How many strengths a change has.
        signs: Numbers in [0, 1).
        sizes: Of the images.
    """
    bins = np.broadcast_to(bins, chosen.shape)
    found = np.zeros(len(chosen))
    for number in np.unique(chosen).tolist():
        change, images = changes[number], np.flatnonzero(chosen == number)
        sides = np.ones(len(images), np.int64) if change.of_side is None else sizes[images, change.of_side]
        for side in np.unique(sides).tolist():
            which = images[sides == side]
            found[which] = _scale(change, count, side)[bins[which]]
    is_signed = np.array([change.is_signed for change in changes])[chosen]
    signed: NDArray[np.float64] = np.where(is_signed & (signs < 0.5), -found, found)
    return signed


@functools.lru_cache(maxsize=4096)
def _scale(change: Strengths, count: int, side: int) -> NDArray[np.float64]:
    """All strengths of a change, in images of one side."""
    if change.is_whole:
        step = (count - 1) / (change.weakest - change.strongest)
        return (change.weakest - torch.arange(count) / step).round().double().numpy()
    return torch.linspace(change.weakest, change.strongest * side, count).double().numpy()


def _moved(image: Pixels, x: float, y: float, edges: Edges) -> Pixels:
    return warped(image, inverse_matrix(0.0, (int(x), int(y))), *edges)


def _sheared(image: Pixels, x: float, y: float, edges: Edges) -> Pixels:
    angles = math.degrees(math.atan(x)), math.degrees(math.atan(y))
    corner = -image.shape[1] / 2, -image.shape[0] / 2
    return warped(image, inverse_matrix(0.0, shear=angles, center=corner), *edges)


#: What each change does to an image, by a strength.
CHANGES: dict[str, Callable[[Pixels, float, Edges], Pixels]] = {
    "Identity": lambda image, strength, edges: image,
    "ShearX": lambda image, strength, edges: _sheared(image, strength, 0, edges),
    "ShearY": lambda image, strength, edges: _sheared(image, 0, strength, edges),
    "TranslateX": lambda image, strength, edges: _moved(image, strength, 0, edges),
    "TranslateY": lambda image, strength, edges: _moved(image, 0, strength, edges),
    "Rotate": lambda image, strength, edges: rotated(image, strength, *edges),
    "Brightness": lambda image, strength, edges: adjusting.brightness(image, 1 + strength),
    "Color": lambda image, strength, edges: adjusting.saturation(image, 1 + strength),
    "Contrast": lambda image, strength, edges: adjusting.contrast(image, 1 + strength),
    "Sharpness": lambda image, strength, edges: adjusting.sharpness(image, 1 + strength),
    "Posterize": lambda image, strength, edges: adjusting.posterize(image, int(strength)),
    "Solarize": lambda image, strength, edges: adjusting.solarize(image, 255 * strength),
    "AutoContrast": lambda image, strength, edges: adjusting.autocontrast(image),
    "Equalize": lambda image, strength, edges: adjusting.equalize(image),
    "Invert": lambda image, strength, edges: cv2.bitwise_not(image).reshape(image.shape),
}
