"""Transforms made of others: Compose, RandomApply, RandomChoice, RandomOrder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.transforms.annotations import Annotations
from fastload.transforms.draws import Draws
from fastload.transforms.options import Described, require, to_probability
from fastload.transforms.pixels import to_pixels
from fastload.transforms.transform import BatchTransform, Parameters, Row, Sizes, Transform

AnyTransform = Callable[..., object]
Transforms = Sequence[Transform] | Sequence[BatchTransform]


class Compose:
    """Applies transforms in sequence.

    In fastload's datasets, the crops, resizes and flips at the beginning are done while decoding, and the
    rest for entire batches where that is faster. Any callable may be among the transforms: torchvision's get
    PIL images, as from ImageFolder; albumentations' and others get arrays (height, width, 3). With one of
    those, the images of a batch are transformed one by one.

    Args:
        transforms: The transforms, in order.
    """

    def __init__(self, transforms: Sequence[AnyTransform]) -> None:
        self.transforms = to_steps(transforms)

    def __call__(self, *inputs: object) -> Any:
        """Apply all transforms, each to what the previous one returned.

        Inputs are an image or a sample; see `Transform`. Of (image, target), a callable of another library is
        called with both, and returns both, as torchvision's do.
        """
        sample: Any = inputs[0] if len(inputs) == 1 else inputs
        for transform in self.transforms:
            sample = call_foreign(transform, sample) if len(inputs) == 1 else transform(*sample)
        return sample

    def __repr__(self) -> str:
        return f"Compose({self.transforms!r})"


class TakesPILImages(Described):
    """Base class of callables that get PIL images in a Compose while pixels are uint8, like torchvision's."""


def flattened(transform: AnyTransform | None) -> list[AnyTransform]:
    """Return a transform as a list: those that a Compose holds, itself or in others, or none for None."""
    if type(transform) is Compose:
        return [step for each in transform.transforms for step in flattened(each)]
    return [] if transform is None else [transform]


def call_foreign(step: AnyTransform, image: object) -> object:
    """Call any library's transform with an image; albumentations' by keyword and with an array."""
    if package_of(step) != "albumentations":
        return step(image)
    result = step(image=np.ascontiguousarray(to_pixels(image)))
    return cast("Mapping[str, object]", result)["image"]


def package_of(step: object) -> str:
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


def are_fastloads(transforms: Sequence[object]) -> bool:
    """Return whether transforms, and those that they hold, are all of fastload's own classes."""
    return all(
        type(step).__module__.startswith("fastload.") and are_fastloads(getattr(step, "transforms", ()))
        for step in transforms
    )


def to_steps(transforms: Iterable[AnyTransform]) -> list[AnyTransform]:
    """Return transforms as a list; raise OptionError unless all are callables."""
    require(isinstance(transforms, Iterable), "transforms must be a list of callables", transforms)
    steps = list(transforms)
    for step in steps:
        if isinstance(step, type):
            raise OptionError(f"a transform must be an object, got the class {step.__name__}: call it first")
        require(callable(step), "a transform must be callable", step)
    return steps


class _Sequence(Transform):
    """Base class of transforms that apply lists of others in a random order, or not all of them.

    The parameters are the indices of the lists to apply, in order, then the parameters of each transform;
    those of transforms that are not applied are 0.
    """

    def __init__(self, lists: Sequence[Sequence[Transform]], turns: int) -> None:
        self._turns = turns
        self._lists: list[list[tuple[Transform, slice]]] = []
        self.width = turns
        for steps in lists:
            columns = []
            for step in steps:
                columns.append((step, slice(self.width, self.width + step.width)))
                self.width += step.width
            self._lists.append(columns)

    @property
    def takes_any_dtype(self) -> bool:  # type: ignore[override]
        return all(step.takes_any_dtype for steps in self._lists for step, _ in steps)

    def channels_after(self, channels: int) -> int:
        for steps in self._lists:
            after = functools.reduce(lambda before, step: step[0].channels_after(before), steps, channels)
            if after != channels:
                name = type(self).__name__
                raise OptionError(f"{name} must keep the {channels} channels of an image, got {after}")
        return channels

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        rows = np.zeros((len(sizes), self.width))
        rows[:, : self._turns] = self._draw_turns(draws)
        self._follow(sizes, rows, draws)
        return rows

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        return self._follow(sizes, parameters, None)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        for number in map(int, parameters[: self._turns]):
            for step, columns in self._lists[number]:
                image = step.apply_checked(image, parameters[columns])
        return image

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        for number in map(int, parameters[: self._turns]):
            for step, columns in self._lists[number]:
                annotations = step.apply_to(annotations, parameters[columns])
        return annotations

    def _draw_turns(self, draws: Draws) -> NDArray[np.generic]:
        """Draw the indices of the lists to apply, (images, turns)."""
        raise NotImplementedError

    def _follow(self, sizes: Sizes, rows: Parameters, draws: Draws | None) -> Sizes:
        """Return the sizes after each image's transforms; with `draws`, fill in their parameters."""
        after = np.array(sizes)
        for turn in range(self._turns):
            for number, steps in enumerate(self._lists):
                which = np.flatnonzero(rows[:, turn] == number) if steps else ()
                if not len(which):
                    continue
                for place, (step, columns) in enumerate(steps):
                    if draws is not None:
                        keys = draws.at(number).at(place).keys[which]
                        rows[which, columns] = step.draw(Draws(keys, len(which)), after[which])
                    after[which] = step.sizes_after(after[which], rows[which, columns])
        return after


