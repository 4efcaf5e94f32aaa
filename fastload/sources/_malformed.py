"""Errors about malformed sources, and the checks of numbers and boxes that layouts share."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError

Floats = npt.NDArray[np.float64]

_STEP = "correct or remove it"
_MOST_CHARACTERS = 300
# Boxes end up to this share of a side beyond their image in CPPE-5 and others; corners much further.
_MARGIN = 0.1


def malformed(where: str, must: str, got: object, step: str = _STEP) -> SourceError:
    """Return the error that a place must be or hold one thing, and got another."""
    # repr() of a list that holds another one many times over, as YAML can say it, might never end.
    shown = reprlib.repr(got) if isinstance(got, list | tuple | dict) else str(got)
    return SourceError(f"{where}: must {must}, got {shown[:_MOST_CHARACTERS]}: {step}")


def finite_numbers(value: object, where: str, name: str) -> list[float]:
    """Return a list of JSON's numbers as floats; raise SourceError unless all are finite."""
    if not isinstance(value, list):
        raise malformed(where, f"have a list of numbers as {name}", value)
    for number in value:
        if not is_finite(number):
            raise malformed(where, f"have finite numbers in {name}", number)
    return [float(number) for number in value]


def is_finite(value: object) -> bool:
    """Return True for a number of JSON that float64 holds, and is neither NaN nor true."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def is_text(value: object) -> TypeGuard[str]:
    """Return True for a text that UTF-8 can hold: JSON and YAML can write halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def numbers_of(cells: Sequence[str]) -> list[float] | None:
    """Return the finite numbers that texts are; None if one of them is something else."""
    text = "".join(cells)
    if "_" in text or not text.isascii():  # float() takes 1_0, and the digits of all scripts
        return None
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def are_corners(boxes: Floats, sides: Floats) -> bool:
    """Return True if boxes given as x, y, width, height can only be x1 y1 x2 y2 of images of these sides.

    All of them lie in their images if read so, and one ends far outside of its image if not.
    """
    begin, end = boxes[:, :2], boxes[:, 2:]
    is_inside = (begin >= 0) & (begin <= end) & (end <= sides * (1 + _MARGIN))
    return bool(is_inside.all() and (begin + end > sides * (1 + _MARGIN)).any())


def can_only_be_corners(boxes: Sequence[Floats], sides_of: Callable[[int], tuple[int, int] | None]) -> bool:
    """Return True if the boxes of images can only be corners; `sides_of` reads the size of one of them.

    It is not called if one box is no pair of corners: of datasets of x, y, width, height, nearly always.
    """
    every = np.concatenate([np.zeros((0, 4)), *boxes])
    if not ((every[:, :2] >= 0) & (every[:, :2] <= every[:, 2:])).all():
        return False
    sides = ((each, sides_of(index)) for index, each in enumerate(boxes) if len(each))
    return any(side is not None and are_corners(each, np.array(side)) for each, side in sides)


def are_fractions(boxes: Floats, sides: Floats) -> bool:
    """Return True if boxes given in pixels are fractions of their images."""
    return bool(boxes.any() and boxes.max() <= 1 and sides.min() > 1)


def require_inside(boxes: Floats, sides: tuple[int, int], where: str, must: str, step: str = _STEP) -> None:
    """Raise SourceError unless boxes x, y, width, height are finite, and lie in an image of these sides.

    They may end somewhat beyond it.
    """
    slack = np.multiply(sides, _MARGIN)
    is_right = np.isfinite(boxes).all(axis=1) & (boxes[:, 2:] >= 0).all(axis=1)
    is_right &= (boxes[:, :2] >= -slack).all(axis=1)
    is_right &= (boxes[:, :2] + boxes[:, 2:] <= np.add(sides, slack)).all(axis=1)
    if not is_right.all() or (len(boxes) and are_fractions(boxes, np.array(sides))):
        image = "its image" if sides == (1, 1) else f"its image, {sides[0]} wide and {sides[1]} high"
        raise malformed(where, f"{must} of {image}", boxes[np.argmin(is_right)].tolist(), step)
