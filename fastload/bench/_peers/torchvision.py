"""torchvision: v2 functions on uint8 tensors, and whole pipelines on PIL images as well."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench import _operations as op
from fastload.bench._peers import Peer, Steps, call, composed, pil


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    _declare_operators()
    torchvision = importlib.import_module("torchvision")
    io = importlib.import_module("torchvision.io")
    f = importlib.import_module("torchvision.transforms.v2.functional")
    mode = f.InterpolationMode
    square = [size, size]

    def normalise(image: Any) -> Any:
        image = image if isinstance(image, torch.Tensor) else f.pil_to_tensor(image)
        return f.normalize(f.to_dtype(image, torch.float32, scale=True), op.MEAN, op.STD, inplace=True)

    def decode_tensor(data: bytes) -> Any:
        return io.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), io.ImageReadMode.RGB)

    def resize(image: Any, height: int, width: int) -> Any:
        return f.resize(image, [height, width], antialias=True)

    calls = [
        ("decode", "io.decode_image", decode_tensor),
        *(
            call(f"{kind}-{how.name.partition('_')[0].lower()}", f"resize({how.name})", f, square, how)
            for kind in ("shrink", "enlarge")
            for how in (mode.NEAREST_EXACT, mode.BILINEAR, mode.BICUBIC)
        ),
        call("shrink-bilinear", "resize(antialias=False)", f, square, mode.BILINEAR, antialias=False),
        ("crop", "center_crop, copied", lambda image: f.center_crop(image, [size]).contiguous()),
        (
            "resized-crop",
            "resized_crop",
            lambda image: f.resized_crop(image, *op.middle_half(image.shape[-2:]), square, antialias=True),
        ),
        call("pad", "pad", f, [op.PAD]),
        call("flip", "horizontal_flip", f),
        call("rotate", "rotate(BILINEAR)", f, op.ANGLE, mode.BILINEAR),
        *(call(key, f"adjust_{key}", f, value) for key, value in op.COLOURS.items()),
        call("grey", "rgb_to_grayscale", f),
        call("blur", "gaussian_blur", f, [op.BLUR_SIZE] * 2, [op.BLUR_SIGMA] * 2),
        ("normalise", "to_dtype, normalize", normalise),
    ]
    for name, decode in (("v2 on PIL images", pil.decode), ("v2 on tensors", decode_tensor)):
        steps = Steps(decode, f.crop, resize, f.horizontal_flip, normalise, f.get_size)
        calls += composed(steps, size, training=name, evaluation=name)
    simd = torch.backends.cpu.get_cpu_capability()
    return Peer(
        "torchvision", torchvision.__version__, calls, _to_tensor, jpeg="its own, or PIL's", simd=simd
    )


def _to_tensor(pixels: NDArray[np.uint8]) -> Any:
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).contiguous()


_declared: list[Any] = []  # keeps the operators declared


def _declare_operators() -> None:
    """Let torchvision be imported beside a torch for which its compiled library was not built.

    A torchvision built for CUDA cannot load its library beside a CPU build of torch; its import then fails at
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
