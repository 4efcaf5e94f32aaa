"""fastload: the functions and transforms that its datasets apply to an image."""

from __future__ import annotations

import numpy as np
import torch

import fastload.transforms as T
from fastload._version import __version__
from fastload.bench import operations as op
from fastload.bench.peers.peer import Call, Peer, Steps, crop_pixels, pipelines
from fastload.images.decode import decode
from fastload.images.opencv import cv2
from fastload.images.resize import resize

_COLOURS = {"brightness": op.BRIGHTNESS, "contrast": op.CONTRAST, "saturation": op.SATURATION, "hue": op.HUE}


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    to_floats = T.ToDtype(torch.float32, scale=True)
    normalise = T.Compose([to_floats, T.Normalize(op.MEAN, op.STD)])
    colours = {name: T.ColorJitter(**{name: (value, value)}) for name, value in _COLOURS.items()}
    middle = T.CenterCrop(size)
    steps = Steps(
        decode=decode,
        size_of=lambda pixels: pixels.shape[:2],
        crop=crop_pixels,
        resize=resize,
        flip=lambda pixels: np.asarray(cv2.flip(pixels, 1), np.uint8),
        normalise=normalise,
    )
    evaluation = T.Compose([T.Resize(op.shorter_side(size)), middle, to_floats, T.Normalize(op.MEAN, op.STD)])

    def resizes(*interpolations: str) -> dict[str, Call]:
        return {f"Resize({name})": T.Resize((size, size), interpolation=name) for name in interpolations}

    return Peer(
        "fastload",
        __version__,
        np.ascontiguousarray,
        {
            "decode": {"FolderDataset": decode},
            "shrink-nearest": resizes("nearest", "nearest-exact"),
            "shrink-box": resizes("area"),
            "shrink-bilinear": {
                **resizes("bilinear"),
                "Resize(antialias=False)": T.Resize((size, size), antialias=False),
            },
            "shrink-bicubic": resizes("bicubic"),
            "enlarge-nearest": resizes("nearest"),
            "enlarge-bilinear": resizes("bilinear"),
            "enlarge-bicubic": resizes("bicubic"),
            "crop": {"CenterCrop, copied": lambda pixels: np.ascontiguousarray(middle(pixels))},
            "resized-crop": {
                "Resize(bilinear)": lambda p: resize(crop_pixels(p, *op.middle_half(p.shape)), size, size)
            },
            "pad": {"Pad": T.Pad(op.PAD)},
            "flip": {"RandomHorizontalFlip": T.RandomHorizontalFlip(1.0)},
            "rotate": {"RandomRotation": T.RandomRotation((op.ANGLE,) * 2, interpolation="bilinear")},
            **{name: {"ColorJitter": colour} for name, colour in colours.items()},
            "grey": {"Grayscale": T.Grayscale(1)},
            "blur": {"GaussianBlur": T.GaussianBlur(op.BLUR_SIZE, (op.BLUR_SIGMA,) * 2)},
            "normalise": {"ToDtype, Normalize": normalise},
            **{key: {"antialiased": run} for key, run in pipelines(steps, size).items()},
            "evaluation": {"antialiased": lambda sample: evaluation(decode(sample.data))},
        },
        jpeg="OpenCV's",
        simd="OpenCV's and torch's",
    )
