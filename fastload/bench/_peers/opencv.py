"""OpenCV on NumPy arrays, with torch for tensors."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import torch

from fastload.bench import _operations as op
from fastload.bench._peers import Call, Peer, Steps, call, composed, crop_pixels, normalised_tensor
from fastload.images.opencv import cv2

# IMREAD_COLOR_RGB came with OpenCV 4.11, the oldest one that fastload supports.
_RGB = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_BGR = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
_HALF = cv2.IMREAD_REDUCED_COLOR_2 | cv2.IMREAD_IGNORE_ORIENTATION

_RESIZES = {
    "shrink-nearest": ("INTER_NEAREST", "INTER_NEAREST_EXACT"),
    "shrink-box": ("INTER_AREA",),
    "shrink-bilinear": ("INTER_LINEAR", "INTER_AREA"),
    "shrink-bicubic": ("INTER_CUBIC", "INTER_AREA"),
    "shrink-lanczos": ("INTER_LANCZOS4", "INTER_AREA"),
    "enlarge-nearest": ("INTER_NEAREST", "INTER_NEAREST_EXACT"),
    "enlarge-bilinear": ("INTER_LINEAR", "INTER_LINEAR_EXACT"),
    "enlarge-bicubic": ("INTER_CUBIC",),
    "enlarge-lanczos": ("INTER_LANCZOS4",),
}
_MEAN_LEVELS = tuple(255 * value for value in op.MEAN)
_STD = torch.tensor(op.STD)[:, None, None]


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    linear, area = _steps("INTER_LINEAR"), _steps("INTER_AREA")
    calls: list[Call] = [
        ("decode", "imdecode(COLOR_RGB)", linear.decode),
        ("decode", "imdecode, cvtColor", lambda data: _to_rgb(_decode(data, _BGR))),
        ("decode-half", "imdecode(REDUCED_2), cvtColor", lambda data: _to_rgb(_decode(data, _HALF))),
        *(
            (key, flag, partial(cv2.resize, dsize=(size, size), interpolation=getattr(cv2, flag)))
            for key, flags in _RESIZES.items()
            for flag in flags
        ),
        ("crop", "slice, copy", lambda p: crop_pixels(p, *op.middle(p.shape, size), size, size).copy()),
        call("pad", "copyMakeBorder", cv2, *(op.PAD,) * 4, cv2.BORDER_CONSTANT),
        call("flip", "flip", cv2, 1),
        ("rotate", "warpAffine(INTER_LINEAR)", _rotate),
        ("brightness", "LUT", _brighten),
        call("brightness", "convertScaleAbs", cv2, alpha=op.BRIGHTNESS),
        ("contrast", "cvtColor, convertScaleAbs", _contrast),
        ("saturation", "cvtColor, addWeighted", _saturate),
        ("hue", "cvtColor(HSV_FULL)", _shift_hue),
        call("grey", "cvtColor", cv2, cv2.COLOR_RGB2GRAY),
        call("blur", "GaussianBlur", cv2, (op.BLUR_SIZE,) * 2, op.BLUR_SIGMA),
        ("normalise", "torch", normalised_tensor),
        ("normalise", "dnn.blobFromImage, torch", _blob),
    ]
    for name, steps in (("INTER_LINEAR", linear), ("INTER_AREA", area)):
        calls += composed(steps, size, resized_crop=name, training=name, evaluation=name)
    return Peer("OpenCV", cv2.__version__, calls, jpeg=_jpeg(), simd=simd())


def _steps(flag: str) -> Steps:
    how = getattr(cv2, flag)
    return Steps(
        decode=lambda data: _decode(data, _RGB),
        crop=crop_pixels,
        resize=lambda pixels, height, width: cv2.resize(pixels, (width, height), interpolation=how),
        flip=lambda pixels: cv2.flip(pixels, 1),
        normalise=normalised_tensor,
    )


def _decode(data: bytes, flags: int) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), flags)


def _to_rgb(pixels: Any) -> Any:
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _rotate(pixels: Any) -> Any:
    height, width = pixels.shape[:2]
    # The centre in coordinates that start at the middle of the first pixel.
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), op.ANGLE, 1.0)
    return cv2.warpAffine(pixels, matrix, (width, height), flags=cv2.INTER_LINEAR)


def _brighten(pixels: Any) -> Any:
    levels = np.clip(np.arange(256) * op.BRIGHTNESS, 0, 255).astype(np.uint8)
    return cv2.LUT(pixels, levels)


def _contrast(pixels: Any) -> Any:
    mean = round(cv2.mean(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))[0])
    return cv2.convertScaleAbs(pixels, alpha=op.CONTRAST, beta=(1 - op.CONTRAST) * mean)


def _saturate(pixels: Any) -> Any:
    grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return cv2.addWeighted(pixels, op.SATURATION, grey, 1 - op.SATURATION, 0)


def _shift_hue(pixels: Any) -> Any:
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
    hsv[:, :, 0] += np.uint8(op.HUE * 255)  # wraps around, as the circle does
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def _blob(pixels: Any) -> torch.Tensor:
    return torch.from_numpy(cv2.dnn.blobFromImage(pixels, 1 / 255, mean=_MEAN_LEVELS)[0]).div_(_STD)


def _jpeg() -> str:
    found = re.search(r"^\s*JPEG:\s*(.+)$", cv2.getBuildInformation(), re.MULTILINE)
    library = found[1].strip() if found else "none"
    turbo = re.search(r"libjpeg-turbo \(ver ([\d.]+)", library)
    return f"libjpeg-turbo {turbo[1]}" if turbo else library


def simd() -> str:
    """Return the newest vector instructions that OpenCV uses on this CPU."""
    # "SSE *AVX2 *AVX512-SKX?": a star marks a choice at run time, "?" what this CPU lacks.
    features = [word.strip("*") for word in cv2.getCPUFeaturesLine().split()]
    usable = [word for word in features if not word.endswith("?")]
    return f"up to {usable[-1]}" if usable else "none"
