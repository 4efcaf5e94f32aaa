"""A dataset's transform, taken apart into what is done while decoding, after it, and once for a batch.

    head    crops, resizes, flips at the beginning: said to the decoder as a geometry
    body    fastload's other transforms: on each image, or on all at once
    tail    ToTensor, ToDtype and Normalize at the end: once for a batch, where it is to lie or on its device

Conversions between kinds of images are nothing there.

A pipeline with a foreign callable in it has no such parts: it runs image by image, step by step.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from fastload.errors import SlowTransformWarning
from fastload.transforms.compose import Compose, TakesPictures, call_foreign, flattened, home_of
from fastload.transforms.converting import Conversion, ToTensor
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.rescaling import Normalize, Rescale, ToDtype, rescaled
from fastload.transforms.transform import Parameters, Pixels, Transform, to_pil, to_pixels, to_tensor

# After so many images it is said what foreign transforms cost.
_IMAGES_TO_MEASURE = 32

# Whole batches are faster where calls are what costs; above this size of an image, what counts is that it
# stays in the core's cache from one step to the next.
_WHOLE_BATCH_BYTES = 16_384


class Drawn(NamedTuple):
    """A pipeline with the parameters for a batch.

    Attributes:
        geometry: What is done while decoding.
        body: Transforms and their parameters.
        size: Of every result, (height, width); None where they differ.
        channels: Of the results.
        is_uniform: Whether images have one size after each step of the body, too.
    """

    geometry: Geometry
    body: list[tuple[Transform, Parameters]]
    size: tuple[int, int] | None
    channels: int
    is_uniform: bool

    @property
    def works_on_batches(self) -> bool:
        """Whether the body is to be applied to the whole batch: images are tiny, and always of one size."""
        size = self.geometry.uniform_size
        return self.is_uniform and size is not None and size[0] * size[1] * 3 <= _WHOLE_BATCH_BYTES

    def applied(self, image: Pixels, position: int) -> Pixels:
        """The body applied to one image of the batch."""
        for step, parameters in self.body:
            image = step.apply_checked(image, parameters[position].tolist())
        return image


class Pipeline:
    """A dataset's transform, taken apart.

    Args:
        transform: A Compose, one transform of fastload's, or any callable.

    Attributes:
        dtype: Of pixels before the tail.
        is_foreign: Whether a callable of others is among the steps.
    """

    def __init__(self, transform: Callable[[Any], Any] | None) -> None:
        self._steps = flattened([] if transform is None else [transform])
        self.is_foreign = not all(isinstance(step, Transform) for step in self._steps)
        last = len(self._steps)
        while last and isinstance(self._steps[last - 1], (ToDtype, Normalize, Conversion)):
            last -= 1
        self._first_of_tail = last
        self._tail_steps = [step for step in self._steps[last:] if isinstance(step, (ToDtype, Normalize))]
        self._counted = [step for step in self._steps[:last] if isinstance(step, Transform)]
        dtypes = [step for step in self._counted if isinstance(step, ToDtype)]
        self.dtype = Rescale.of(dtypes, torch.uint8).dtype
        # A foreign transform by itself is what it ever was; in a Compose of ours it is what to look at.
        self._clock = _Clock(transform) if self.is_foreign and type(transform) is Compose else None

    @property
    def tail(self) -> Rescale | None:
        """What is done once for a batch; None for nothing, or where a foreign callable comes before it."""
        return None if self.is_foreign or not self._tail_steps else Rescale.of(self._tail_steps, self.dtype)

    def draw(self, draws: Draws, sizes: Sizes) -> Drawn:
        """Draws all parameters for images of these sizes; of a pipeline that is not foreign."""
        geometry = Geometry(sizes)
        body: list[tuple[Transform, Parameters]] = []
        channels, is_uniform = 3, True
        for place, step in enumerate(self._counted):
            if isinstance(step, Conversion):
                continue
            parameters = step.draw(draws.at(place), sizes)
            if body or not step.fold(geometry, parameters):
                body.append((step, parameters))
            sizes = step.sizes_after(sizes, parameters)
            channels = step.channels_after(channels)
            is_uniform = is_uniform and (not body or _is_uniform(sizes))
        size = (int(sizes[0, 0]), int(sizes[0, 1])) if _is_uniform(sizes) else None
        return Drawn(geometry, body, size, channels, is_uniform)

    def run(self, pixels: Pixels, draws: Draws) -> Any:
        """Runs all steps on one image: the plain path, and the only one for foreign callables.

        Args:
            pixels: (height, width, 3), uint8, writeable.
            draws: The image's numbers.

        Returns:
            A tensor (3, height, width), or what a foreign callable at the end makes.
        """
        image: Any = pixels
        is_ours = True
        began = time.perf_counter()
        for place, step in enumerate(self._steps[: self._first_of_tail]):
            is_ours = isinstance(step, Transform)
            if isinstance(step, (Conversion, ToTensor)):
                image = step(image)
            elif isinstance(step, Transform):
                array = to_pixels(image)
                sizes = np.array([array.shape[:2]], np.int64)
                result = step.apply_checked(array, step.draw(draws.at(place), sizes)[0].tolist())
                # What somebody has made a tensor stays one: torchvision does other things to tensors.
                image = to_tensor(result) if isinstance(image, torch.Tensor) else result
            else:
                image = self._foreign(step, image)
        if self._clock is not None:
            self._clock.add_image(time.perf_counter() - began)
        if self._tail_steps:
            return rescaled(image, self._tail_steps)
        return to_tensor(image) if is_ours and isinstance(image, np.ndarray) else image

    def _foreign(self, step: Any, image: Any) -> Any:
        began = time.perf_counter()
        if isinstance(image, np.ndarray):
            # torchvision's transforms leave arrays as they are, without a word.
            if home_of(step) != "torchvision" and not isinstance(step, TakesPictures):
                image = np.ascontiguousarray(image)
            else:
                image = to_pil(image) if image.dtype == np.uint8 else to_tensor(image)
        image = call_foreign(step, image)
        if self._clock is not None:
            self._clock.add_step(step, time.perf_counter() - began)
        return image


class _Clock:
    """Measures foreign transforms, and says once what they cost."""

    def __init__(self, compose: Compose) -> None:
        self._compose = compose
        self._images = 0
        self._whole_s = 0.0
        self._foreign_s: dict[str, float] = {}

    def add_step(self, step: Any, seconds: float) -> None:
        if self._images < _IMAGES_TO_MEASURE:
            name = getattr(step, "__name__", type(step).__name__)
            name = name if home_of(step) == "fastload" else f"{home_of(step)}.{name}"
            self._foreign_s[name] = self._foreign_s.get(name, 0.0) + seconds

    def add_image(self, seconds: float) -> None:
        self._images += 1
        if self._images > _IMAGES_TO_MEASURE:
            return
        self._whole_s += seconds
        if self._images == _IMAGES_TO_MEASURE and self._compose.is_first_to_warn():
            per_image = 1e6 / self._images
            costs = ", ".join(f"{name} {cost * per_image:.0f} us" for name, cost in self._foreign_s.items())
            warnings.warn(
                f"some transforms run for one image after the other: {costs}, of "
                f"{self._whole_s * per_image:.0f} us an image for all transforms (decoding not counted)",
                SlowTransformWarning,
                stacklevel=2,
            )


def _is_uniform(sizes: Sizes) -> bool:
    return not (sizes != sizes[0]).any()
