"""Peers: libraries with their own kind of image and the calls that do each operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench.operations import MEAN, STD, Sample, evaluation_size, middle

_MEAN = torch.tensor(MEAN)[:, None, None]
_STD = torch.tensor(STD)[:, None, None]

Call: TypeAlias = "Callable[[Any], Any]"
Calls: TypeAlias = "Mapping[str, Mapping[str, Call]]"
"""For each operation the functions that do it, by the name that the tables show."""


class Method(NamedTuple):
    """A peer's call for one operation; `run` takes the operation's input in the peer's own kind of image."""

    operation: str
    call: str
    run: Call


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that takes part, with its JPEG decoder and vector instructions.

    `from_pixels` converts uint8 RGB pixels (height, width, 3) into the library's own kind of image.
    """

    library: str
    version: str
    from_pixels: Callable[[NDArray[np.uint8]], Any]
    calls: Calls
    jpeg: str = ""
    simd: str = ""

    def methods(self, operation: str) -> list[Method]:
        """Return the calls for an operation."""
        return [Method(operation, name, run) for name, run in self.calls.get(operation, {}).items()]


class Steps(NamedTuple):
    """Functions from which pipelines are made; sizes and boxes are in pixels.

    `size_of(image)` returns (height, width); `crop(image, top, left, height, width)`;
    `resize(image, height, width)`.
    """

    decode: Callable[[bytes], Any]
    size_of: Callable[[Any], tuple[int, int]]
    crop: Callable[[Any, int, int, int, int], Any]
    resize: Callable[[Any, int, int], Any]
    flip: Call
    normalise: Call


def pipelines(steps: Steps, size: int) -> dict[str, Call]:
    """Return the training and evaluation pipelines made of these steps."""

    def train(sample: Sample) -> Any:
        *box, is_flipped = sample.box
        image = steps.resize(steps.crop(steps.decode(sample.data), *box), size, size)
        return steps.normalise(steps.flip(image) if is_flipped else image)

    def evaluate(sample: Sample) -> Any:
        image = steps.decode(sample.data)
        height, width = evaluation_size(steps.size_of(image), size)
        top, left = middle((height, width), size)
        return steps.normalise(steps.crop(steps.resize(image, height, width), top, left, size, size))

    return {"training": train, "evaluation": evaluate}


def crop_pixels(pixels: Any, top: int, left: int, height: int, width: int) -> Any:
    """Return a view of a part of an array (height, width, channels)."""
    return pixels[top : top + height, left : left + width]


def unit_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return torchvision's ToTensor of pixels: float32, (3, height, width), 0…1, planar."""
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)


def normalised_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return ToTensor and Normalize of pixels."""
    return unit_tensor(pixels).sub_(_MEAN).div_(_STD)
