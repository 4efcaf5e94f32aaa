"""Compose: transforms in sequence, fastload's and those of other libraries."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.transforms._pixels import to_pixels

Step = Callable[[Any], Any]


class Compose:
    """Applies transforms in sequence.

    In a dataset of fastload's, the crops, resizes and flips at the beginning are done while decoding, and the
    rest for whole batches where that is faster. Any callable may be among the transforms: torchvision's are
    given PIL images, as by ImageFolder; albumentations' and others are given arrays (height, width, 3). With
    one of those, the images of a batch are transformed one by one.

    Args:
        transforms: The transforms, in order.
    """

    def __init__(self, transforms: Sequence[Step]) -> None:
        self.transforms = _to_steps(transforms)
        self._warned = mmap.mmap(-1, 1)

    def is_first_to_warn(self) -> bool:
        """Return True once, in only one of all the processes forked from the one that made this object."""
        has_warned = self._warned[0] != 0
        self._warned[0] = 1
        return not has_warned

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_warned"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._warned = mmap.mmap(-1, 1)

    def __call__(self, image: Any) -> Any:
        """Apply all transforms, each to what the previous one returned."""
        for transform in self.transforms:
            image = call_foreign(transform, image)
        return image

    def __repr__(self) -> str:
        return f"Compose({self.transforms!r})"


class TakesPILImages:
    """Base class of callables that a Compose gives PIL images while pixels are uint8, as torchvision's."""


def flattened(transforms: Sequence[Step]) -> list[Step]:
    """Return transforms with each Compose replaced by the transforms that it holds."""
    steps: list[Step] = []
    for transform in _to_steps(transforms):
        steps += flattened(transform.transforms) if type(transform) is Compose else [transform]
    return steps


def call_foreign(step: Step, image: Any) -> Any:
    """Call any library's transform with an image; albumentations' by keyword and with an array."""
    if home_of(step) != "albumentations":
        return step(image)
    pixels = np.ascontiguousarray(to_pixels(image))
    result: Any = step(image=pixels)  # type: ignore[call-arg]
    return result["image"]


def home_of(step: Any) -> str:
    """Return the package of a callable; torchvision or albumentations if a base class is theirs."""
    if isinstance(step, torch.nn.Sequential) and len(step):
        step = step[0]
    while isinstance(step, functools.partial):
        step = step.func
    if isinstance(step, FunctionType):
        modules = [step.__module__]
    else:
        modules = [kind.__module__ for kind in type(step).__mro__]
    packages = [module.partition(".")[0] for module in modules]
    known = [package for package in packages if package in ("torchvision", "albumentations")]
    return known[0] if known else packages[0]


def _to_steps(transforms: Any) -> list[Step]:
    if not hasattr(transforms, "__iter__"):
        raise OptionError(f"transforms must be a list of callables, got {transforms!r}")
    steps = list(transforms)
    for step in steps:
        if isinstance(step, type):
            raise OptionError(f"a transform must be an object, got the class {step.__name__}: call it first")
        if not callable(step):
            raise OptionError(f"a transform must be callable, got {step!r}")
    return steps
