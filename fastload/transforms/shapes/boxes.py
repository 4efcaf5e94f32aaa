"""Transforms made for images with objects: RandomIoUCrop, SanitizeBoundingBoxes, ClampBoundingBoxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms import options
from fastload.transforms.annotations import clipped
from fastload.transforms.draws import Draws, integers
from fastload.transforms.samples import SampleParts
from fastload.transforms.shapes.cropping import BoxCrop
from fastload.transforms.transform import Annotations, Parameters, PixelKeeping, Row, Sizes

LabelsGetter = Callable[[Any], object] | str | None

# torchvision draws until a crop fits, or the option to crop nothing, one of seven, is drawn.
_MOST_ROUNDS = 100

_OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class RandomIoUCrop(BoxCrop):
    """Crops a random region that overlaps enough with at least one box; parameters as in torchvision.

    As there, boxes whose centre is outside become empty, for a later SanitizeBoundingBoxes to remove. Images
    without boxes are not cropped. Liu et al., "SSD: Single Shot MultiBox Detector",
    https://arxiv.org/abs/1512.02325.
    """

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: list[float] | None = None,
        trials: int = 40,
    ) -> None:
        self.min_scale, self.max_scale = options.to_range((min_scale, max_scale), "scale", most=1)
        ratios = options.to_range((min_aspect_ratio, max_aspect_ratio), "aspect ratio")
        self.min_aspect_ratio, self.max_aspect_ratio = ratios
        self.sampler_options = sampler_options
        rule = "sampler_options must be overlaps of at least 0"
        overlaps = _OVERLAPS if sampler_options is None else sampler_options
        self._overlaps = options.to_numbers(overlaps, rule, options.SEVERAL, 0)
        self.trials = options.to_whole(trials, "trials", 1)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        raise OptionError(
            "RandomIoUCrop must be given images with boxes, and not within RandomApply, RandomChoice or "
            "RandomOrder: call it with (image, target), or use a dataset with boxes"
        )

    def draw_with(self, draws: Draws, sizes: Sizes, annotations: Sequence[Annotations]) -> Parameters:
        """Draw boxes (top, left, height, width): the first that fits, or the full image."""
        boxes = np.concatenate((np.zeros_like(sizes), sizes), axis=1).astype(np.float64)
        undecided = np.array([len(objects) > 0 for objects in annotations])
        for turn in range(_MOST_ROUNDS):
            images = np.flatnonzero(undecided)
            if not len(images):
                break
            numbers = Draws(draws.at(turn).keys[images], len(images)).uniform(1 + 4 * self.trials)
            for image, row in zip(images.tolist(), numbers, strict=True):
                overlap = self._overlaps[int(integers(row[0], len(self._overlaps)))]
                if overlap >= 1:  # the option to crop nothing
                    undecided[image] = False
                    continue
                box = self._first_fit(row[1:].reshape(4, -1), sizes[image], annotations[image].boxes, overlap)
                if box is not None:
                    boxes[image], undecided[image] = box, False
        return boxes

    def _first_fit(
        self, numbers: NDArray[np.float64], size: Sizes, boxes: NDArray[np.float32], overlap: float
    ) -> NDArray[np.float64] | None:
        """Return the first of the trials that satisfies all conditions."""
        scales = self.min_scale + (self.max_scale - self.min_scale) * numbers[:2]
        sides = np.floor(size[:, None] * scales)
        corners = np.floor((size[:, None] - sides) * numbers[2:])
        crops = np.concatenate((corners, sides)).T
        ratios = np.divide(sides[1], sides[0], out=np.zeros(self.trials), where=sides[0] > 0)
        is_fit = (self.min_aspect_ratio <= ratios) & (ratios <= self.max_aspect_ratio) & (sides[1] > 0)
        crops = crops[is_fit]
        is_fit = np.where(_has_centre(crops, boxes), _overlaps(crops, boxes), -1).max(axis=1) >= overlap
        return crops[is_fit.argmax()] if is_fit.any() else None

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        if tuple(parameters) == (0, 0, *annotations.size):
            return annotations
        moved = super().apply_to(annotations, parameters)
        moved.boxes[~_has_centre(np.array([parameters]), annotations.boxes)[0]] = 0
        return moved


class ObjectTransform(PixelKeeping):
    """Base class of transforms that change objects but no image."""


class SanitizeBoundingBoxes(ObjectTransform):
    """Removes objects whose box is too small or partly outside of the image; parameters as in torchvision.

    By default, everything with a row for each object goes with its box. A function as `labels_getter`, called
    with the sample, returns the tensor or tensors that go with boxes and masks; None means none.
    """

    def __init__(
        self, min_size: float = 1.0, min_area: float = 1.0, labels_getter: LabelsGetter = "default"
    ) -> None:
        self.min_size = options.to_number(min_size, "min_size", 1)
        self.min_area = options.to_number(min_area, "min_area", 1)
        is_valid = labels_getter in ("default", None) or callable(labels_getter)
        options.require(is_valid, "labels_getter must be 'default', a function or None", labels_getter)
        self.labels_getter = labels_getter

    def of_sample(self, structure: object) -> object:
        """Return a sample without the objects whose boxes are invalid."""
        sample = SampleParts(structure)
        options.require(sample.has_boxes, "SanitizeBoundingBoxes must be given boxes", type(structure))
        if self.labels_getter == "default":
            return super().of_sample(structure)
        found = self.labels_getter(structure) if callable(self.labels_getter) else None
        labels = () if found is None else found if isinstance(found, (tuple, list)) else (found,)
        count = len(sample.annotations)
        is_valid = all(isinstance(each, torch.Tensor) and len(each) == count for each in labels)
        rule = f"labels_getter must return tensors with a row for each of {count} boxes"
        options.require(is_valid, rule, found)
        return sample.chosen(self._valid(sample.annotations), labels)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        if self.labels_getter != "default":
            raise OptionError(
                "SanitizeBoundingBoxes must have labels_getter='default' in a dataset's transform, where "
                f"every field of objects goes with its box, got {self.labels_getter!r}"
            )
        is_valid = self._valid(annotations)
        return annotations if is_valid.all() else annotations.chosen(is_valid)

    def _valid(self, annotations: Annotations) -> NDArray[np.bool_]:
        boxes = annotations.boxes
        height, width = annotations.size
        sides = boxes[:, 2:] - boxes[:, :2]
        is_valid = (sides >= self.min_size).all(axis=1) & (sides.prod(axis=1) >= self.min_area)
        is_valid &= (boxes >= 0).all(axis=1)
        is_valid &= (boxes <= np.array((width, height, width, height), np.float32)).all(axis=1)
        return np.asarray(is_valid)


class ClampBoundingBoxes(ObjectTransform):
    """Clips boxes to the image, as every transform but flips and resizes does by itself.

    `clamping_mode` is torchvision's: None clips no box, "auto" all but those with `clamping_mode=None`, and
    "soft" and "hard" all: they differ for rotated boxes only.
    """

    def __init__(self, clamping_mode: str | None = "auto") -> None:
        is_valid = clamping_mode in ("auto", "soft", "hard", None)
        options.require(is_valid, "clamping_mode must be 'auto', 'soft', 'hard' or None", clamping_mode)
        self.clamping_mode = clamping_mode

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        mode = self.clamping_mode
        is_clipped = annotations.is_clipped if mode == "auto" else mode is not None
        if not is_clipped:
            return annotations
        return replace(annotations, boxes=clipped(annotations.boxes, annotations.size))


def _has_centre(crops: NDArray[np.float64], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which crops (top, left, height, width) have the centres of which boxes: (crops, boxes)."""
    centres = (boxes[:, :2] + boxes[:, 2:]) * np.float32(0.5)
    first = crops[:, None, 1::-1]
    last = first + crops[:, None, :1:-1]
    return np.asarray(((first < centres) & (centres < last)).all(axis=2))


def _overlaps(crops: NDArray[np.float64], boxes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the intersections over unions of crops with boxes: (crops, boxes)."""
    first = crops[:, None, 1::-1]
    last = first + crops[:, None, :1:-1]
    common = np.minimum(last, boxes[:, 2:]) - np.maximum(first, boxes[:, :2])
    intersections = np.maximum(common, 0).prod(axis=2)
    areas = crops[:, None, 2:].prod(axis=2) + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return np.asarray(intersections / (areas - intersections))
