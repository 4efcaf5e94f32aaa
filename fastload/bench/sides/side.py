"""What every library's side is: its own kind of image, and its ways of doing the operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench.operations import MEAN, STD

_MEAN = torch.tensor(MEAN)[:, None, None]
_STD = torch.tensor(STD)[:, None, None]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing an operation.

    Attributes:
        operation: The operation's key.
        call: The function or the flags, as the tables name it.
        work: Does it: takes what the operation is given, in the side's own kind, and returns the result.
    """

    operation: str
    call: str
    work: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Side:
    """A library that takes part.

    Attributes:
        library: What the tables call it.
        take: Makes its own kind of image of pixels, RGB, uint8, (height, width, 3).
        ways: What it does.
    """

    library: str
    take: Callable[[NDArray[np.uint8]], Any]
    ways: tuple[Way, ...]


def unit_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """What torchvision's ToTensor makes of pixels: float32, (3, height, width), 0…1, planar."""
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)


def normalised_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """ToTensor and Normalize."""
    return unit_tensor(pixels).sub_(_MEAN).div_(_STD)
