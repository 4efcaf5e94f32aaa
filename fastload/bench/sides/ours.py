"""fastload's side: what its datasets do to an image, step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fastload.transforms as T
from fastload.bench import operations as do
from fastload.bench.sides.side import Side, Way
from fastload.images.decode import decode
from fastload.images.opencv import cv2
from fastload.images.resize import resize

_JITTER = {"brightness": do.BRIGHTNESS, "contrast": do.CONTRAST, "saturation": do.SATURATION}


def make(size: int) -> Side:
    """Makes fastload's ways, with crops and resizes of `size` × `size` pixels."""
    to_floats = T.ToDtype(torch.float32, scale=True)
    colours = {name: _jitter(name, value) for name, value in _JITTER.items()}
    hue = _jitter("hue", do.HUE)
    middle = T.CenterCrop(size)
    angles, affine_angles, scales = (do.ANGLE,) * 2, (do.AFFINE_ANGLE,) * 2, (do.AFFINE_SCALE,) * 2
    return Side(
        "fastload",
        np.ascontiguousarray,
        (
            Way("read", "FolderDataset", lambda path: decode(Path(path).read_bytes())),
            Way("decode", "FolderDataset", decode),
            _resize("shrink", "nearest", size),
            _resize("shrink", "nearest", size, "nearest-exact"),
            _resize("shrink", "box", size, "area"),
            _resize("shrink", "bilinear", size),
            Way("shrink-bilinear", "Resize(antialias=False)", T.Resize((size, size), antialias=False)),
            _resize("shrink", "bicubic", size),
            _resize("enlarge", "nearest", size),
            _resize("enlarge", "bilinear", size),
            _resize("enlarge", "bicubic", size),
            Way("crop", "CenterCrop, copied", lambda pixels: np.ascontiguousarray(middle(pixels))),
            Way("resized-crop", "Resize(bilinear)", lambda pixels: _resized_crop(pixels, size)),
            Way("pad", "Pad", T.Pad(do.PAD)),
            Way("flip-horizontal", "RandomHorizontalFlip", T.RandomHorizontalFlip(1.0)),
            Way("flip-vertical", "RandomVerticalFlip", T.RandomVerticalFlip(1.0)),
            Way("rotate", "RandomRotation", T.RandomRotation(angles, interpolation="bilinear")),
            Way(
                "affine",
                "RandomAffine",
                T.RandomAffine(affine_angles, scale=scales, interpolation="bilinear"),
            ),
            *(Way(name, "ColorJitter", colour) for name, colour in colours.items()),
            Way("hue", "ColorJitter", hue),
            # One with all four would do them in an order of its own, drawn for each image.
            Way("jitter", "ColorJitter, four times", T.Compose([*colours.values(), hue])),
            Way("grey", "Grayscale", T.Grayscale(1)),
            Way("blur", "GaussianBlur", T.GaussianBlur(do.BLUR_SIZE, (do.BLUR_SIGMA,) * 2)),
            Way("to-tensor", "ToDtype", to_floats),
            Way("normalise", "ToDtype, Normalize", T.Compose([to_floats, T.Normalize(do.MEAN, do.STD)])),
            Way("training", "antialiased", _training(size)),
            Way("training-jitter", "antialiased", _training(size, T.Compose(list(colours.values())))),
            Way("evaluation", "antialiased", _evaluation(size)),
        ),
    )


def _resize(kind: str, name: str, size: int, interpolation: str = "") -> Way:
    interpolation = interpolation or name
    transform = T.Resize((size, size), interpolation=interpolation)
    return Way(f"{kind}-{name}", f"Resize({interpolation})", transform)


def _jitter(name: str, value: float) -> T.Transform:
    return T.ColorJitter(**{name: (value, value)})


def _resized_crop(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    top, left, height, width = do.middle_half(pixels.shape)
    return resize(pixels[top : top + height, left : left + width], size, size)


def _training(size: int, colours: Callable[[Any], Any] | None = None) -> Callable[[do.Sample], Any]:
    normalise = T.Compose([T.ToDtype(torch.float32, scale=True), T.Normalize(do.MEAN, do.STD)])

    def train(sample: do.Sample) -> Any:
        top, left, height, width, is_flipped = sample.box
        pixels = resize(decode(sample.data)[top : top + height, left : left + width], size, size)
        if is_flipped:
            pixels = np.asarray(cv2.flip(pixels, 1), np.uint8)
        return normalise(colours(pixels) if colours else pixels)

    return train


def _evaluation(size: int) -> Callable[[do.Sample], Any]:
    transform = T.Compose(
        [
            T.Resize(do.shorter_side(size)),
            T.CenterCrop(size),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(do.MEAN, do.STD),
        ]
    )
    return lambda sample: transform(decode(sample.data))
