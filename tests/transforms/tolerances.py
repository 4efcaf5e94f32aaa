"""How far pixels may lie from torchvision's, given the same parameters: one table, with reasons."""

from typing import NamedTuple

import cv2
import numpy as np

# OpenCV 4 looks up a place between pixels in 32nds of a pixel, OpenCV 5 computes it.
_IS_COARSE = int(cv2.__version__.split(".")[0]) < 5


class Tolerance(NamedTuple):
    """Levels of 255 that a value may differ by, the share of values that may differ, and why."""

    levels: float
    share: float
    reason: str


_EXACT = "whole numbers moved, or the same table of 256 levels"
_GREY = "grey is rounded down from 10 bits a weight; torchvision's is from 24"

TOLERANCES = {
    "crop": Tolerance(0, 0, _EXACT),
    "flip": Tolerance(0, 0, _EXACT),
    "pad": Tolerance(0, 0, _EXACT),
    "erase": Tolerance(0, 0, _EXACT),
    "brightness": Tolerance(0, 0, _EXACT),
    "posterize": Tolerance(0, 0, _EXACT),
    "solarize": Tolerance(0, 0, _EXACT),
    "autocontrast": Tolerance(0, 0, "the same single-precision division"),
    "equalize": Tolerance(0, 0, "the same whole numbers"),
    "resize": Tolerance(0, 0, "the same kernel of PyTorch's"),
    "resize of PIL images": Tolerance(1, 1, "both round products of integers, in another order"),
    "resize, nearest": Tolerance(255, 0.35, "of two rows equally near OpenCV takes the other"),
    "resize, not antialiased": Tolerance(1, 0.5, "OpenCV's weights have 11 bits"),
    "resize, bicubic, not antialiased": Tolerance(
        40, 1, "torch rounds and clips between rows and columns; OpenCV does so once, and is closer to exact"
    ),
    "grey": Tolerance(1, 0.04, _GREY),
    "contrast": Tolerance(1, 0.06, f"{_GREY}, so the mean differs by hundredths"),
    "saturation": Tolerance(2, 0.12, f"{_GREY}; a level of grey counts up to 1.5 times here"),
    "hue": Tolerance(1, 0.01, "single precision, in another order, then rounded down"),
    "sharpness": Tolerance(1, 0.02, "whole numbers before rounding down may come out a bit below in torch"),
    "colour jitter": Tolerance(6, 0.3, "each step rounds, and a later one may enlarge the difference"),
    "blur": Tolerance(1, 0.001, "single precision, in another order"),
    "warp, nearest": Tolerance(
        255, 0.003 if _IS_COARSE else 0.0005, "halfway between two pixels either is right"
    ),
    "warp, bilinear": (
        Tolerance(255 / 16, 1, "OpenCV 4 interpolates at 32nds of a pixel")
        if _IS_COARSE
        else Tolerance(1, 0.05, "single precision, in another order; edges are rounded twice")
    ),
    "rescale": Tolerance(
        0.0005,
        1,
        "one multiplication and one addition in float32; of float16 and bfloat16 two units in the last place",
    ),
    "mix": Tolerance(1e-4, 1, "one interpolation in place of two products and a sum"),
    "mix of bytes": Tolerance(0.5001, 1, "rounded to whole levels"),
}


def assert_close(ours: np.ndarray, theirs: np.ndarray, name: str, spare: int = 0) -> None:
    """Requires two images to agree as the table says; `spare` pixels more, for images of few pixels."""
    tolerance = TOLERANCES[name]
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(np.float64) - theirs)
    assert difference.max() <= tolerance.levels, f"{difference.max()} levels: {tolerance}"
    count = np.count_nonzero(difference)
    assert count <= tolerance.share * difference.size + spare, f"{count} of {difference.size}: {tolerance}"


def as_markdown() -> str:
    """The table for the documentation, as it stands with OpenCV 5."""
    rows = ["| | levels of 255, at most | share of values, at most | why |", "|---|--:|--:|---|"]
    for name, (levels, share, reason) in TOLERANCES.items():
        rows.append(f"| {name} | {levels:g} | {100 * share:g} % | {reason} |")
    return "\n".join(rows)
