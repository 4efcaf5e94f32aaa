"""Libraries that are compared, one module each, imported only if the library is installed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench._operations import MEAN, STD, Sample, evaluation_size, middle, middle_half
from fastload.errors import ToolMissingError

MODULES = {
    "PIL": "pil",
    "OpenCV": "opencv",
    "fastload": "fastload",
    "torchvision": "torchvision",
    "simplejpeg": "simplejpeg",
    "PyTurboJPEG": "pyturbojpeg",
    "albumentations": "albumentations",
    "kornia": "kornia",
}
"""The module of each library, in the order of the tables."""

Run: TypeAlias = "Callable[[Any], Any]"
Call: TypeAlias = "tuple[str, str, Run]"
"""An operation, the name of the call in tables, and its function."""

_MEAN, _STD = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]


@dataclass(frozen=True, slots=True)
class Peer:
    """A library with its JPEG decoder, its vector instructions and its calls for operations.

    `from_pixels` converts uint8 RGB pixels (height, width, 3) into the library's own kind of image.
    """

    library: str
    version: str
    calls: Sequence[Call]
    from_pixels: Run = np.ascontiguousarray
    jpeg: str = ""
    simd: str = ""

    def calls_for(self, operation: str) -> list[tuple[str, Run]]:
        """Return the names and functions of an operation's calls."""
        return [(name, run) for key, name, run in self.calls if key == operation]


class Steps(NamedTuple):
    """Functions from which pipelines are made; sizes and boxes are in pixels.

    `crop(image, top, left, height, width)`; `resize(image, height, width)`; `size_of(image)` returns
    (height, width).
    """

    decode: Callable[[bytes], Any]
    crop: Callable[[Any, int, int, int, int], Any]
    resize: Callable[[Any, int, int], Any]
    flip: Run
    normalise: Run
    size_of: Callable[[Any], tuple[int, int]] = lambda pixels: pixels.shape[:2]


def composed(steps: Steps, size: int, **names: str) -> list[Call]:
    """Return calls made of these steps under the names given for `crop`, `resized_crop`, `training`, …."""

    def crop_middle(image: Any) -> Any:
        return steps.crop(image, *middle(steps.size_of(image), size), size, size)

    def resized_crop(image: Any) -> Any:
        return steps.resize(steps.crop(image, *middle_half(steps.size_of(image))), size, size)

    def train(sample: Sample) -> Any:
        *box, is_flipped = sample.box
        image = steps.resize(steps.crop(steps.decode(sample.data), *box), size, size)
        return steps.normalise(steps.flip(image) if is_flipped else image)

    def evaluate(sample: Sample) -> Any:
        image = steps.decode(sample.data)
        return steps.normalise(crop_middle(steps.resize(image, *evaluation_size(steps.size_of(image), size))))

    made = {"crop": crop_middle, "resized_crop": resized_crop, "training": train, "evaluation": evaluate}
    return [(key.replace("_", "-"), name, made[key]) for key, name in names.items()]


def call(operation: str, name: str, module: Any, *arguments: Any, **options: Any) -> Call:
    """Return the call of a module's function, whose name ends at a bracket, with further arguments."""
    function = name.partition("(")[0]
    # Looked up when it is used: a release without this function must not end the comparison.
    return operation, name, lambda image: getattr(module, function)(image, *arguments, **options)


def crop_pixels(pixels: Any, top: int, left: int, height: int, width: int) -> Any:
    """Return a view of a part of an array (height, width, channels)."""
    return pixels[top : top + height, left : left + width]


def unit_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return torchvision's ToTensor of pixels: float32, (3, height, width), 0…1, planar."""
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)


def normalised_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return ToTensor and Normalize of pixels."""
    return unit_tensor(pixels).sub_(_MEAN).div_(_STD)


def load_peer(library: str, size: int) -> Peer:
    """Import a library and return its peer, with crops and resizes of `size` × `size` pixels.

    Raises ToolMissingError with the reason in a few words if it is not installed or cannot be used.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of other libraries' imports do not concern our users
            module = importlib.import_module(f"fastload.bench._peers.{MODULES[library]}")
            peer: Peer = module.make(size)
    except ModuleNotFoundError as error:
        needed = "" if str(error.name).lower() in library.lower() else f" (it needs {error.name})"
        raise ToolMissingError(f"not installed{needed}") from error
    except Exception as error:
        # A library built for another torch, a missing shared library: the others are still compared.
        raise ToolMissingError(f"cannot be used here: {first_line(error)}") from error
    return peer


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
