"""kornia: float tensors, meant for the model's device; here on the CPU."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import _operations as op
from fastload.bench._peers import Peer, Steps, call, composed, crop_pixels, unit_tensor
from fastload.images.decode import decode


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    kornia = importlib.import_module("kornia")
    e, g = kornia.enhance, kornia.geometry.transform
    mean, std = torch.tensor(op.MEAN), torch.tensor(op.STD)
    square = (size, size)

    def resize(image: Any, height: int, width: int) -> Any:
        tensor = image if isinstance(image, torch.Tensor) else _to_tensor(image)
        return g.resize(tensor, (height, width), "bilinear", antialias=True)

    # Pixels become a tensor after the crop, so that only a part is converted.
    steps = Steps(decode, _crop, resize, g.hflip, lambda image: e.normalize(image, mean, std))
    blur = (op.BLUR_SIZE,) * 2, (op.BLUR_SIGMA,) * 2, "reflect"
    calls = [
        call("shrink-nearest", "resize(nearest)", g, square, "nearest"),
        call("shrink-bilinear", "resize(antialias=True)", g, square, "bilinear", antialias=True),
        call("shrink-bilinear", "resize(bilinear)", g, square, "bilinear"),
        call("shrink-bicubic", "resize(antialias=True)", g, square, "bicubic", antialias=True),
        *(
            call(f"enlarge-{name}", f"resize({name})", g, square, name)
            for name in ("nearest", "bilinear", "bicubic")
        ),
        call("flip", "hflip", g),
        call("rotate", "rotate", g, torch.tensor([op.ANGLE])),
        call("brightness", "adjust_brightness_accumulative", e, op.BRIGHTNESS),
        call("contrast", "adjust_contrast_with_mean_subtraction", e, op.CONTRAST),
        call("saturation", "adjust_saturation_with_gray_subtraction", e, op.SATURATION),
        call("hue", "adjust_hue", e, 2 * math.pi * op.HUE),
        call("grey", "rgb_to_grayscale", kornia.color),
        call("blur", "gaussian_blur2d", kornia.filters, *blur),
        ("normalise", "normalize (floats already)", steps.normalise),
        *composed(steps, size, training="OpenCV's decode", evaluation="OpenCV's decode"),
    ]
    simd = torch.backends.cpu.get_cpu_capability()
    return Peer("kornia", kornia.__version__, calls, _to_tensor, simd=simd)


def _crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    if isinstance(image, torch.Tensor):
        return image[..., top : top + height, left : left + width]
    return crop_pixels(image, top, left, height, width)


def _to_tensor(pixels: NDArray[np.uint8]) -> Any:
    return unit_tensor(np.ascontiguousarray(pixels))[None]
