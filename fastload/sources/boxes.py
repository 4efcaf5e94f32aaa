"""Checks that boxes have the format and the units that their layout states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError
from fastload.images.header import read_header
from fastload.images.region import swaps_sides
from fastload.sources.malformed import CORRECT, malformed

Coordinates = npt.NDArray[np.float64]
Sides = tuple[int, int]  # width, height

# In CPPE-5 and other datasets, boxes end beyond the image by up to this share of its side. Corners that are
# read as x, y, width, height end much further out.
_MARGIN = 0.1


def to_xywh(boxes: Coordinates, box_format: str | None) -> Coordinates:
    """Return boxes (objects, 4) of a format as x, y, width, height."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if box_format == "xyxy":
        second = second - first
    elif box_format == "cxcywh":
        first = first - second / 2
    return np.concatenate([first, second], axis=1)


def upright_sides(image: bytes) -> Sides | None:
    """Return the width and height of an image; None if it cannot be read.

    Both are the larger side if the EXIF orientation swaps the sides: boxes may be in either frame.
    """
    try:
        header = read_header(image)
    except FastloadError:
        return None  # packing reports it
    sides = header.width, header.height
    return (max(sides), max(sides)) if swaps_sides(header.orientation) else sides


def require_pixels(
    where: str, must: str, step: str, boxes: Sequence[Coordinates], sides_of: Callable[[int], Sides | None]
) -> None:
    """Raise SourceError if boxes given as x, y, width, height can only be fractions, or corners.

    Boxes are taken for corners if every box is valid as x1, y1, x2, y2, and if, for some image, all boxes lie
    inside it as corners while one ends far outside it as x, y, width, height. `sides_of` returns the sides of
    the image at an index; it is seldom called.
    """
    all_boxes = np.concatenate([np.zeros((0, 4)), *boxes])
    are_small = bool(all_boxes.any() and all_boxes.max() <= 1)
    are_pairs = ((all_boxes[:, :2] >= 0) & (all_boxes[:, :2] <= all_boxes[:, 2:])).all()
    if not are_small and not are_pairs:
        return
    for index, of_image in enumerate(boxes):
        sides = sides_of(index) if len(of_image) else None
        if sides is None:
            continue
        if are_small and min(sides) > 1:
            raise malformed(where, must, "fractions in all", step)
        farthest = np.multiply(sides, 1 + _MARGIN)
        are_corners = are_pairs and (of_image[:, 2:] <= farthest).all()
        if are_corners and (of_image[:, :2] + of_image[:, 2:] > farthest).any():
            raise malformed(where, must, "x1 y1 x2 y2 in all", step)


def require_inside(
    boxes: Coordinates, sides: Sides, where: str, must: str, shown: Sequence[object], step: str = CORRECT
) -> None:
    """Raise SourceError unless boxes (x, y, width, height) are finite and lie in an image of these sides.

    They may end slightly beyond it. Fractions are refused if `sides` are in pixels. `shown` holds the boxes
    as the source states them.
    """
    slack = np.multiply(sides, _MARGIN)
    is_right = np.isfinite(boxes).all(axis=1) & (boxes[:, 2:] >= 0).all(axis=1)
    is_right &= (boxes[:, :2] >= -slack).all(axis=1)
    is_right &= (boxes[:, :2] + boxes[:, 2:] <= np.add(sides, slack)).all(axis=1)
    are_fractions = boxes.any() and boxes.max() <= 1 < min(sides)
    if not is_right.all() or are_fractions:
        image = "its image" if sides == (1, 1) else f"its image, {sides[0]} wide and {sides[1]} high"
        raise malformed(where, f"{must} of {image}", shown[int(np.argmin(is_right))], step)
