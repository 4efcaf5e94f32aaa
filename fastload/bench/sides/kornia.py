"""kornia's side: float tensors, made for the device of a model; here on the CPU."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import operations as do
from fastload.bench.sides.side import Side, Way, unit_tensor
from fastload.images.decode import decode


def make(size: int) -> Side:
    """Makes kornia's ways, with crops and resizes of `size` × `size` pixels."""
    e = importlib.import_module("kornia.enhance")
    g = importlib.import_module("kornia.geometry.transform")
    color = importlib.import_module("kornia.color")
    filters = importlib.import_module("kornia.filters")
    mean, std = torch.tensor(do.MEAN), torch.tensor(do.STD)

    def resize(name: str, antialias: bool = False) -> Callable[[Any], Any]:
        return lambda image: g.resize(image, (size, size), name, antialias=antialias)

    def jitter(image: Any) -> Any:
        image = e.adjust_brightness_accumulative(image, do.BRIGHTNESS)
        image = e.adjust_contrast_with_mean_subtraction(image, do.CONTRAST)
        return e.adjust_saturation_with_gray_subtraction(image, do.SATURATION)

    def train(sample: do.Sample, has_jitter: bool) -> Any:
        top, left, height, width, is_flipped = sample.box
        image = _to_tensor(decode(sample.data)[top : top + height, left : left + width])
        image = g.resize(image, (size, size), "bilinear", antialias=True)
        image = g.hflip(image) if is_flipped else image
        return e.normalize(jitter(image) if has_jitter else image, mean, std)

    def evaluate(sample: do.Sample) -> Any:
        pixels = decode(sample.data)
        target = do.evaluation_size(pixels.shape, size)
        image = g.resize(_to_tensor(pixels), target, "bilinear", antialias=True)
        top, left = do.middle(target, size)
        return e.normalize(image[..., top : top + size, left : left + size], mean, std)

    def warp(image: Any) -> Any:
        height, width = image.shape[-2:]
        matrix = do.affine_matrix((height, width), do.AFFINE_ANGLE, do.AFFINE_SCALE)
        matrix = do.between_pixel_centres(matrix)
        return g.warp_affine(
            image, torch.from_numpy(matrix).float()[None], (height, width), align_corners=True
        )

    blur = ((do.BLUR_SIZE,) * 2, (do.BLUR_SIGMA,) * 2, "reflect")
    return Side(
        "kornia",
        _to_tensor,
        (
            Way("shrink-nearest", "resize(nearest)", resize("nearest")),
            Way("shrink-bilinear", "resize(antialias=True)", resize("bilinear", antialias=True)),
            Way("shrink-bilinear", "resize(bilinear)", resize("bilinear")),
            Way("shrink-bicubic", "resize(antialias=True)", resize("bicubic", antialias=True)),
            Way("enlarge-nearest", "resize(nearest)", resize("nearest")),
            Way("enlarge-bilinear", "resize(bilinear)", resize("bilinear")),
            Way("enlarge-bicubic", "resize(bicubic)", resize("bicubic")),
            Way("flip-horizontal", "hflip", g.hflip),
            Way("flip-vertical", "vflip", g.vflip),
            Way("rotate", "rotate", lambda image: g.rotate(image, torch.tensor([do.ANGLE]))),
            Way("affine", "warp_affine", warp),
            Way(
                "brightness",
                "adjust_brightness_accumulative",
                lambda image: e.adjust_brightness_accumulative(image, do.BRIGHTNESS),
            ),
            Way(
                "contrast",
                "adjust_contrast_with_mean_subtraction",
                lambda image: e.adjust_contrast_with_mean_subtraction(image, do.CONTRAST),
            ),
            Way(
                "saturation",
                "adjust_saturation_with_gray_subtraction",
                lambda image: e.adjust_saturation_with_gray_subtraction(image, do.SATURATION),
            ),
            Way("hue", "adjust_hue", lambda image: e.adjust_hue(image, 2 * math.pi * do.HUE)),
            Way("jitter", "the four above", lambda i: e.adjust_hue(jitter(i), 2 * math.pi * do.HUE)),
            Way("grey", "rgb_to_grayscale", color.rgb_to_grayscale),
            Way("blur", "gaussian_blur2d", lambda image: filters.gaussian_blur2d(image, *blur)),
            Way("normalise", "normalize (floats already)", lambda image: e.normalize(image, mean, std)),
            Way("training", "OpenCV's decode", lambda sample: train(sample, False)),
            Way("training-jitter", "OpenCV's decode", lambda sample: train(sample, True)),
            Way("evaluation", "OpenCV's decode", evaluate),
        ),
    )


def _to_tensor(pixels: NDArray[np.uint8]) -> Any:
    return unit_tensor(np.ascontiguousarray(pixels))[None]
