"""OpenCV's side: NumPy arrays, and for tensors torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import operations as do
from fastload.bench.sides.side import Side, Way, normalised_tensor, unit_tensor
from fastload.images.opencv import cv2

# IMREAD_COLOR_RGB came with OpenCV 4.11, which fastload asks for.
_RGB = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_BGR = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
_HALF = cv2.IMREAD_REDUCED_COLOR_2 | cv2.IMREAD_IGNORE_ORIENTATION

_SHRINKS = {
    "nearest": ("INTER_NEAREST", "INTER_NEAREST_EXACT"),
    "box": ("INTER_AREA",),
    "bilinear": ("INTER_LINEAR", "INTER_AREA"),
    "bicubic": ("INTER_CUBIC", "INTER_AREA"),
    "lanczos": ("INTER_LANCZOS4", "INTER_AREA"),
}
_ENLARGEMENTS = {
    "nearest": ("INTER_NEAREST", "INTER_NEAREST_EXACT"),
    "bilinear": ("INTER_LINEAR", "INTER_LINEAR_EXACT"),
    "bicubic": ("INTER_CUBIC",),
    "lanczos": ("INTER_LANCZOS4",),
}

_Pixels = NDArray[np.uint8]


def make(size: int) -> Side:
    """Makes OpenCV's ways, with crops and resizes of `size` × `size` pixels."""
    resizes = [
        Way(f"{kind}-{name}", flag, _resize(size, getattr(cv2, flag)))
        for kind, table in (("shrink", _SHRINKS), ("enlarge", _ENLARGEMENTS))
        for name, flags in table.items()
        for flag in flags
    ]
    pipelines = [
        Way(key, flag, _pipeline(size, getattr(cv2, flag), key))
        for key in ("training", "training-jitter", "evaluation")
        for flag in ("INTER_LINEAR", "INTER_AREA")
    ]
    return Side(
        "OpenCV",
        np.ascontiguousarray,
        (
            Way("read", "imread(COLOR_RGB)", lambda path: cv2.imread(path, _RGB)),
            Way("read", "imread, cvtColor", lambda path: _swapped(cv2.imread(path, _BGR))),
            Way("decode", "imdecode(COLOR_RGB)", lambda data: _decoded(data, _RGB)),
            Way("decode", "imdecode, cvtColor", lambda data: _swapped(_decoded(data, _BGR))),
            Way("decode-half", "imdecode(REDUCED_2), cvtColor", lambda data: _swapped(_decoded(data, _HALF))),
            Way("to-rgb", "cvtColor", _swapped),
            *resizes,
            Way("crop", "slice, copy", lambda pixels: _middle(pixels, size).copy()),
            Way("resized-crop", "INTER_LINEAR", lambda p: _resized_crop(p, size, cv2.INTER_LINEAR)),
            Way("resized-crop", "INTER_AREA", lambda p: _resized_crop(p, size, cv2.INTER_AREA)),
            Way("pad", "copyMakeBorder", _pad),
            Way("flip-horizontal", "flip", lambda pixels: cv2.flip(pixels, 1)),
            Way("flip-vertical", "flip", lambda pixels: cv2.flip(pixels, 0)),
            Way("rotate", "warpAffine(INTER_LINEAR)", lambda p: _warp(p, -do.ANGLE)),
            Way("affine", "warpAffine(INTER_LINEAR)", _affine),
            Way("brightness", "LUT", _brighten),
            Way("brightness", "convertScaleAbs", lambda p: cv2.convertScaleAbs(p, alpha=do.BRIGHTNESS)),
            Way("contrast", "cvtColor, convertScaleAbs", _contrast),
            Way("saturation", "cvtColor, addWeighted", _saturate),
            Way("hue", "cvtColor(HSV_FULL)", _turn_hue),
            Way("jitter", "the four above", lambda pixels: _turn_hue(_jitter(pixels))),
            Way("grey", "cvtColor", lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)),
            Way("blur", "GaussianBlur", lambda p: cv2.GaussianBlur(p, (do.BLUR_SIZE,) * 2, do.BLUR_SIGMA)),
            Way("to-tensor", "torch", unit_tensor),
            Way("to-tensor", "dnn.blobFromImage", _blob),
            Way("normalise", "torch", normalised_tensor),
            Way("normalise", "dnn.blobFromImage, torch", lambda p: _blob(p, _MEAN_LEVELS).div_(_STD)),
            *pipelines,
        ),
    )


