"""Compose and RandomApply: transforms in a row, ours and anybody's."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.transform import Parameters, Pixels, Transform, to_pixels, to_probability

Step = Callable[[Any], Any]


class Compose:
    """Transforms in a row.

    Given to a dataset of fastload's, the crops, resizes and flips that it begins with are done while
    decoding, and the rest for whole batches where that is faster. It may hold any callable: torchvision's are
    given PIL images, as ImageFolder would; albumentations' and others arrays (height, width, 3). Those run
    for one image after the other.

    Args:
        transforms: One after the other.

    Raises:
        OptionError: One of them is no callable.
    """

    def __init__(self, transforms: Sequence[Step]) -> None:
        self.transforms = _callables(transforms)
        self._warned = mmap.mmap(-1, 1)

    def is_first_to_warn(self) -> bool:
        """True once, in one of all processes that were forked from the one where this was made."""
        has_warned = self._warned[0] != 0
        self._warned[0] = 1
        return not has_warned

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_warned"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._warned = mmap.mmap(-1, 1)

    def __call__(self, image: Any) -> Any:
        """Applies all; between two of them the image is what the first one made of it."""
        for transform in self.transforms:
            image = call_foreign(transform, image)
        return image

    def __repr__(self) -> str:
        return f"Compose({self.transforms!r})"


class TakesPictures:
    """What is given a PIL image in a Compose while pixels are bytes, as torchvision's transforms are."""

    def __call__(self, image: Any) -> Any:
        """What it makes of an image."""
        raise NotImplementedError


class Chain:
    """Some of fastload's transforms, one after the other, as a part of another.

    Args:
        transforms: Of fastload's, or Composes of such.
        owner: The name of what they are a part of.

    Attributes:
        width: How many parameters an image has.

    Raises:
        OptionError: A transform is not fastload's.
    """

    def __init__(self, transforms: Sequence[Step], owner: str) -> None:
        self._steps: list[Transform] = []
        self._owner = owner
        for step in flattened(transforms):
            if not isinstance(step, Transform):
                raise OptionError(
                    f"{owner} takes transforms of fastload's for images, got {step!r}: "
                    f"torchvision.transforms.v2.{owner} takes any"
                )
            self._steps.append(step)
        self.width = sum(step.width for step in self._steps)

    @property
    def takes_any_dtype(self) -> bool:
        """Whether all of them do."""
        return all(step.takes_any_dtype for step in self._steps)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """The parameters of each, side by side."""
        parts = [np.empty((len(sizes), 0))]
        for place, step in enumerate(self._steps):
            parts.append(step.draw(draws.at(place), sizes))
            sizes = step.sizes_after(sizes, parts[-1])
        return np.concatenate(parts, axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes that images of these sizes will have."""
        first = 0
        for step in self._steps:
            sizes = step.sizes_after(sizes, parameters[:, first : first + step.width])
            first += step.width
        return sizes

    def channels_after(self, channels: int) -> int:
        """As many: some images go through it, and others do not.

        Raises:
            OptionError: They would differ.
        """
        after = channels
        for step in self._steps:
            after = step.channels_after(after)
        if after != channels:
            raise OptionError(f"{self._owner} must keep the {channels} channels of an image, got {after}")
        return channels

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Applies all."""
        first = 0
        for step in self._steps:
            image = step.apply_checked(image, parameters[first : first + step.width])
            first += step.width
        return image


class RandomApply(Transform):
    """Applies all of some transforms, or none.

    Args:
        transforms: One after the other; of fastload's.
        p: The share of images that they are applied to.

    Raises:
        OptionError: p is no probability, or a transform is not fastload's.
    """

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = transforms
        self.p = to_probability(p)
        self._chain = Chain(transforms, "RandomApply")
        self.width = 1 + self._chain.width

    @property
    def takes_any_dtype(self) -> bool:  # type: ignore[override]
        """Whether all of them do."""
        return self._chain.takes_any_dtype

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """1 where they are applied, then the parameters of each."""
        applied = (draws.uniform(1) < self.p).astype(np.float64)
        return np.concatenate((applied, self._chain.draw(draws, sizes)), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes, changed where they are applied."""
        return np.where(parameters[:, :1] > 0, self._chain.sizes_after(sizes, parameters[:, 1:]), sizes)

    def channels_after(self, channels: int) -> int:
        """As many, for images that they are applied to and for others alike.

        Raises:
            OptionError: They would differ.
        """
        return self._chain.channels_after(channels)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Applies all, or none."""
        return self._chain.apply(image, parameters[1:]) if parameters[0] else image


def flattened(transforms: Sequence[Step]) -> list[Step]:
    """Transforms with those of every Compose in its place."""
    steps: list[Step] = []
    for transform in _callables(transforms):
        steps += flattened(transform.transforms) if type(transform) is Compose else [transform]
    return steps


def call_foreign(step: Step, image: Any) -> Any:
    """Calls a transform; those of albumentations by name, and with an array.

    Args:
        step: Anybody's.
        image: What it is given.
    """
    if home_of(step) != "albumentations":
        return step(image)
    pixels = np.ascontiguousarray(to_pixels(image))
    result: Any = step(image=pixels)  # type: ignore[call-arg]
    return result["image"]


def home_of(step: Any) -> str:
    """The package that a callable, or one of its classes, comes from, if it is one that is treated apart."""
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


def _callables(transforms: Any) -> list[Step]:
    if not isinstance(transforms, (list, tuple)) and not hasattr(transforms, "__iter__"):
        raise OptionError(f"transforms must be a list of callables, got {transforms!r}")
    steps = list(transforms)
    for step in steps:
        if isinstance(step, type):
            raise OptionError(
                f"a transform must be made before it is used, got the class {step.__name__} itself"
            )
        if not callable(step):
            raise OptionError(f"a transform must be callable, got {step!r}")
    return steps
