"""torchvision: v2 functions on uint8 tensors, and pipelines on PIL images as well."""

from __future__ import annotations

import importlib

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import operations as op
from fastload.bench.peers import Peer, Picture, Steps, decode_by_pil, detection


def make() -> Peer:
    """Return the peer."""
    torchvision = importlib.import_module("torchvision")
    io = importlib.import_module("torchvision.io")
    f = importlib.import_module("torchvision.transforms.v2.functional")
    square = [op.IMAGE_SIDE, op.IMAGE_SIDE]

    def normalise(image: Picture) -> Picture:
        image = image if isinstance(image, torch.Tensor) else f.pil_to_tensor(image)
        return f.normalize(f.to_dtype(image, torch.float32, scale=True), op.MEAN, op.STD, inplace=True)

    def decode_tensor(data: bytes) -> Picture:
        return io.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), io.ImageReadMode.RGB)

    def jitter(image: Picture) -> Picture:
        image = f.adjust_contrast(f.adjust_brightness(image, op.BRIGHTNESS), op.CONTRAST)
        return f.adjust_hue(f.adjust_saturation(image, op.SATURATION), op.HUE)

    def pad(image: Picture, top: int, left: int) -> Picture:
        height, width = f.get_size(image)
        rest = op.DETECTION_SIDE - left - width, op.DETECTION_SIDE - top - height
        return f.pad(image, [left, top, *rest], fill=op.PADDING)

    def to_float(image: Picture) -> Picture:
        return f.to_dtype(f.to_image(image), torch.float32, scale=True)

    tensors, images = (
        Steps(
            decode,
            f.crop,
            lambda image, height, width: f.resize(image, [height, width]),
            f.horizontal_flip,
            normalise,
            f.get_size,
        )
        for decode in (decode_tensor, decode_by_pil)
    )
    calls = [
        ("decode", "io.decode_image", decode_tensor),
        ("resize", "resize(BILINEAR)", tensors.resized),
        ("resize", "resize(antialias=False)", lambda image: f.resize(image, square, antialias=False)),
        ("resized-crop", "crop, resize", tensors.resized_crop),
        ("flip", "horizontal_flip", f.horizontal_flip),
        ("jitter", "adjust_brightness, …", jitter),
        ("normalise", "to_dtype, normalize", normalise),
        ("detection", "v2 on PIL images", detection(images, pad, to_float)),
        ("detection", "v2 on tensors", detection(tensors, pad, to_float)),
        ("training", "v2 on PIL images", images.training),
        ("training", "v2 on tensors", tensors.training),
    ]
    return Peer("torchvision", torchvision.__version__, calls, _to_tensor, jpeg="its own, or PIL's")


def _to_tensor(pixels: NDArray[np.uint8]) -> Picture:
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).contiguous()
