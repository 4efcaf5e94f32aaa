"""fastload: the functions and transforms that its datasets apply to an image."""

from __future__ import annotations

import numpy as np
import torch

import fastload.transforms as T
from fastload._version import __version__
from fastload.bench import _operations as op
from fastload.bench._peers import Peer, Run, Steps, crop_pixels
from fastload.images.decode import decode
from fastload.images.opencv import cv2
from fastload.images.resize import resize


def make() -> Peer:
    """Return the peer."""
    # One after the other, because a ColorJitter of all four applies them in random order.
    strengths = {
        "brightness": op.BRIGHTNESS,
        "contrast": op.CONTRAST,
        "saturation": op.SATURATION,
        "hue": op.HUE,
    }
    jitter = T.Compose([T.ColorJitter(**{name: (value,) * 2}) for name, value in strengths.items()])
    to_float = T.ToDtype(torch.float32, scale=True)
    letterbox = T.LetterBox(op.DETECTION_SIDE)
    steps = Steps(
        decode=decode,
        crop=crop_pixels,
        resize=resize,
        flip=lambda pixels: np.asarray(cv2.flip(pixels, 1), np.uint8),
        normalise=T.Compose([to_float, T.Normalize(op.MEAN, op.STD)]),
    )
    size = (op.IMAGE_SIDE, op.IMAGE_SIDE)
    calls: list[tuple[str, str, Run]] = [
        ("decode", "FolderDataset", decode),
        ("resize", "Resize(bilinear)", T.Resize(size)),
        ("resize", "Resize(antialias=False)", T.Resize(size, antialias=False)),
        ("resized-crop", "Resize(bilinear)", steps.resized_crop),
        ("flip", "RandomHorizontalFlip", T.RandomHorizontalFlip(1.0)),
        ("jitter", "ColorJitter, four times", jitter),
        ("normalise", "ToDtype, Normalize", steps.normalise),
        ("detection", "LetterBox", lambda data: to_float(letterbox(decode(data)))),
        ("training", "antialiased", steps.training),
    ]
    return Peer("fastload", __version__, calls, jpeg="OpenCV's")
