"""Images with objects of every kind, made from their numbers, for Ultralytics' transforms and for ours."""

from __future__ import annotations

import cv2
import numpy as np

IMGSZ = 96
KINDS = ("boxes", "polygons", "keypoints", "corners", "masks")
KEYPOINTS = 3
COUNT = 12


def image(number: int) -> np.ndarray:
    """An RGB image that looks like no other; every third has a longer side of IMGSZ already."""
    rng = np.random.default_rng(number)
    longer = IMGSZ if number % 3 == 0 else int(rng.integers(60, 200))
    shorter = int(longer * rng.uniform(0.5, 1))
    size = (longer, shorter) if number % 2 else (shorter, longer)
    coarse = rng.integers(0, 256, (size[0] // 8 + 2, size[1] // 8 + 2, 3), dtype=np.uint8)
    return cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_CUBIC)


def shares(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, polygons (objects, 4 corners, 2) and keypoints of an image, as shares of its sides."""
    rng = np.random.default_rng(100 + number)
    count = int(rng.integers(1, 5)) if number != 5 else 0
    labels = rng.integers(0, 7, count)
    centres, half = rng.uniform(0.2, 0.8, (count, 1, 2)), rng.uniform(0.05, 0.2, (count, 1, 2))
    angles = rng.uniform(0, 1.5, count)
    height, width = image(number).shape[:2]
    corners = np.array(((-1, -1), (1, -1), (1, 1), (-1, 1))) * half * (width, height)
    turned = np.stack(
        [
            each @ ((np.cos(a), -np.sin(a)), (np.sin(a), np.cos(a)))
            for each, a in zip(corners, angles, strict=True)
        ]
        or [np.zeros((4, 2))]
    )[:count]
    polygons = np.clip(centres + turned / (width, height), 0, 1)
    keypoints = np.concatenate(
        (rng.uniform(0, 1, (count, KEYPOINTS, 2)), rng.integers(0, 3, (count, KEYPOINTS, 1))), axis=2
    )
    return labels, polygons.astype(np.float32), keypoints.astype(np.float32)


def mask(number: int) -> np.ndarray:
    """Classes of an image's pixels, up to 250."""
    return (image(number)[:, :, 0] // 5 * 5).astype(np.uint8)


def boxes(polygons: np.ndarray) -> np.ndarray:
    """The upright boxes around polygons, x1 y1 x2 y2."""
    if not len(polygons):
        return np.zeros((0, 4), np.float32)
    return np.concatenate((polygons.min(axis=1), polygons.max(axis=1)), axis=1)
