"""albumentations: transforms with fixed parameters."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fastload.bench import operations as op
from fastload.bench.peers.opencv import simd
from fastload.bench.peers.peer import Call, Peer
from fastload.images.decode import decode
from fastload.images.opencv import cv2

_FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
}
_COLOURS = {"brightness": op.BRIGHTNESS, "contrast": op.CONTRAST, "saturation": op.SATURATION, "hue": op.HUE}
_UNCHANGED = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    # Unless told otherwise, its import asks the package index for a newer version.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    a = importlib.import_module("albumentations")
    to_tensor = importlib.import_module("albumentations.pytorch").ToTensorV2

    def jitter(**changes: float) -> Any:
        values = {name: (value, value) for name, value in (_UNCHANGED | changes).items()}
        return a.ColorJitter(**values, p=1)

    def evaluation() -> Any:
        shorter = a.SmallestMaxSize(op.shorter_side(size), interpolation=cv2.INTER_LINEAR, p=1)
        crop = a.CenterCrop(size, size, p=1)
        return a.Compose([shorter, crop, a.Normalize(op.MEAN, op.STD, p=1), to_tensor()])

    crop = _apply(lambda: a.CenterCrop(size, size, p=1))
    evaluate = _apply(evaluation)
    blur = (op.BLUR_SIZE,) * 2, (op.BLUR_SIGMA,) * 2
    transforms: dict[str, tuple[str, Callable[[], Any]]] = {
        "pad": ("Pad", lambda: a.Pad(op.PAD, p=1)),
        "flip": ("HorizontalFlip", lambda: a.HorizontalFlip(p=1)),
        "rotate": ("Rotate", lambda: a.Rotate((op.ANGLE,) * 2, border_mode=cv2.BORDER_CONSTANT, p=1)),
        "grey": ("ToGray", lambda: a.ToGray(num_output_channels=1, p=1)),
        "blur": ("GaussianBlur", lambda: a.GaussianBlur(*blur, p=1)),
        "normalise": (
            "Normalize, ToTensorV2",
            lambda: a.Compose([a.Normalize(op.MEAN, op.STD, p=1), to_tensor()]),
        ),
    }
    for kind in ("shrink", "enlarge"):
        for name, flag in _FLAGS.items():
            resize = functools.partial(a.Resize, size, size, flag, p=1)
            transforms[f"{kind}-{name}"] = f"Resize({name.upper()})", resize
    for name, value in _COLOURS.items():
        transforms[name] = "ColorJitter", functools.partial(jitter, **{name: value})
    return Peer(
        "albumentations",
        a.__version__,
        np.ascontiguousarray,
        {
            **{key: {call: _apply(create)} for key, (call, create) in transforms.items()},
            "crop": {"CenterCrop, copied": lambda pixels: crop(pixels).copy()},
            "evaluation": {"Compose": lambda sample: evaluate(decode(sample.data))},
        },
        simd=simd(),
    )


def _apply(create: Callable[[], Any]) -> Call:
    """Return a call of a transform that is created on first use: a release may lack one of them."""
    created = functools.cache(create)
    return lambda pixels: created()(image=pixels)["image"]
