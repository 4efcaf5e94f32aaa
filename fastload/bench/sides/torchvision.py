"""torchvision's side: its v2 functions on uint8 tensors, and whole pipelines on PIL images too."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import operations as do
from fastload.bench.sides.side import Side, Way


def make(size: int) -> Side:
    """Makes torchvision's ways, with crops and resizes of `size` × `size` pixels."""
    _declare_operators()
    io_ = importlib.import_module("torchvision.io")
    f = importlib.import_module("torchvision.transforms.v2.functional")
    mode = f.InterpolationMode
    modes = {"nearest": mode.NEAREST_EXACT, "bilinear": mode.BILINEAR, "bicubic": mode.BICUBIC}

    def resize(name: str, antialias: bool) -> Callable[[Any], Any]:
        return lambda image: f.resize(image, [size, size], modes[name], antialias=antialias)

    def resized_crop(image: Any) -> Any:
        return f.resized_crop(image, *do.middle_half(image.shape[-2:]), [size, size], antialias=True)

    def jitter(image: Any) -> Any:
        image = f.adjust_contrast(f.adjust_brightness(image, do.BRIGHTNESS), do.CONTRAST)
        return f.adjust_saturation(image, do.SATURATION)

    def normalise(image: Any) -> Any:
        image = image if isinstance(image, torch.Tensor) else f.pil_to_tensor(image)
        return f.normalize(f.to_dtype(image, torch.float32, scale=True), do.MEAN, do.STD, inplace=True)

    def decode_tensor(data: bytes) -> Any:
        return io_.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), io_.ImageReadMode.RGB)

    def pipeline(key: str, decode: Callable[[bytes], Any]) -> Callable[[do.Sample], Any]:
        def train(sample: do.Sample) -> Any:
            *box, is_flipped = sample.box
            image = f.resized_crop(decode(sample.data), *box, [size, size], antialias=True)
            if is_flipped:
                image = f.horizontal_flip(image)
            return normalise(jitter(image) if key == "training-jitter" else image)

        def evaluate(sample: do.Sample) -> Any:
            image = f.resize(decode(sample.data), [do.shorter_side(size)], antialias=True)
            return normalise(f.center_crop(image, [size]))

        return evaluate if key == "evaluation" else train

    pipelines = [
        Way(key, call, pipeline(key, decode))
        for key in ("training", "training-jitter", "evaluation")
        for call, decode in (("v2 on PIL images", _decode_pil), ("v2 on tensors", decode_tensor))
    ]
    blur = ([do.BLUR_SIZE] * 2, [do.BLUR_SIGMA] * 2)
    return Side(
        "torchvision",
        _to_tensor,
        (
            Way("read", "io.decode_image", lambda path: io_.decode_image(path, io_.ImageReadMode.RGB)),
            Way("decode", "io.decode_image", decode_tensor),
            Way("shrink-nearest", "resize(NEAREST_EXACT)", resize("nearest", True)),
            Way("shrink-bilinear", "resize(BILINEAR)", resize("bilinear", True)),
            Way("shrink-bilinear", "resize(antialias=False)", resize("bilinear", False)),
            Way("shrink-bicubic", "resize(BICUBIC)", resize("bicubic", True)),
            Way("enlarge-nearest", "resize(NEAREST_EXACT)", resize("nearest", True)),
            Way("enlarge-bilinear", "resize(BILINEAR)", resize("bilinear", True)),
            Way("enlarge-bicubic", "resize(BICUBIC)", resize("bicubic", True)),
            Way("crop", "center_crop, copied", lambda image: f.center_crop(image, [size]).contiguous()),
            Way("resized-crop", "resized_crop", resized_crop),
            Way("pad", "pad", lambda image: f.pad(image, [do.PAD])),
            Way("flip-horizontal", "horizontal_flip", f.horizontal_flip),
            Way("flip-vertical", "vertical_flip", f.vertical_flip),
            Way("rotate", "rotate(BILINEAR)", lambda image: f.rotate(image, do.ANGLE, mode.BILINEAR)),
            Way(
                "affine",
                "affine(BILINEAR)",
                lambda i: f.affine(i, do.AFFINE_ANGLE, [0, 0], do.AFFINE_SCALE, [0.0], mode.BILINEAR),
            ),
            Way("brightness", "adjust_brightness", lambda i: f.adjust_brightness(i, do.BRIGHTNESS)),
            Way("contrast", "adjust_contrast", lambda i: f.adjust_contrast(i, do.CONTRAST)),
            Way("saturation", "adjust_saturation", lambda i: f.adjust_saturation(i, do.SATURATION)),
            Way("hue", "adjust_hue", lambda i: f.adjust_hue(i, do.HUE)),
            Way("jitter", "the four above", lambda i: f.adjust_hue(jitter(i), do.HUE)),
            Way("grey", "rgb_to_grayscale", f.rgb_to_grayscale),
            Way("blur", "gaussian_blur", lambda i: f.gaussian_blur(i, *blur)),
            Way("to-tensor", "to_dtype", lambda i: f.to_dtype(i, torch.float32, scale=True)),
            Way("normalise", "to_dtype, normalize", normalise),
            *pipelines,
        ),
    )


def _to_tensor(pixels: NDArray[np.uint8]) -> Any:
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).contiguous()


def _decode_pil(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


_declared: list[Any] = []  # what keeps operators declared


def _declare_operators() -> None:
    """Lets torchvision be imported beside a torch that its compiled library was not built for.

    It is built for CUDA where torch may not be; then it cannot be loaded, and `import torchvision` fails on
    the first operator that its Python code registers something for. Its transforms need none of them.
    """
    ops: Any = torch.ops
    library_of: Any = torch.library.Library
    found = importlib.util.find_spec("torchvision")
    if _declared or found is None or not found.submodule_search_locations:
        return
    for library in Path(next(iter(found.submodule_search_locations))).glob("_C*.so"):
        with contextlib.suppress(OSError):
            ops.load_library(str(library))
            return
    if hasattr(ops.torchvision, "nms"):
        return
    operators = library_of("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(operators)