class RandomApply(_Sequence):
    """Applies fastload's transforms in order with probability `p`, otherwise none of them."""

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = transforms
        self.p = to_probability(p)
        super().__init__([[], _fastload_steps(transforms, "RandomApply")], 1)

    def _draw_turns(self, draws: Draws) -> NDArray[np.generic]:
        return draws.uniform(1) < self.p


class RandomChoice(_Sequence):
    """Applies one of fastload's transforms, drawn from a list with weights `p`, by default equal ones.

    Each may be a Compose. If all are MixUp or CutMix, the result is called with a batch, as they are.
    """

    def __init__(self, transforms: Transforms, p: list[float] | None = None) -> None:
        are_mixes = all(isinstance(step, BatchTransform) for step in to_steps(transforms))
        self._is_of_mixes = _is_list(transforms) and are_mixes
        super().__init__([] if self._is_of_mixes else _each_as_list(transforms, "RandomChoice"), 1)
        self.transforms = transforms
        weights = [1.0] * len(transforms) if p is None else list(p)
        are_weights = len(weights) == len(transforms) and min(weights) >= 0 and sum(weights) > 0
        require(are_weights, f"p must be a weight for each of {len(transforms)} transforms", p)
        self.p = [weight / sum(weights) for weight in weights]

    def __call__(self, *inputs: object) -> Any:
        """Transform an image or a sample; see `Transform`. With MixUp and CutMix, mix a batch, as they do."""
        if not self._is_of_mixes:
            return super().__call__(*inputs)
        number = int(torch.multinomial(torch.tensor(self.p), 1))
        return self.transforms[number](*inputs)

    def _draw_turns(self, draws: Draws) -> NDArray[np.generic]:
        if self._is_of_mixes:
            raise OptionError("RandomChoice of MixUp and CutMix must be called with a batch")
        return np.searchsorted(np.cumsum(self.p)[:-1], draws.uniform(1), side="right")


class RandomOrder(_Sequence):
    """Applies fastload's transforms in random order; each may be a Compose."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__(_each_as_list(transforms, "RandomOrder"), len(transforms))
        self.transforms = transforms

    def _draw_turns(self, draws: Draws) -> NDArray[np.generic]:
        return draws.uniform(self._turns).argsort(axis=1)


def _is_list(transforms: object) -> bool:
    return isinstance(transforms, (list, tuple)) and len(transforms) > 0


def _each_as_list(transforms: Transforms, owner: str) -> list[list[Transform]]:
    require(_is_list(transforms), f"{owner} must be given a list of transforms", transforms)
    return [_fastload_steps([transform], owner) for transform in transforms]


def _fastload_steps(transforms: Sequence[AnyTransform], owner: str) -> list[Transform]:
    """Return transforms, flattened; raise OptionError unless all are fastload's."""
    steps: list[Transform] = []
    for step in [step for each in to_steps(transforms) for step in flattened(each)]:
        if not isinstance(step, Transform):
            raise OptionError(
                f"{owner} takes fastload's image transforms, got {step!r}: "
                f"torchvision.transforms.v2.{owner} takes any"
            )
        steps.append(step)
    return steps
