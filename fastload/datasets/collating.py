"""Collation of samples with objects, for a DataLoader: lists of targets, or the batch of Ultralytics.

In fastload's DataLoader, each tensor is copied once: images are stacked in shared memory, and all others are
copied there from the samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels
from fastload.images.opencv import cv2
from fastload.images.polygons import Ring, drawn

_MASK_SCALE = 4  # masks of Ultralytics have a quarter of the height and width of the image

_MOST_IN_A_BYTE = 255


def collate_lists(samples: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Return (images, targets), a list of each, as torchvision's detection models take them.

    Images may differ in size, and targets in their number of objects: nothing is stacked or padded.

    Example:
        >>> loader = fastload.DataLoader(data, 8, collate_fn=fastload.collate_lists)  # doctest: +SKIP
    """
    return [image for image, _ in samples], [target for _, target in samples]


def collate_ultralytics(samples: Sequence[tuple[torch.Tensor, dict[str, Any]]]) -> dict[str, Any]:
    """Return the batch that Ultralytics' models are trained on, from samples with images of one size.

    Returns:
        `img`, (images, 3, height, width), as the samples have it; of all objects, `cls` (objects, 1) and
        `bboxes` (objects, 4), float32, centre, width and height relative to the image; `batch_idx`,
        (objects,) float32, the image of each. If samples have them: `keypoints` relative to the image;
        `masks` (images, height / 4, width / 4) of the polygons, uint8, numbered from 1 in each image, small
        objects above large ones, drawn as by Ultralytics, or for COCO's targets, which have `iscrowd`, as by
        pycocotools; and for oriented boxes, `bboxes` (objects, 5), with the angle in radians.

    Raises:
        OptionError: The images differ in size.
    """
    images = [image for image, _ in samples]
    targets = [target for _, target in samples]
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise OptionError(
            f"collate_ultralytics must be given images of one size, got {sorted(shapes)}: end the transform "
            "with one size, or use collate_lists"
        )
    height, width = images[0].shape[-2:]
    sides = torch.tensor((width, height), dtype=torch.float32)
    counts = [len(target["boxes"]) for target in targets]
    boxes = torch.cat([target["boxes"] for target in targets])
    firsts, lasts = boxes[:, :2], boxes[:, 2:]
    batch = {
        "img": _stacked(images),
        "cls": torch.cat([target["labels"] for target in targets]).float()[:, None],
        "bboxes": torch.cat(((firsts + lasts) / (2 * sides), (lasts - firsts) / sides), dim=1),
        "batch_idx": torch.repeat_interleave(torch.arange(len(targets)), torch.tensor(counts)).float(),
    }
    if "corners" in targets[0]:
        batch["bboxes"] = _rotated(torch.cat([target["corners"] for target in targets]), sides)
    if "keypoints" in targets[0]:
        points = torch.cat([target["keypoints"] for target in targets]).clone()
        points[..., :2] /= sides
        batch["keypoints"] = points
    if "polygons" in targets[0]:
        dtype: DType = np.dtype(np.uint8) if max(counts) <= _MOST_IN_A_BYTE else np.dtype(np.int32)
        numbered = [_numbered(target, height, width, dtype) for target in targets]
        batch["masks"] = default_collate([torch.from_numpy(mask) for mask, _ in numbered])
        begins = np.cumsum([0, *counts[:-1]])
        orders = [begin + order for begin, (_, order) in zip(begins, numbered, strict=True)]
        order = torch.from_numpy(np.concatenate(orders))
        batch |= {name: batch[name][order] for name in ("cls", "bboxes", "keypoints") if name in batch}
    return batch


def _stacked(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return images stacked in their own memory format; in a worker of fastload, in shared memory."""
    if images[0].dim() == 3 and images[0].permute(1, 2, 0).is_contiguous():
        rows: torch.Tensor = default_collate([image.permute(1, 2, 0) for image in images])
        return rows.permute(0, 3, 1, 2)
    batch: torch.Tensor = default_collate(list(images))
    return batch


def _numbered(
    target: dict[str, Any], height: int, width: int, dtype: DType
) -> tuple[Pixels, NDArray[np.int64]]:
    """Return Ultralytics' mask of an image, and its objects in the order of their numbers in the mask.

    As in Ultralytics, polygons are filled at full size and then reduced; here, only the part around each is.
    """
    mask = np.zeros((height // _MASK_SCALE, width // _MASK_SCALE), dtype)
    is_divisible = height % _MASK_SCALE == width % _MASK_SCALE == 0
    polygons = [[np.asarray(ring) for ring in rings] for rings in target["polygons"]]
    parts = [_part(rings, height, width) if is_divisible else (0, 0, height, width) for rings in polygons]
    if "iscrowd" in target:
        patches = drawn(polygons, (height, width))
        whole = [np.zeros(part[2:], np.uint8) for part in parts]
        for pixels, patch, part in zip(whole, patches, parts, strict=True):
            patch.view(pixels, *part[:2])[:] = patch.pixels
    else:
        whole = [_filled(rings, *part) for rings, part in zip(polygons, parts, strict=True)]
    filled = [
        cv2.resize(each, (each.shape[1] // _MASK_SCALE, each.shape[0] // _MASK_SCALE)) for each in whole
    ]
    # In the order of Ultralytics: unsigned, so that empty objects come first; the sort is not stable.
    order = np.argsort(-np.array([pixels.sum() for pixels in filled], np.uint64))
    for number, index in enumerate(order.tolist(), 1):
        (top, left, _, _), pixels = parts[index], filled[index]
        first, second = top // _MASK_SCALE, left // _MASK_SCALE
        region = mask[first : first + pixels.shape[0], second : second + pixels.shape[1]]
        region[pixels > 0] = number
    return mask, order.astype(np.int64)


def _part(rings: Sequence[Ring], height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of the blocks of an image that polygons touch."""
    points = np.concatenate(rings) if rings else np.zeros((1, 2))
    limits = np.array((width, height))
    first = np.clip(points.min(axis=0) // _MASK_SCALE * _MASK_SCALE, 0, limits - _MASK_SCALE).astype(int)
    last = np.clip((points.max(axis=0) // _MASK_SCALE + 1) * _MASK_SCALE, first + _MASK_SCALE, limits)
    (left, top), (right, bottom) = first.tolist(), last.astype(int).tolist()
    return top, left, bottom - top, right - left


def _filled(rings: Sequence[Ring], top: int, left: int, height: int, width: int) -> Pixels:
    """Return a part of an image with polygons filled as by Ultralytics, 1 inside."""
    pixels = np.zeros((height, width), np.uint8)
    for ring in rings:
        if len(ring):
            # float32 first, as Ultralytics has coordinates: they are rounded down.
            cv2.fillPoly(
                pixels, [ring.astype(np.float32).astype(np.int32) - np.array((left, top), np.int32)], 1
            )
    return pixels


def _rotated(corners: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
    """Return oriented boxes (objects, 5): centre, longer and shorter side relative to the image, angle."""
    rows = []
    for each in corners.numpy():
        (x, y), (width, height), degrees = cv2.minAreaRect(each)
        angle = math.radians(degrees)
        if width < height:
            width, height, angle = height, width, angle + math.pi / 2
        # Angles of Ultralytics are from -45 to 135 degrees.
        rows.append((x, y, width, height, (angle + math.pi / 4) % math.pi - math.pi / 4))
    boxes = torch.tensor(rows, dtype=torch.float32).reshape(-1, 5)
    boxes[:, :4] /= sides.repeat(2)
    return boxes
