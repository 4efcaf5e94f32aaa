"""torchvision: v2 functions on uint8 tensors, and whole pipelines on PIL images as well."""

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

from fastload.bench import operations as op
from fastload.bench.peers.peer import Call, Peer, Steps, pipelines


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    _declare_operators()
    torchvision = importlib.import_module("torchvision")
    io_ = importlib.import_module("torchvision.io")
    f = importlib.import_module("torchvision.transforms.v2.functional")
    mode = f.InterpolationMode

    def resize(how: Any, antialias: bool = True) -> Call:
        return lambda image: f.resize(image, [size, size], how, antialias=antialias)

    def normalise(image: Any) -> Any:
        image = image if isinstance(image, torch.Tensor) else f.pil_to_tensor(image)
        return f.normalize(f.to_dtype(image, torch.float32, scale=True), op.MEAN, op.STD, inplace=True)

    def decode_tensor(data: bytes) -> Any:
        return io_.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), io_.ImageReadMode.RGB)

    def steps(decode: Callable[[bytes], Any]) -> Steps:
        return Steps(
            decode=decode,
            size_of=f.get_size,
            crop=f.crop,
            resize=lambda image, height, width: f.resize(image, [height, width], antialias=True),
            flip=f.horizontal_flip,
            normalise=normalise,
        )

    of_pil, of_tensors = pipelines(steps(_decode_pil), size), pipelines(steps(decode_tensor), size)
    resizes = {
        f"{kind}-{name}": {f"resize({how.name})": resize(how)}
        for kind in ("shrink", "enlarge")
        for name, how in (
            ("nearest", mode.NEAREST_EXACT),
            ("bilinear", mode.BILINEAR),
            ("bicubic", mode.BICUBIC),
        )
    }
    resizes["shrink-bilinear"]["resize(antialias=False)"] = resize(mode.BILINEAR, antialias=False)
    return Peer(
        "torchvision",
        torchvision.__version__,
        _to_tensor,
        {
            "decode": {"io.decode_image": decode_tensor},
            **resizes,
            "crop": {"center_crop, copied": lambda image: f.center_crop(image, [size]).contiguous()},
            "resized-crop": {
                "resized_crop": lambda image: f.resized_crop(
                    image, *op.middle_half(image.shape[-2:]), [size, size], antialias=True
                )
            },
            "pad": {"pad": lambda image: f.pad(image, [op.PAD])},
            "flip": {"horizontal_flip": f.horizontal_flip},
            "rotate": {"rotate(BILINEAR)": lambda image: f.rotate(image, op.ANGLE, mode.BILINEAR)},
            "brightness": {"adjust_brightness": lambda i: f.adjust_brightness(i, op.BRIGHTNESS)},
            "contrast": {"adjust_contrast": lambda i: f.adjust_contrast(i, op.CONTRAST)},
            "saturation": {"adjust_saturation": lambda i: f.adjust_saturation(i, op.SATURATION)},
            "hue": {"adjust_hue": lambda i: f.adjust_hue(i, op.HUE)},
            "grey": {"rgb_to_grayscale": f.rgb_to_grayscale},
            "blur": {"gaussian_blur": lambda i: f.gaussian_blur(i, [op.BLUR_SIZE] * 2, [op.BLUR_SIGMA] * 2)},
            "normalise": {"to_dtype, normalize": normalise},
            **{key: {"v2 on PIL images": of_pil[key], "v2 on tensors": of_tensors[key]} for key in of_pil},
        },
        jpeg="its own, or PIL's",
        simd=torch.backends.cpu.get_cpu_capability(),
    )


def _to_tensor(pixels: NDArray[np.uint8]) -> Any:
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).contiguous()


def _decode_pil(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


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
