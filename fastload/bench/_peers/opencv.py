"""OpenCV on NumPy arrays, with torch for tensors."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import torch

from fastload.bench import _operations as op
from fastload.bench._peers import Peer, Picture, Run, Steps, crop_pixels, detection, normalised_tensor
from fastload.images.opencv import cv2

_MEAN_LEVELS = tuple(255 * value for value in op.MEAN)
_STD = torch.tensor(op.STD)[:, None, None]


def make() -> Peer:
    """Return the peer."""
    linear, area = _steps("INTER_LINEAR"), _steps("INTER_AREA")
    calls: list[tuple[str, str, Run]] = [
        ("decode", "imdecode(COLOR_RGB)", linear.decode),
        ("decode", "imdecode, cvtColor", lambda data: cv2.cvtColor(_decode(data), cv2.COLOR_BGR2RGB)),
        ("resize", "INTER_LINEAR", linear.resized),
        ("resize", "INTER_AREA", area.resized),
        ("resized-crop", "INTER_LINEAR", linear.resized_crop),
        ("resized-crop", "INTER_AREA", area.resized_crop),
        ("flip", "flip", linear.flip),
        ("jitter", "convertScaleAbs, cvtColor, addWeighted", _jitter),
        ("normalise", "torch", normalised_tensor),
        ("normalise", "dnn.blobFromImage, torch", _blob),
        ("detection", "INTER_LINEAR", detection(linear, pad)),
        ("training", "INTER_LINEAR", linear.training),
        ("training", "INTER_AREA", area.training),
    ]
    return Peer("OpenCV", cv2.__version__, calls, jpeg=_jpeg())


def _steps(flag: str) -> Steps:
    return steps_with(lambda data: _decode(data, cv2.IMREAD_COLOR_RGB), flag)


def steps_with(decode: Callable[[bytes], Picture], flag: str = "INTER_LINEAR") -> Steps:
    """Return OpenCV's steps after any decoder, resizing with the interpolation of that name."""
    how = getattr(cv2, flag)
    return Steps(
        decode=decode,
        crop=crop_pixels,
        resize=lambda pixels, height, width: cv2.resize(pixels, (width, height), interpolation=how),
        flip=lambda pixels: cv2.flip(pixels, 1),
        normalise=normalised_tensor,
    )


def _decode(data: bytes, flags: int = cv2.IMREAD_COLOR) -> Picture:
    return cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)


def pad(pixels: Picture, top: int, left: int) -> Picture:
    """Place an image on a grey square."""
    bottom, right = (op.DETECTION_SIDE - each for each in (top + pixels.shape[0], left + pixels.shape[1]))
    return cv2.copyMakeBorder(pixels, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(op.PADDING,) * 3)


def _jitter(pixels: Picture) -> Picture:
    pixels = cv2.convertScaleAbs(pixels, alpha=op.BRIGHTNESS)
    mean = round(cv2.mean(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))[0])
    pixels = cv2.convertScaleAbs(pixels, alpha=op.CONTRAST, beta=(1 - op.CONTRAST) * mean)
    grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    pixels = cv2.addWeighted(pixels, op.SATURATION, grey, 1 - op.SATURATION, 0)
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
    hsv[:, :, 0] += np.uint8(op.HUE * 255)  # wraps around, as the circle does
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def _blob(pixels: Picture) -> torch.Tensor:
    return torch.from_numpy(cv2.dnn.blobFromImage(pixels, 1 / 255, mean=_MEAN_LEVELS)[0]).div_(_STD)


def _jpeg() -> str:
    found = re.search(r"^\s*JPEG:\s*(.+)$", cv2.getBuildInformation(), re.MULTILINE)
    library = found[1].strip() if found else "none"
    turbo = re.search(r"libjpeg-turbo \(ver ([\d.]+)", library)
    return f"libjpeg-turbo {turbo[1]}" if turbo else library
