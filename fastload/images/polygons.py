"""Polygons drawn as masks, by the rule of COCO's own tools, and the polygons around a mask.

The rule (pycocotools): points are rounded to fifths of a pixel, and the line between two points takes one
fifth after the other along its longer side. Where a polygon crosses the middle of a column of pixels, the
pixels whose middle lies below change between inside and outside. Thus a square of 10 x 10 has 100 pixels, a
polygon that crosses itself has holes, and an object is the union of its polygons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Size
from fastload.images.opencv import cv2

# (points, 2): x and y; (0, 0) is the corner of the first pixel. Rounded coordinates would fill other pixels.
Ring = NDArray[np.float64]
Integers = NDArray[np.int64]

_Level = TypeVar("_Level", bound=np.generic)

_FIFTHS = 5
_MIDDLE = 2  # the middle of a pixel lies between its fifths 2 and 3


class Patch(NamedTuple):
    """The part of an image that holds an object: 1 at its pixels, 0 at others; empty if it has no pixels."""

    top: int
    left: int
    pixels: NDArray[np.uint8]

    def view(self, image: NDArray[_Level], top: int = 0, left: int = 0) -> NDArray[_Level]:
        """Return this part of an image, or of one that begins at `top` and `left`."""
        rows, columns = self.pixels.shape
        down, right = self.top - top, self.left - left
        return image[down : down + rows, right : right + columns]


def drawn(objects: Sequence[Sequence[Ring]], size: Size) -> list[Patch]:
    """Return the pixels within the polygons of each object, in an image of (height, width)."""
    rings = [ring for own in objects for ring in own]
    columns, rows, counts = _crossings(rings, size)
    object_of_ring = np.repeat(np.arange(len(objects)), [len(own) for own in objects])
    boxes = _boxes(columns, rows, np.repeat(object_of_ring, counts), len(objects))
    filled = iter(_filled(columns, rows, counts, boxes[object_of_ring]))
    patches = []
    for own, (top, left, height, width) in zip(objects, boxes.tolist(), strict=True):
        pixels = np.zeros((width, height), np.uint8)
        for _ in own:
            pixels |= next(filled).reshape(width, height)
        # cv2.transpose refuses arrays without pixels.
        turned = np.asarray(cv2.transpose(pixels) if pixels.size else pixels.T, np.uint8)
        patches.append(Patch(top, left, turned))
    return patches


def outlines(mask: NDArray[np.uint8]) -> list[NDArray[np.float64]]:
    """Return the polygons along the edges of a mask's pixels, which are drawn as the same mask.

    A hole is a part of the polygon around it, which goes there and back along one line.
    """
    # Around pixels of twice the size, the points of a contour round to the corners of the original pixels.
    doubled = np.repeat(np.repeat(mask, 2, axis=0), 2, axis=1)
    contours, tree = cv2.findContours(doubled, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    rounded = [(contour.reshape(-1, 2).astype(np.int64) + 1) // 2 for contour in contours]
    corners = [points[(points != np.roll(points, 1, axis=0)).any(axis=1)] for points in rounded]
    parents = [] if tree is None else tree[0, :, 3].tolist()
    rings = {index: [corners[index]] for index, parent in enumerate(parents) if parent < 0}
    for hole, parent in zip(corners, parents, strict=True):
        if parent >= 0:
            # To the hole from the first point, around it, and from where it began back to the first point.
            rings[parent] += [rings[parent][0][:1], hole, hole[:1]]
    return [np.concatenate(parts).astype(np.float64) for parts in rings.values()]


def _boxes(columns: Integers, rows: Integers, owners: Integers, count: int) -> Integers:
    """Return top, left, height and width of what each of `count` objects covers: (count, 4)."""
    boxes = np.zeros((count, 4), np.int64)
    if len(owners):
        seen, starts = np.unique(owners, return_index=True)
        crossings = np.stack((rows, columns), axis=1)
        boxes[seen, :2] = np.minimum.reduceat(crossings, starts)
        boxes[seen, 2:] = np.maximum.reduceat(crossings, starts) - boxes[seen, :2] + (0, 1)
    return boxes


def _filled(columns: Integers, rows: Integers, counts: Integers, boxes: Integers) -> list[NDArray[np.uint8]]:
    """Return the pixels of each polygon in a box around it, one column after the other."""
    areas = boxes[:, 2] * boxes[:, 3]
    ends = np.cumsum(areas)
    tops, lefts, heights, starts = np.repeat(np.column_stack((boxes[:, :3], ends - areas)), counts, axis=0).T
    places = starts + (columns - lefts) * heights + rows - tops
    places.sort()
    # The crossings before a pixel decide about it; those in other columns, and of other polygons, are even.
    lengths = np.diff(places, prepend=0, append=areas.sum())
    inside = np.repeat(np.arange(len(lengths), dtype=np.uint8) & 1, lengths)
    return [inside[end - area : end] for end, area in zip(ends.tolist(), areas.tolist(), strict=True)]


def _crossings(rings: Sequence[Ring], size: Size) -> tuple[Integers, Integers, Integers]:
    """Return where polygons cross the middles of columns: columns and rows, and how many each polygon has."""
    lengths = np.array([len(ring) for ring in rings], np.int64)
    points = np.concatenate([np.zeros((0, 2)), *rings])
    points = (points * _FIFTHS + 0.5).astype(np.int64)
    ends, some = np.cumsum(lengths), lengths > 0
    following = np.roll(points, -1, axis=0)
    following[ends[some] - 1] = points[(ends - lengths)[some]]

    run, rise = np.abs(following - points).T
    # Lines are followed towards larger numbers along their longer side, whatever their direction.
    is_after = points > following
    is_backward = np.where(run >= rise, is_after[:, 0], is_after[:, 1])[:, None]
    begin, end = np.where(is_backward, following, points), np.where(is_backward, points, following)
    low = -((_MIDDLE - np.minimum(begin[:, 0], end[:, 0])) // _FIFTHS)
    high = (np.maximum(begin[:, 0], end[:, 0]) - _MIDDLE - 1) // _FIFTHS
    low, high = np.maximum(low, 0), np.minimum(high, size[1] - 1)
    counts = np.maximum(high - low + 1, 0)
    lines, totals = np.repeat(np.arange(len(points)), counts), np.cumsum(counts)
    columns = np.arange(len(lines)) + (low - totals + counts)[lines]

    middles, fifths = columns * _FIFTHS + _MIDDLE, np.empty(len(lines), np.int64)
    is_flat = (run >= rise)[lines]
    for of_lines, chosen in ((_on_flat, is_flat), (_on_steep, ~is_flat)):
        fifths[chosen] = of_lines(middles[chosen], begin[lines[chosen]], end[lines[chosen]])
    rows = np.clip((fifths + _MIDDLE) // _FIFTHS, 0, size[0])
    return columns, rows, np.diff(np.concatenate(([0], totals))[ends], prepend=0)


def _on_flat(middles: Integers, begin: Integers, end: Integers) -> Integers:
    """Return the upper one of the fifths before and after the middles of columns, of lines that follow x."""
    slope = (end[:, 1] - begin[:, 1]) / (end[:, 0] - begin[:, 0])
    before = middles - begin[:, 0]
    fifths = np.minimum(*(begin[:, 1] + slope * each + 0.5 for each in (before, before + 1)))
    return np.asarray(fifths.astype(np.int64))


def _on_steep(middles: Integers, begin: Integers, end: Integers) -> Integers:
    """Return the last fifths before the middles of columns, of lines that follow y."""
    slope = (end[:, 0] - begin[:, 0]) / (end[:, 1] - begin[:, 1])
    guess = np.floor((middles + 0.5 - begin[:, 0]) / slope)
    steps = guess - 1
    for each in (guess, guess + 1):
        x = begin[:, 0] + slope * each + 0.5
        steps += np.where(slope > 0, x < middles + 1, x >= middles + 1)
    return begin[:, 1] + steps.astype(np.int64)
