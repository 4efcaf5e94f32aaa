"""kornia: float tensors, meant for the model's device; here on the CPU."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import operations as op
from fastload.bench.peers.peer import Call, Peer, Steps, crop_pixels, pipelines, unit_tensor
from fastload.images.decode import decode

_FILTERS = ("nearest", "bilinear", "bicubic")


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    kornia = importlib.import_module("kornia")
    e, g = kornia.enhance, kornia.geometry.transform
    mean, std = torch.tensor(op.MEAN), torch.tensor(op.STD)

    def resize(name: str, antialias: bool = False) -> Call:
        return lambda image: g.resize(image, (size, size), name, antialias=antialias)

    def brighten(image: Any) -> Any:
        return e.adjust_brightness_accumulative(image, op.BRIGHTNESS)

    def contrast(image: Any) -> Any:
        return e.adjust_contrast_with_mean_subtraction(image, op.CONTRAST)

    def saturate(image: Any) -> Any:
        return e.adjust_saturation_with_gray_subtraction(image, op.SATURATION)

    def shift_hue(image: Any) -> Any:
        return e.adjust_hue(image, 2 * math.pi * op.HUE)

    def normalise(image: Any) -> Any:
        return e.normalize(image, mean, std)

    def resize_to(image: Any, height: int, width: int) -> Any:
        tensor = image if isinstance(image, torch.Tensor) else _to_tensor(image)
        return g.resize(tensor, (height, width), "bilinear", antialias=True)

    # Pixels become a tensor after the crop, so that only a part is converted.
    steps = Steps(decode, lambda pixels: pixels.shape[:2], _crop, resize_to, g.hflip, normalise)
    blur = (op.BLUR_SIZE,) * 2, (op.BLUR_SIGMA,) * 2, "reflect"
    return Peer(
        "kornia",
        kornia.__version__,
        _to_tensor,
        {
            "shrink-nearest": {"resize(nearest)": resize("nearest")},
            "shrink-bilinear": {
                "resize(antialias=True)": resize("bilinear", antialias=True),
                "resize(bilinear)": resize("bilinear"),
            },
            "shrink-bicubic": {"resize(antialias=True)": resize("bicubic", antialias=True)},
            **{
                f"enlarge-{name}": {f"resize({name})": resize(name)}
                for name in ("nearest", "bilinear", "bicubic")
            },
            "flip": {"hflip": g.hflip},
            "rotate": {"rotate": lambda image: g.rotate(image, torch.tensor([op.ANGLE]))},
            "brightness": {"adjust_brightness_accumulative": brighten},
            "contrast": {"adjust_contrast_with_mean_subtraction": contrast},
            "saturation": {"adjust_saturation_with_gray_subtraction": saturate},
            "hue": {"adjust_hue": shift_hue},
            "grey": {"rgb_to_grayscale": kornia.color.rgb_to_grayscale},
            "blur": {"gaussian_blur2d": lambda image: kornia.filters.gaussian_blur2d(image, *blur)},
            "normalise": {"normalize (floats already)": normalise},
            **{key: {"OpenCV's decode": run} for key, run in pipelines(steps, size).items()},
        },
        simd=torch.backends.cpu.get_cpu_capability(),
    )


def _crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    if isinstance(image, torch.Tensor):
        return image[..., top : top + height, left : left + width]
    return crop_pixels(image, top, left, height, width)


def _to_tensor(pixels: NDArray[np.uint8]) -> Any:
    return unit_tensor(np.ascontiguousarray(pixels))[None]
