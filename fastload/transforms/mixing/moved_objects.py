"""Objects of images made of several others: moved with their pixels, cut and filtered as Ultralytics does.

Coordinates of objects go through the same numbers as those of pixels, as in Ultralytics; a matrix that scales
by s therefore moves them by (s - 1) / 2 of a pixel relative to the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import Size
from fastload.images.canvas import UNLABELLED, Canvas, Matrix, Placement, warped
from fastload.images.opencv import cv2
from fastload.images.polygons import Ring
from fastload.transforms.annotations import Annotations, Floats, Mask, MoveMask, joined
from fastload.transforms.options import MaskFill

# The points of a polygon that is cut off at an edge: as many as Ultralytics gives to every polygon.
_POINTS = 1000

# An object stays if its box keeps both sides above 2 pixels, a ratio of sides below 100, and this share of
# its area: Ultralytics' `box_candidates`.
OUTSIDE = MaskFill(UNLABELLED)

_LEAST_SIDE, _MOST_RATIO = 2, 100
_LEAST_AREA, _LEAST_AREA_OF_OUTLINE = 0.1, 0.01


def on_canvas(canvas: Canvas, objects: Sequence[Annotations]) -> Annotations:
    """Return the objects of all images on a canvas, in its pixels, cut off at its edges."""
    parts = []
    for place in canvas.placements:
        factors = place.size[1] / place.stored[1], place.size[0] / place.stored[0]
        shifts, move_mask = (place.left, place.top), mask_placer(place, canvas.size)
        parts.append(objects[place.image].rescaled(factors, shifts, canvas.size, move_mask, OUTSIDE))
    if len(parts) == 1:
        return parts[0]
    classes = np.full(canvas.size, UNLABELLED, np.uint8)
    for place, part in zip(canvas.placements, parts, strict=True):
        if part.mask is not None:
            x1, y1, x2, y2 = place.within(canvas.bounds)
            classes[y1:y2, x1:x2] = part.mask[y1:y2, x1:x2]
    mask = None if all(part.mask is None for part in parts) else classes
    cut = cut_to_image(joined(parts, canvas.size, mask))
    return cut.chosen(np.asarray((cut.boxes[:, 2:] > cut.boxes[:, :2]).all(axis=1)))


def through_matrix(objects: Annotations, matrix: Matrix, output: Size, scale: float) -> Annotations:
    """Return objects moved by a matrix, cut off at the output's edges, without those that are lost.

    `scale` is the matrix's: an object's area is compared with that before, times its square.
    """

    def move_mask(mask: Mask, fill: int) -> Mask:
        return warped(mask, matrix, output, cv2.INTER_NEAREST, fill)

    moved = objects.warped(matrix, output, move_mask, OUTSIDE)
    if moved.polygons is not None:
        boxes, polygons = moved.boxes.copy(), []
        for row, rings in enumerate(moved.polygons):
            if rings:
                boxes[row] = seen_box(rings, output)
            polygons.append([_cut_outline(ring, boxes[row].tolist()) for ring in rings])
        moved = replace(moved, boxes=boxes, polygons=polygons)
    moved = cut_to_image(moved)
    has_outlines = objects.polygons is not None or objects.corners is not None
    least = _LEAST_AREA_OF_OUTLINE if has_outlines else _LEAST_AREA
    before, after = objects.boxes * np.float32(scale), moved.boxes
    was, now = before[:, 2:] - before[:, :2], after[:, 2:] - after[:, :2]
    ratio = now.max(axis=1, initial=0) / (now.min(axis=1, initial=np.inf) + 1e-16)
    share = now.prod(axis=1) / (was.prod(axis=1) + 1e-16)
    is_kept = (now > _LEAST_SIDE).all(axis=1) & (share > least) & (ratio < _MOST_RATIO)
    return moved.chosen(np.asarray(is_kept))


def shares_covered(covers: Floats, boxes: Floats) -> NDArray[np.floating]:
    """Return which share of each box each cover hides, (covers, boxes)."""
    low = np.maximum(covers[:, None, :2], boxes[:, :2])
    high = np.minimum(covers[:, None, 2:], boxes[:, 2:])
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return np.asarray((high - low).clip(0).prod(axis=2) / (areas + 1e-7))


def seen_box(rings: Sequence[Ring], size: Size) -> list[float]:
    """Return the box around what an image shows of polygons, x1 y1 x2 y2; zeros if it shows nothing."""
    high = np.array(size[::-1], np.float32)
    found: list[NDArray[np.floating]] = []
    for ring in rings:
        is_inside = ((ring >= 0) & (ring <= high)).all(axis=1)
        found.append(ring[is_inside])
        if not is_inside.all():
            found.append(_at_edges(ring, high))
    points = np.concatenate(found)
    return [*points.min(axis=0).tolist(), *points.max(axis=0).tolist()] if len(points) else [0.0] * 4


def resampled(ring: Ring, count: int = _POINTS) -> Ring:
    """Return a closed polygon with `count` points, its own and others evenly between them."""
    if len(ring) == count:
        return ring
    closed = np.concatenate((ring, ring[:1]))
    own, last = np.arange(len(closed)), len(closed) - 1
    places = np.linspace(0.0, last, count)
    if len(closed) < count:
        places = np.sort(np.concatenate((np.linspace(0.0, last, count - len(closed)), own)))
    sides = [np.interp(places, own, closed[:, axis]) for axis in (0, 1)]
    return np.stack(sides, axis=1)


def mask_placer(place: Placement, canvas: Size) -> MoveMask:
    """Return the function that moves a mask of an image onto the canvas."""
    x1, y1, x2, y2 = place.within((0, 0, canvas[1], canvas[0]))
    left, top = place.left, place.top

    def move(mask: Mask, fill: int) -> Mask:
        moved = np.full(canvas, fill, np.uint8)
        resized = cv2.resize(mask, place.size[::-1], interpolation=cv2.INTER_NEAREST)
        moved[y1:y2, x1:x2] = resized[y1 - top : y2 - top, x1 - left : x2 - left]
        return moved

    return move


def cut_to_image(objects: Annotations) -> Annotations:
    """Return objects cut off at the image's edges; of what lies outside, an empty box is left."""
    if all(each is None for each in (objects.polygons, objects.keypoints, objects.corners)):
        return objects  # boxes are cut off wherever they are moved
    height, width = objects.size
    cut = replace(objects)
    if objects.polygons is not None:
        edges = (0, 0, width, height)
        cut.polygons = [[_cut_outline(ring, edges) for ring in rings] for rings in objects.polygons]
    if objects.keypoints is not None:
        points, high = objects.keypoints[..., :2], np.array((width, height), np.float32)
        is_inside = ((points >= 0) & (points <= high)).all(axis=-1, keepdims=True)
        visibility = objects.keypoints[..., 2:] * is_inside
        cut.keypoints = np.concatenate((points.clip(0, high), visibility), axis=-1)
    if objects.corners is not None:
        cut.corners, cut.boxes = _cut_oriented(objects.corners, objects.boxes, objects.size)
    return cut


