"""fastload: the functions and transforms that its datasets apply to an image."""

from __future__ import annotations

import numpy as np
import torch

import fastload.transforms as T
from fastload._version import __version__
from fastload.bench import _operations as op
from fastload.bench._peers import Call, Peer, Steps, composed, crop_pixels
from fastload.images.decode import decode
from fastload.images.opencv import cv2
from fastload.images.resize import resize

_RESIZES = {
    "shrink-nearest": ("nearest", "nearest-exact"),
    "shrink-box": ("area",),
    "shrink-bilinear": ("bilinear",),
    "shrink-bicubic": ("bicubic",),
    "enlarge-nearest": ("nearest",),
    "enlarge-bilinear": ("bilinear",),
    "enlarge-bicubic": ("bicubic",),
}


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    to_normalised_floats = [T.ToDtype(torch.float32, scale=True), T.Normalize(op.MEAN, op.STD)]
    middle = T.CenterCrop(size)
    evaluation = T.Compose([T.Resize(op.shorter_side(size)), middle, *to_normalised_floats])
    steps = Steps(
        decode=decode,
        crop=crop_pixels,
        resize=resize,
        flip=lambda pixels: np.asarray(cv2.flip(pixels, 1), np.uint8),
        normalise=T.Compose(to_normalised_floats),
    )
    calls: list[Call] = [
        ("decode", "FolderDataset", decode),
        *(
            (key, f"Resize({name})", T.Resize((size, size), interpolation=name))
            for key, names in _RESIZES.items()
            for name in names
        ),
        ("shrink-bilinear", "Resize(antialias=False)", T.Resize((size, size), antialias=False)),
        ("pad", "Pad", T.Pad(op.PAD)),
        ("flip", "RandomHorizontalFlip", T.RandomHorizontalFlip(1.0)),
        ("rotate", "RandomRotation", T.RandomRotation((op.ANGLE,) * 2, interpolation="bilinear")),
        *((key, "ColorJitter", T.ColorJitter(**{key: (value,) * 2})) for key, value in op.COLOURS.items()),
        ("grey", "Grayscale", T.Grayscale(1)),
        ("blur", "GaussianBlur", T.GaussianBlur(op.BLUR_SIZE, (op.BLUR_SIGMA,) * 2)),
        ("normalise", "ToDtype, Normalize", steps.normalise),
        ("crop", "CenterCrop, copied", lambda pixels: np.ascontiguousarray(middle(pixels))),
        *composed(steps, size, resized_crop="Resize(bilinear)", training="antialiased"),
        ("evaluation", "antialiased", lambda sample: evaluation(decode(sample.data))),
    ]
    return Peer("fastload", __version__, calls, jpeg="OpenCV's", simd="OpenCV's and torch's")
