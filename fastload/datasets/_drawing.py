"""Annotations drawn onto an image: boxes with class names, polygons, masks, keypoints, oriented boxes."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.images.polygons import Patch, Ring, drawn
from fastload.transforms.samples import SampleParts

Colour = tuple[int, int, int]

_FONT, _FONT_SCALE, _MOST_CHARACTERS = cv2.FONT_HERSHEY_SIMPLEX, 0.38, 20
_OPACITY = 0.4
_FRACTION_BITS = 4  # in coordinates for OpenCV's drawing functions

# The golden ratio as a share of the circle of hues: neighbouring classes get very different colours.
_HUE_STEP = 0.618034


def draw_objects(
    picture: Pixels, target: Mapping[str, object], size: tuple[int, int], names: Sequence[object]
) -> None:
    """Draw the objects and the mask of a target like those of PackedDataset onto a picture, in place.

    `size` is the (height, width) of the image to which the coordinates belong; `names` lists class names.
    """
    objects = SampleParts(target, size).annotations.resized(*picture.shape[:2])
    labels = torch.as_tensor(objects.labels).tolist()
    if objects.mask is not None:
        palette = np.array([colour_of(label) for label in range(256)], np.uint8)
        _blend(picture, objects.mask > 0, palette[objects.mask.astype(np.int64) % len(palette)])
    polygons = objects.polygons or []
    patches = drawn(polygons, objects.size)
    for rings, patch, label in zip(polygons, patches, labels, strict=False):
        _draw_rings(picture, rings, patch, colour_of(label))
    for corners, label in zip(_rows(objects.corners), labels, strict=False):
        cv2.polylines(picture, [_fixed(corners)], True, colour_of(label), 1, cv2.LINE_AA, _FRACTION_BITS)
    boxes = objects.boxes
    if objects.corners is not None:
        boxes = np.concatenate((objects.corners.min(axis=1), objects.corners.max(axis=1)), axis=1)
    for box, label in zip(boxes.tolist(), labels, strict=True):
        left, top, right, bottom = (round(side) for side in box)
        if objects.corners is None:
            cv2.rectangle(picture, (left, top), (right - 1, bottom - 1), colour_of(label), 1)
        _draw_tag(picture, _name_of(label, names), left, top, colour_of(label))
    for points, label in zip(_rows(objects.keypoints), labels, strict=False):
        for x, y, is_seen in points.tolist():
            if is_seen:
                cv2.circle(picture, (round(x), round(y)), 3, (255, 255, 255), -1, cv2.LINE_AA)
                cv2.circle(picture, (round(x), round(y)), 2, colour_of(label), -1, cv2.LINE_AA)


def colour_of(label: int) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(label * _HUE_STEP % 1, 0.85, 0.95)
    return int(red * 255), int(green * 255), int(blue * 255)


def write_text(picture: Pixels, text: str, left: int, baseline: int, colour: Colour) -> None:
    """Write one line of text; OpenCV's fonts have only ASCII."""
    printable = text.encode("ascii", "replace").decode()
    cv2.putText(picture, printable, (left, baseline), _FONT, _FONT_SCALE, colour, 1, cv2.LINE_AA)


def _draw_rings(picture: Pixels, rings: Sequence[Ring], patch: Patch, colour: Colour) -> None:
    part = patch.view(picture)
    _blend(part, patch.pixels > 0, np.broadcast_to(np.array(colour, np.uint8), part.shape))
    points = [_fixed(ring) for ring in rings if len(ring)]
    cv2.polylines(picture, points, True, colour, 1, cv2.LINE_AA, _FRACTION_BITS)


def _draw_tag(picture: Pixels, name: str, left: int, top: int, colour: Colour) -> None:
    """Write a class name on its colour above the corner of a box, or inside where there is no room above."""
    name = name[:_MOST_CHARACTERS]
    (width, height), _ = cv2.getTextSize(name, _FONT, _FONT_SCALE, 1)
    left = max(0, min(left, picture.shape[1] - width - 4))
    top = max(0, top - height - 5 if top >= height + 5 else top)
    cv2.rectangle(picture, (left, top), (left + width + 3, top + height + 4), colour, -1)
    red, green, blue = colour
    # White on dark colours, black on light ones, by the luma of ITU-R BT.601.
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
    write_text(picture, name, left + 2, top + height + 2, (0, 0, 0) if is_light else (255, 255, 255))


def _blend(picture: Pixels, where: NDArray[np.bool_], colours: Pixels) -> None:
    mixed = picture[where] * (1 - _OPACITY) + colours[where] * _OPACITY
    picture[where] = mixed.astype(np.uint8)


def _fixed(points: NDArray[np.floating]) -> NDArray[np.int32]:
    # The origin of OpenCV is the centre of the first pixel, not its corner.
    fixed: NDArray[np.int32] = np.rint((points - 0.5) * (1 << _FRACTION_BITS)).astype(np.int32)
    return fixed


def _name_of(label: int, names: Sequence[object]) -> str:
    return str(names[label]) if 0 <= label < len(names) else str(label)


def _rows(array: NDArray[np.float32] | None) -> Sequence[NDArray[np.float32]]:
    return () if array is None else list(array)
