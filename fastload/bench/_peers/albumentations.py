"""albumentations: transforms with fixed parameters."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from fastload.bench import _operations as op
from fastload.bench._peers import Call, Peer
from fastload.bench._peers.opencv import simd
from fastload.images.decode import decode
from fastload.images.opencv import cv2

_FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
}
_UNCHANGED = {"brightness": (1.0,) * 2, "contrast": (1.0,) * 2, "saturation": (1.0,) * 2, "hue": (0.0,) * 2}


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    # Unless told otherwise, its import asks the package index for a newer version.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    a = importlib.import_module("albumentations")
    to_tensor = importlib.import_module("albumentations.pytorch").ToTensorV2

    def transform(operation: str, name: str, *arguments: Any, **options: Any) -> Call:
        # Created on first use: a release may lack one of them.
        create = functools.cache(lambda: getattr(a, name.partition("(")[0])(*arguments, **options, p=1))
        return operation, name, lambda pixels: create()(image=pixels)["image"]

    @functools.cache
    def normalise() -> Any:
        return a.Compose([a.Normalize(op.MEAN, op.STD, p=1), to_tensor()])

    @functools.cache
    def evaluate() -> Any:
        shorter = a.SmallestMaxSize(op.shorter_side(size), interpolation=cv2.INTER_LINEAR, p=1)
        return a.Compose(
            [shorter, a.CenterCrop(size, size, p=1), a.Normalize(op.MEAN, op.STD, p=1), to_tensor()]
        )

    _, _, crop = transform("crop", "CenterCrop", size, size)
    calls = [
        *(
            transform(f"{kind}-{name}", f"Resize({name.upper()})", size, size, flag)
            for kind in ("shrink", "enlarge")
            for name, flag in _FLAGS.items()
        ),
        ("crop", "CenterCrop, copied", lambda pixels: crop(pixels).copy()),
        transform("pad", "Pad", op.PAD),
        transform("flip", "HorizontalFlip"),
        transform("rotate", "Rotate", (op.ANGLE,) * 2, border_mode=cv2.BORDER_CONSTANT),
        *(
            transform(key, "ColorJitter", **{**_UNCHANGED, key: (value,) * 2})
            for key, value in op.COLOURS.items()
        ),
        transform("grey", "ToGray", num_output_channels=1),
        transform("blur", "GaussianBlur", (op.BLUR_SIZE,) * 2, (op.BLUR_SIGMA,) * 2),
        ("normalise", "Normalize, ToTensorV2", lambda pixels: normalise()(image=pixels)["image"]),
        ("evaluation", "Compose", lambda sample: evaluate()(image=decode(sample.data))["image"]),
    ]
    return Peer("albumentations", a.__version__, calls, simd=simd())
