"""Tolerances: how far pixels may differ from torchvision's for the same parameters, with reasons."""

from typing import NamedTuple

import cv2
import numpy as np

# OpenCV 4 interpolates at multiples of 1/32 of a pixel, OpenCV 5 at the exact position.
_IS_COARSE = int(cv2.__version__.split(".")[0]) < 5


class Tolerance(NamedTuple):
    """Largest difference between values, and its reason.

    Attributes:
        levels: The largest difference in levels of 255.
        share: The largest share of values that differ at all, for photos and noise.
        worst: The same for checkerboards, ramps, flat colours, noise of black and white, and parameters
            chosen to be bad.
        reason: The reason.
    """

    levels: float
    share: float
    worst: float
    reason: str


_EXACT = "values are only moved, or looked up in the same table of 256 levels"
_BELOW = "single precision: torch truncates sums that should be whole and come out slightly below"
_COARSE = Tolerance(255 / 16, 1, 1, "OpenCV 4 interpolates at 32nds of a pixel")

# For uint8 tensors; torchvision leaves rows "of PIL images" to PIL.
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
    "equalize": Tolerance(0, 0, 0, "the same integer arithmetic"),
    "resize": Tolerance(0, 0, 0, "the same PyTorch kernel, or the same rows and columns selected"),
    "resize, bilinear, not antialiased": Tolerance(1, 1, 1, "OpenCV's weights have 11 bits"),
    "grey": Tolerance(1, 0.001, 0.001, "single precision, in another order"),
    "contrast": Tolerance(1, 0.001, 0.001, "the same greys and mean; torch's own steps differ by processor"),
    "saturation": Tolerance(1, 0.15, 1, _BELOW),
    "hue": Tolerance(1, 0.005, 0.01, "single precision, in another order, then rounded down"),
    "sharpness": Tolerance(1, 0.02, 0.02, _BELOW),
    "colour jitter": Tolerance(16, 0.5, 1, "an error of one level, multiplied by factors of 3 in a row"),
    "blur": Tolerance(1, 0.002, 1, "single precision, in another order; checkerboards lie halfway"),
    "warp, nearest": Tolerance(
        255,
        0.003 if _IS_COARSE else 0.0005,
        0.015,
        "halfway between two pixels, either is right; where many points are, torchvision's choice",
    ),
    "warp, bilinear": (
        _COARSE
        if _IS_COARSE
        else Tolerance(1, 0.05, 0.2, "single precision, in another order; edges are rounded twice")
    ),
    "perspective and elastic": Tolerance(0, 0, 0, "torchvision's own steps"),
    "operations in sequence": Tolerance(
        255, 0.1, 1, "an error of one level may cross the threshold of the next operation"
    ),
    "rescale": Tolerance(
        0.0005,
        1,
        1,
        "one multiplication and one addition in float32; for float16 and bfloat16 two last places",
    ),
    "mix": Tolerance(1e-4, 1, 1, "one interpolation instead of two products and a sum"),
    "mix of bytes": Tolerance(0.5001, 1, 1, "rounded to whole levels"),
    "resize of PIL images": Tolerance(2, 0.4, 1, "PIL's weights have 22 bits, torch's 15"),
    "resize of PIL images, bicubic": Tolerance(
        40, 1, 1, "PIL may resize the height first, torch always the width; both clip in between"
    ),
    "resize of PIL images, nearest": Tolerance(
        255, 1, 1, "PIL measures from the middle of a pixel, like `nearest-exact`"
    ),
    "grey of PIL images": Tolerance(1, 0.6, 1, "PIL has other weights, and rounds"),
    "contrast of PIL images": Tolerance(3, 1, 1, "PIL's greys, and their mean rounded"),
    "saturation of PIL images": Tolerance(3, 0.6, 1, "PIL's greys"),
    "hue of PIL images": Tolerance(20, 0.7, 1, "PIL has 256 hues"),
    "autocontrast of PIL images": Tolerance(1, 0.1, 1, "PIL divides in double precision"),
    "warp of PIL images, nearest": Tolerance(
        255, 0.005 if _IS_COARSE else 0.002, 0.5, "PIL's coordinates have 16 fractional bits"
    ),
    "warp of PIL images, bilinear": Tolerance(
        255, 1 if _IS_COARSE else 0.65, 1, "PIL rounds down, and does not blend edges with the fill colour"
    ),
}


def assert_close(
    ours: np.ndarray, theirs: np.ndarray, name: str, spare: int = 0, is_worst: bool = False
) -> None:
    """Assert that two images agree within a tolerance of the table.

    Args:
        ours: An image.
        theirs: The expected image.
        name: The row of the table.
        spare: The number of additional values that may differ, for small images.
        is_worst: True for one of the worst cases.
    """
    tolerance = TOLERANCES[name]
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(np.float64) - theirs)
    assert difference.max() <= tolerance.levels, f"{difference.max()} levels: {tolerance}"
    count, share = np.count_nonzero(difference), tolerance.worst if is_worst else tolerance.share
    assert count <= share * difference.size + spare, f"{count} of {difference.size}: {tolerance}"


def as_markdown() -> str:
    """Return the table for the documentation, with the values for OpenCV 5."""
    rows = [
        "| | levels of 255 | photos and noise | worst cases | why |",
        "|---|--:|--:|--:|---|",
    ]
    for name, (levels, share, worst, reason) in TOLERANCES.items():
        rows.append(f"| {name} | {levels:g} | {100 * share:g}% | {100 * worst:g}% | {reason} |")
    return "\n".join(rows)


# For tensors of other dtypes, in the numbers of the dtype. Half precision is compared with single precision
# that is rounded once; bicubic integers with clipped ones, which torchvision wraps around; integers that are
# resized or blurred with rounded ones: torchvision drops the fraction of uint16.
OF_WIDE_IMAGES = {
    "resize, integers": Tolerance(0, 1, 1, "the same PyTorch kernel, rounded"),
    "resize, floats": Tolerance(0, 1, 1, "the same PyTorch kernel"),
    "resize, not antialiased, integers": Tolerance(1, 1, 1, "OpenCV's single precision, in another order"),
    "resize, not antialiased, floats": Tolerance(1e-3, 1, 1, "OpenCV's single precision; half has 11 bits"),
    "warp": Tolerance(0, 0, 0, "torchvision's own steps"),
    "to dtype": Tolerance(1e-6, 1, 1, "one product, by a rounded factor"),
    "to half": Tolerance(0.0005, 1, 1, "of uint8 in half precision, in one step"),
    "colour": Tolerance(
        1, 1, 1, "single precision, in another order, then the fraction of integers is dropped"
    ),
    "blur": Tolerance(1, 1, 1, "single precision, in another order"),
}