def _cut_outline(ring: Ring, edges: Sequence[float]) -> Ring:
    """Return a polygon with its points moved to the nearest place within edges, x1 y1 x2 y2."""
    low, high = np.array(edges[:2]), np.array(edges[2:])
    if ((ring >= low) & (ring <= high)).all():
        return ring
    return resampled(ring).clip(low, high)


def _cut_oriented(corners: Floats, boxes: Floats, size: Size) -> tuple[Floats, Floats]:
    """Return oriented boxes around what is seen of them, with their angles, and their upright boxes."""
    corners, boxes = corners.copy(), boxes.copy()
    width, height = float(size[1]), float(size[0])
    image = np.array(((0, 0), (width, 0), (width, height), (0, height)), np.float32)
    is_inside = ((corners >= 0) & (corners <= image[2])).all(axis=(1, 2))
    boxes[is_inside] = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)[is_inside]
    for row in np.flatnonzero(~is_inside).tolist():
        area, seen = cv2.intersectConvexConvex(cv2.convexHull(corners[row]), image)
        if seen is None or area <= 0:
            corners[row], boxes[row] = 0, 0
            continue
        points = seen.reshape(-1, 2)
        boxes[row] = *points.min(axis=0), *points.max(axis=0)
        _, (across, along), degrees = cv2.minAreaRect(corners[row])
        angle = np.deg2rad(degrees + 90 if across < along else degrees)
        basis = np.array(((np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))), np.float32)
        (u1, v1), (u2, v2) = (points @ basis).min(axis=0), (points @ basis).max(axis=0)
        corners[row] = np.array(((u2, v2), (u2, v1), (u1, v1), (u1, v2)), np.float32) @ basis.T
    return corners, boxes


def _at_edges(ring: Ring, high: Floats) -> Floats:
    """Return where a polygon crosses the edges of an image, and the image's corners inside the polygon."""
    step = np.roll(ring, -1, axis=0) - ring
    found = []
    for axis, edge in ((0, 0.0), (0, float(high[0])), (1, 0.0), (1, float(high[1]))):
        here = ring[:, axis] - edge
        crosses = (here < 0) != (here + step[:, axis] < 0)
        points = ring[crosses] - step[crosses] * (here[crosses] / step[crosses, axis])[:, None]
        points[:, axis] = edge
        found.append(points[(points[:, 1 - axis] >= 0) & (points[:, 1 - axis] <= high[1 - axis])])
    corners = np.array(((0, 0), (high[0], 0), (0, high[1]), high), np.float32)
    outline = ring.astype(np.float32)
    is_covered = [cv2.pointPolygonTest(outline, tuple(map(float, each)), False) >= 0 for each in corners]
    return np.concatenate((*found, corners[is_covered])).astype(np.float32)
