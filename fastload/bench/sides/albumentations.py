"""albumentations' side: its transforms, made to do the same each time."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fastload.bench import operations as do
from fastload.bench.sides.side import Side, Way
from fastload.images.decode import decode
from fastload.images.opencv import cv2

_FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
}
_UNCHANGED = {"brightness": (1.0, 1.0), "contrast": (1.0, 1.0), "saturation": (1.0, 1.0), "hue": (0.0, 0.0)}
_CHANGED = {
    "brightness": (do.BRIGHTNESS,) * 2,
    "contrast": (do.CONTRAST,) * 2,
    "saturation": (do.SATURATION,) * 2,
    "hue": (do.HUE,) * 2,
}


def make(size: int) -> Side:
    """Makes albumentations' ways, with crops and resizes of `size` × `size` pixels."""
    # It asks the package index for a newer version when it is imported, unless it is told not to.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    a = importlib.import_module("albumentations")
    to_tensor = importlib.import_module("albumentations.pytorch").ToTensorV2

    def jitter(*names: str) -> Any:
        return a.ColorJitter(**{**_UNCHANGED, **{name: _CHANGED[name] for name in names}}, p=1)

    def normalise() -> Any:
        return a.Normalize(do.MEAN, do.STD, p=1)

    def evaluation() -> Any:
        shorter = a.SmallestMaxSize(do.shorter_side(size), interpolation=cv2.INTER_LINEAR, p=1)
        return a.Compose([shorter, a.CenterCrop(size, size, p=1), normalise(), to_tensor()])

    resizes = [
        _way(f"{kind}-{name}", f"Resize({name.upper()})", functools.partial(a.Resize, size, size, flag, p=1))
        for kind in ("shrink", "enlarge")
        for name, flag in _FLAGS.items()
    ]
    unit = a.Compose([a.ToFloat(max_value=255, p=1), to_tensor()])
    return Side(
        "albumentations",
        np.ascontiguousarray,
        (
            *resizes,
            _way("crop", "CenterCrop", lambda: a.CenterCrop(size, size, p=1), is_copied=True),
            _way("pad", "Pad", lambda: a.Pad(do.PAD, p=1)),
            _way("flip-horizontal", "HorizontalFlip", lambda: a.HorizontalFlip(p=1)),
            _way("flip-vertical", "VerticalFlip", lambda: a.VerticalFlip(p=1)),
            _way("rotate", "Rotate", lambda: a.Rotate((do.ANGLE,) * 2, border_mode=cv2.BORDER_CONSTANT, p=1)),
            _way("affine", "Affine", lambda: a.Affine(scale=do.AFFINE_SCALE, rotate=-do.AFFINE_ANGLE, p=1)),
            *(_way(name, "ColorJitter", functools.partial(jitter, name)) for name in _CHANGED),
            _way("jitter", "ColorJitter", lambda: jitter(*_CHANGED)),
            _way("grey", "ToGray", lambda: a.ToGray(num_output_channels=1, p=1)),
            _way(
                "blur", "GaussianBlur", lambda: a.GaussianBlur((do.BLUR_SIZE,) * 2, (do.BLUR_SIGMA,) * 2, p=1)
            ),
            _way("to-tensor", "ToFloat, ToTensorV2", lambda: unit),
            _way("normalise", "Normalize, ToTensorV2", lambda: a.Compose([normalise(), to_tensor()])),
            Way("evaluation", "Compose", _decoding(evaluation)),
        ),
    )


def _way(operation: str, call: str, make: Callable[[], Any], is_copied: bool = False) -> Way:
    """A transform that is made when it is first used: what one release lacks hinders no other operation."""
    made = functools.cache(make)
    if is_copied:
        return Way(operation, f"{call}, copied", lambda pixels: made()(image=pixels)["image"].copy())
    return Way(operation, call, lambda pixels: made()(image=pixels)["image"])


def _decoding(make: Callable[[], Any]) -> Callable[[do.Sample], Any]:
    made = functools.cache(make)
    return lambda sample: made()(image=decode(sample.data))["image"]
