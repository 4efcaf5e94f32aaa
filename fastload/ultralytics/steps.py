"""Transforms of Ultralytics on deferred images: parameters and labels are its own, pixels are made last.

Each function replaces one method, which it calls for anything but a deferred image. So Ultralytics itself
draws the random numbers, in its order, and labels come from its own code.

Ultralytics pastes a mosaic, warps it, changes its colours and flips it, each into a new array. A deferred
image stands in for the array: it has its shape, records the steps, and renders only the visible pixels.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from ultralytics.data import augment

from fastload.images.canvas import Canvas, Placement
from fastload.images.deferred import DeferredImage
from fastload.images.hsv import HsvChange
from fastload.images.opencv import cv2
from fastload.system.patching import Replacement
from fastload.ultralytics.bgr_image import BgrImage

Labels = dict[str, Any]
"""A sample of Ultralytics, or the parameters of a step, by name."""

_Step = TypeVar("_Step")
_Plain = Callable[..., Labels]  # A method that may get parameters after labels.

# Steps that change no pixels or are replaced below. A transform with any other step is not replaced.
_KNOWN = (
    augment.Compose,
    augment.Mosaic,
    augment.MixUp,
    augment.CutMix,
    augment.CopyPaste,
    augment.RandomPerspective,
    augment.Albumentations,
    augment.RandomHSV,
    augment.RandomFlip,
    augment.LetterBox,
    augment.RandomLoadText,
    augment.Format,
)


def unknown_steps(transform: object) -> list[str]:
    """Return the names of a transform's steps that may look at pixels and are not Ultralytics' own."""
    if isinstance(transform, augment.Compose) and type(transform) is augment.Compose:
        return [name for step in transform.transforms for name in unknown_steps(step)]
    names = [] if type(transform) in _KNOWN else [type(transform).__name__]
    inner = getattr(transform, "pre_transform", None)
    return names if inner is None else names + unknown_steps(inner)


def step_replacements(ends_in_batch: Callable[[], bool]) -> list[Replacement]:
    """Return the replacements of methods: (class, name, function).

    Args:
        ends_in_batch: Returns True where samples are collated later, and deferred images rendered then.
    """
    plain_format = augment.Format._format_img

    @functools.wraps(plain_format)
    def format_image(self: augment.Format, img: object) -> torch.Tensor | tuple[BgrImage, bool]:
        if not isinstance(img, BgrImage):
            return plain_format(self, img)  # type: ignore[no-any-return]
        is_rgb = random.uniform(0, 1) > self.bgr
        return (img, is_rgb) if ends_in_batch() else img.tensor(is_rgb)

    of_deferred = {
        augment.Mosaic: _mosaic,
        augment.RandomPerspective: _perspective,
        augment.RandomHSV: _hsv,
        augment.RandomFlip: _flip,
        augment.LetterBox: _letterbox,
    }
    return [
        *((kind, "apply_image", _if_deferred(kind.apply_image, do)) for kind, do in of_deferred.items()),
        (augment.Albumentations, "__call__", _with_pixels(augment.Albumentations.__call__)),
        *(
            (kind, "apply_image", _with_pixels(kind.apply_image))
            for kind in (augment.MixUp, augment.CutMix, augment.CopyPaste)
        ),
        (augment.Format, "_format_img", format_image),
    ]


def _if_deferred(plain: _Plain, of_deferred: Callable[[_Step, Labels, Labels], None]) -> _Plain:
    """Return a method that calls `of_deferred` for deferred images, and the original for arrays."""

    @functools.wraps(plain)
    def method(self: _Step, labels: Labels, params: Labels | None = None) -> Labels:
        if not isinstance(labels["img"], BgrImage):
            return plain(self, labels, params)
        of_deferred(self, labels, params or {})
        return labels

    return method


def _with_pixels(plain: _Plain) -> _Plain:
    """Return a method that gives pixels to the original, and defers its result."""

    @functools.wraps(plain)
    def method(self: object, labels: Labels, params: Labels | None = None) -> Labels:
        image = labels.get("img")
        arguments = (labels,) if params is None else (labels, params)
        is_idle = (params or {}).get("skip") or getattr(self, "transform", self) is None
        if not isinstance(image, BgrImage) or is_idle:
            return plain(self, *arguments)
        for each in (labels, *labels.get("mix_labels", ())):
            each["img"] = np.asarray(each["img"])
        if params is not None and isinstance(params.get("labels2_img"), BgrImage):
            params["labels2_img"] = np.asarray(params["labels2_img"])
        labels = plain(self, *arguments)
        labels["img"] = BgrImage.of(labels["img"])
        return labels

    return method


def _mosaic(self: augment.Mosaic, labels: Labels, params: Labels) -> None:
    sides, moved = (2, 0) if self.n == 4 else (3, self.border[0])
    side = sides * self.imgsz + 2 * moved
    images = [item["labels_patch"]["img"].deferred for item in params["layout"]]
    placements = tuple(
        Placement(number, image.size, image.size, item["padw"] + moved, item["padh"] + moved)
        for number, (image, item) in enumerate(zip(images, params["layout"], strict=True))
    )
    labels["img"] = BgrImage(DeferredImage.on(Canvas((side, side), placements, None, (side, side)), images))


def _perspective(self: augment.RandomPerspective, labels: Labels, params: Labels) -> None:
    width, height = params["size"]
    matrix, image = params["M"], labels["img"].deferred
    warped = image.warped(matrix, (height, width))
    if warped.canvas.axis_resizes is None:
        # Otherwise, a warp of a part of the canvas would round positions differently.
        warped = replace(warped, canvas=replace(warped.canvas, is_exact=True))
    labels["img"] = BgrImage(warped)
    labels["resized_shape"] = (height, width)


def _hsv(self: augment.RandomHSV, labels: Labels, params: Labels) -> None:
    gains = np.array([self.hgain, self.sgain, self.vgain])
    if not gains.any():
        return
    hue, saturation, value = (np.random.uniform(-1, 1, 3) * gains).tolist()
    image = labels["img"].deferred
    change = HsvChange.of((hue, saturation, value), is_bgr=image.is_bgr)
    labels["img"] = BgrImage(image.changed(change))


def _flip(self: augment.RandomFlip, labels: Labels, params: Labels) -> None:
    if params["flip"]:
        is_vertical = params["direction"] == "vertical"
        labels["img"] = BgrImage(labels["img"].deferred.flipped(is_vertical, not is_vertical))


def _letterbox(self: augment.LetterBox, labels: Labels, params: Labels) -> None:
    image = labels["img"].deferred
    width, height = params["new_unpad"]
    if image.size != (height, width):
        resized = cv2.resize(image.pixels(), (width, height), interpolation=self.interpolation)
        image = DeferredImage.of_pixels(resized, image.is_bgr)
    left, top = params["left"], params["top"]
    size = height + top + params["bottom"], width + left + params["right"]
    placements = (Placement(0, image.size, image.size, left, top),)
    canvas = Canvas(size, placements, None, size, fill=self.padding_value)
    labels["img"] = BgrImage(DeferredImage.on(canvas, [image]))
    labels["resized_shape"] = params["new_shape"]