_MEAN_LEVELS = tuple(255 * value for value in do.MEAN)
_STD = torch.tensor(do.STD)[:, None, None]


def _decoded(data: bytes, flags: int) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), flags)


def _swapped(pixels: Any) -> Any:
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _resize(size: int, flag: int) -> Callable[[_Pixels], Any]:
    return lambda pixels: cv2.resize(pixels, (size, size), interpolation=flag)


def _middle(pixels: Any, size: int) -> Any:
    top, left = do.middle(pixels.shape, size)
    return pixels[top : top + size, left : left + size]


def _resized_crop(pixels: _Pixels, size: int, flag: int) -> Any:
    top, left, height, width = do.middle_half(pixels.shape)
    part = pixels[top : top + height, left : left + width]
    return cv2.resize(part, (size, size), interpolation=flag)


def _affine(pixels: _Pixels) -> Any:
    return _warp(pixels, do.AFFINE_ANGLE, do.AFFINE_SCALE)


def _warp(pixels: _Pixels, angle: float, scale: float = 1.0) -> Any:
    height, width = pixels.shape[:2]
    matrix = do.between_pixel_centres(do.affine_matrix((height, width), angle, scale))
    return cv2.warpAffine(pixels, matrix, (width, height), flags=cv2.INTER_LINEAR)


def _pad(pixels: Any) -> Any:
    return cv2.copyMakeBorder(pixels, do.PAD, do.PAD, do.PAD, do.PAD, cv2.BORDER_CONSTANT)


def _brighten(pixels: Any) -> Any:
    levels = np.clip(np.arange(256) * do.BRIGHTNESS, 0, 255).astype(np.uint8)
    return cv2.LUT(pixels, levels)


def _contrast(pixels: Any) -> Any:
    mean = round(cv2.mean(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))[0])
    return cv2.convertScaleAbs(pixels, alpha=do.CONTRAST, beta=(1 - do.CONTRAST) * mean)


def _saturate(pixels: Any) -> Any:
    grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return cv2.addWeighted(pixels, do.SATURATION, grey, 1 - do.SATURATION, 0)


def _turn_hue(pixels: Any) -> Any:
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
    hsv[:, :, 0] += np.uint8(do.HUE * 255)  # wraps around, as the circle does
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def _jitter(pixels: Any) -> Any:
    return _saturate(_contrast(_brighten(pixels)))


def _blob(pixels: _Pixels, mean: tuple[float, ...] = (0.0, 0.0, 0.0)) -> torch.Tensor:
    return torch.from_numpy(cv2.dnn.blobFromImage(pixels, 1 / 255, mean=mean)[0])


def _pipeline(size: int, flag: int, key: str) -> Callable[[do.Sample], torch.Tensor]:
    def train(sample: do.Sample) -> torch.Tensor:
        top, left, height, width, is_flipped = sample.box
        part = _decoded(sample.data, _RGB)[top : top + height, left : left + width]
        pixels = cv2.resize(part, (size, size), interpolation=flag)
        if is_flipped:
            pixels = cv2.flip(pixels, 1)
        return normalised_tensor(_jitter(pixels) if key == "training-jitter" else pixels)

    def evaluate(sample: do.Sample) -> torch.Tensor:
        pixels = _decoded(sample.data, _RGB)
        height, width = do.evaluation_size(pixels.shape, size)
        pixels = cv2.resize(pixels, (width, height), interpolation=flag)
        return normalised_tensor(_middle(pixels, size))

    return evaluate if key == "evaluation" else train
