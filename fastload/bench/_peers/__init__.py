"""Libraries that are compared."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench._operations import IMAGE_SIDE, MEAN, STD, DrawnCrop, Sample, letterbox, middle_half
from fastload.bench.results import Library

Picture: TypeAlias = Any
"""A library's own kind of image."""

Run: TypeAlias = "Callable[[Any], Picture]"

_MEAN, _STD = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]


@dataclass(frozen=True, slots=True)
class Steps:
    """Functions of a library from which its pipelines are made; sizes and boxes are in pixels.

    `crop(image, top, left, height, width)`; `resize(image, height, width)`; `size_of(image)` returns
    (height, width).
    """

    decode: Callable[[bytes], Picture]
    crop: Callable[[Picture, int, int, int, int], Picture]
    resize: Callable[[Picture, int, int], Picture]
    flip: Run
    normalise: Run
    size_of: Callable[[Picture], tuple[int, int]] = lambda pixels: pixels.shape[:2]

    def resized(self, image: Picture) -> Picture:
        """Resize an image to the side of a training image."""
        return self.resize(image, IMAGE_SIDE, IMAGE_SIDE)

    def resized_crop(self, image: Picture) -> Picture:
        """Crop the middle half and resize it."""
        return self.resized(self.crop(image, *middle_half(self.size_of(image))))

    def augmented(self, image: Picture, box: DrawnCrop) -> Picture:
        """Crop, resize and perhaps flip an image."""
        image = self.resized(self.crop(image, *box[:4]))
        return self.flip(image) if box.is_flipped else image

    def training(self, sample: Sample) -> Picture:
        """Return a training sample: decoded, cropped, resized, perhaps flipped, normalised."""
        return self.normalise(self.augmented(self.decode(sample.data), sample.box))


def crop_pixels(pixels: Picture, top: int, left: int, height: int, width: int) -> Picture:
    """Return a view of a part of an array (height, width, channels)."""
    return pixels[top : top + height, left : left + width]


def normalised_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return torchvision's ToTensor and Normalize of pixels: float32, (3, height, width)."""
    tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
    return tensor.to(torch.float32).div_(255).sub_(_MEAN).div_(_STD)


def float_tensor(image: object) -> torch.Tensor:
    """Return torchvision's ToTensor of a PIL image or an array: float32 of 0…1, (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)


def detection(steps: Steps, pad: Callable[[Picture, int, int], Picture], to_float: Run = float_tensor) -> Run:
    """Return the pipeline of a detector: decode, letterbox, a float tensor of 0…1.

    `pad(image, top, left)` places an image on a grey square.
    """

    def run(data: bytes) -> Picture:
        image = steps.decode(data)
        height, width, top, left = letterbox(steps.size_of(image))
        return to_float(pad(steps.resize(image, height, width), top, left))

    return run


@dataclass(frozen=True, slots=True)
class Peer:
    """A library and its calls: the key of an operation, the name in tables, and the function.

    `from_pixels` converts uint8 RGB pixels (height, width, 3) into the library's own kind of image. `jpeg`
    names its JPEG decoder.
    """

    library: str
    version: str
    calls: Sequence[tuple[str, str, Run]]
    from_pixels: Run = np.ascontiguousarray
    jpeg: str = ""

    def calls_for(self, operation: str) -> list[tuple[str, Run]]:
        """Return the names and functions of an operation's calls."""
        return [(name, run) for key, name, run in self.calls if key == operation]


def load_peer(library: str, module_name: str) -> Peer | Library:
    """Import a library and return its peer, or the reason why it cannot be used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of other libraries' imports do not concern our users
            module = importlib.import_module(module_name)
            peer: Peer = module.make()
    except ModuleNotFoundError as error:
        needed = "" if str(error.name).lower() in library.lower() else f" (it needs {error.name})"
        return Library(library, None, reason=f"not installed{needed}")
    except Exception as error:
        # A library built for another torch, a missing shared library: the others are still compared.
        return Library(library, None, reason=f"cannot be used here: {first_line(error)}")
    return peer


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
