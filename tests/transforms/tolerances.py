"""How far pixels may lie from torchvision's, given the same parameters: one table, with reasons."""

from typing import NamedTuple

import cv2
import numpy as np

# OpenCV 4 looks up a place between pixels in 32nds of a pixel, OpenCV 5 computes it.
_IS_COARSE = int(cv2.__version__.split(".")[0]) < 5


class Tolerance(NamedTuple):
    """How far values may lie apart, and why.

    Attributes:
        levels: Of 255, at most.
        share: Of the values of photos and noise, at most: how many differ at all.
        worst: The same share of checkerboards, ramps, flat colours and noise of black and white, and by
            parameters that are chosen to be bad.
        reason: Why.
    """

    levels: float
    share: float
    worst: float
    reason: str


_EXACT = "whole numbers moved, or the same table of 256 levels"
_BELOW = "single precision: torch rounds down what should be whole and comes out a bit below"
_COARSE = Tolerance(255 / 16, 1, 1, "OpenCV 4 interpolates at 32nds of a pixel")

# Of uint8 tensors; what is named "of PIL images" is PIL's own work in torchvision.
TOLERANCES = {
    "crop": Tolerance(0, 0, 0, _EXACT),
    "flip": Tolerance(0, 0, 0, _EXACT),
    "pad": Tolerance(0, 0, 0, _EXACT),
    "erase": Tolerance(0, 0, 0, _EXACT),
    "brightness": Tolerance(0, 0, 0, _EXACT),
    "posterize": Tolerance(0, 0, 0, _EXACT),
    "solarize": Tolerance(0, 0, 0, _EXACT),
    "invert": Tolerance(0, 0, 0, _EXACT),
    "autocontrast": Tolerance(0, 0, 0, "the same single-precision division"),
    "equalize": Tolerance(0, 0, 0, "the same whole numbers"),
    "resize": Tolerance(0, 0, 0, "the same kernel of PyTorch's, or the same rows and columns taken"),
    "resize, bilinear, not antialiased": Tolerance(1, 1, 1, "OpenCV's weights have 11 bits"),
    "grey": Tolerance(1, 0.001, 0.001, "single precision, in another order"),
    "contrast": Tolerance(1, 0.001, 0.001, "the same greys and mean; torch's own steps differ by processor"),
    "saturation": Tolerance(1, 0.15, 1, _BELOW),
    "hue": Tolerance(1, 0.005, 0.01, "single precision, in another order, then rounded down"),
    "sharpness": Tolerance(1, 0.02, 0.02, _BELOW),
    "colour jitter": Tolerance(16, 0.5, 1, "a level that one step is off, factors of 3 make 9"),
    "blur": Tolerance(1, 0.002, 1, "single precision, in another order: of checkerboards all are halfway"),
    "warp, nearest": Tolerance(
        255,
        0.003 if _IS_COARSE else 0.0005,
        0.015,
        "halfway between two pixels either is right; taken as torchvision does where many are",
    ),
    "warp, bilinear": (
        _COARSE
        if _IS_COARSE
        else Tolerance(1, 0.05, 0.2, "single precision, in another order; edges are rounded twice")
    ),
    "perspective and elastic": Tolerance(0, 0, 0, "torchvision's own steps"),
    "changes in a row": Tolerance(
        255, 0.1, 1, "a level that one change is off may cross the threshold of the next"
    ),
    "rescale": Tolerance(
        0.0005,
        1,
        1,
        "one multiplication and one addition in float32; of float16 and bfloat16 two units in the last place",
    ),
    "mix": Tolerance(1e-4, 1, 1, "one interpolation in place of two products and a sum"),
    "mix of bytes": Tolerance(0.5001, 1, 1, "rounded to whole levels"),
    "resize of PIL images": Tolerance(2, 0.4, 1, "PIL's weights have 22 bits, torch's 15"),
    "resize of PIL images, bicubic": Tolerance(
        40, 1, 1, "PIL may resize the height first, torch always the width; both clip in between"
    ),
    "resize of PIL images, nearest": Tolerance(
        255, 1, 1, "PIL measures from the middle of a pixel, as `nearest-exact` does"
    ),
    "grey of PIL images": Tolerance(1, 0.6, 1, "PIL has other weights, and rounds"),
    "contrast of PIL images": Tolerance(3, 1, 1, "PIL's greys, and their mean rounded"),
    "saturation of PIL images": Tolerance(3, 0.6, 1, "PIL's greys"),
    "hue of PIL images": Tolerance(20, 0.7, 1, "PIL has 256 hues"),
    "autocontrast of PIL images": Tolerance(1, 0.1, 1, "PIL divides in double precision"),
    "warp of PIL images, nearest": Tolerance(
        255, 0.005 if _IS_COARSE else 0.002, 0.5, "PIL's places are 16 bits of a pixel"
    ),
    "warp of PIL images, bilinear": Tolerance(
        255, 1 if _IS_COARSE else 0.65, 1, "PIL rounds down, and mixes no edge with the colour around"
    ),
}


def assert_close(
    ours: np.ndarray, theirs: np.ndarray, name: str, spare: int = 0, is_worst: bool = False
) -> None:
    """Requires two images to agree as the table says.

    Args:
        ours: An image.
        theirs: What it should be.
        name: The line of the table.
        spare: So many values more may differ, in images of few pixels.
        is_worst: Whether it is one of the bad cases.
    """
    tolerance = TOLERANCES[name]
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(np.float64) - theirs)
    assert difference.max() <= tolerance.levels, f"{difference.max()} levels: {tolerance}"
    count, share = np.count_nonzero(difference), tolerance.worst if is_worst else tolerance.share
    assert count <= share * difference.size + spare, f"{count} of {difference.size}: {tolerance}"


def as_markdown() -> str:
    """The table for the documentation, as it stands with OpenCV 5."""
    rows = [
        "| | levels of 255 | photos and noise | worst cases | why |",
        "|---|--:|--:|--:|---|",
    ]
    for name, (levels, share, worst, reason) in TOLERANCES.items():
        rows.append(f"| {name} | {levels:g} | {100 * share:g}% | {100 * worst:g}% | {reason} |")
    return "\n".join(rows)
