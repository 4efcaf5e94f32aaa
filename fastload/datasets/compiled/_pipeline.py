"""Compiled transforms of other libraries, which draw the same random parameters and make pixels faster.

Parts of a pipeline:

    begin    known steps, recorded in a LazyImage
    left     from the first unknown step on: transforms are called with the same images as before
    end      conversions, arithmetic and erasing: once for each batch
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np
import PIL.Image

from fastload.datasets.compiled._known import KnownSteps, known_first, tail_of
from fastload.datasets.compiled._lazy import LazyImage
from fastload.datasets.compiled._steps import CompiledStep, StepKind, steps_of
from fastload.datasets.compiled._vector import vectorized
from fastload.images.arrays import Pixels
from fastload.images.deferred import DeferredImage

# Parameters of a transform that are nested more deeply, or in larger containers, are not compared.
_MOST_DEPTH, _MOST_PARTS = 6, 32


class CompiledTransform:
    """A faster version of a transform.

    Attributes:
        theirs: The original transform.
        steps: Its steps.
        end: The steps that finish an image; all steps, if all are known.
        vector: The pipeline that makes whole batches of one image size; None if a step does not allow it.
    """

    def __init__(self, transform: Any) -> None:
        self.theirs = transform
        self._parameters = _parameters_of(transform)
        steps = steps_of(transform)
        # The first step says if the images may be arrays; of those, ToPILImage changes nothing else.
        name = steps[0].name if steps else ""
        self._needs_arrays = name == "ToPILImage" and steps[0].theirs.mode is None
        self._takes_arrays = self._needs_arrays or name in ("ToImage", "ToTensor")
        self._first = steps[: self._needs_arrays]
        self.steps = steps[self._needs_arrays :]
        first = known_first(self.steps)
        is_known = first == len(self.steps)
        self._left = range(first, first if is_known else tail_of(self.steps, first))
        self._begin = KnownSteps(self.steps[:first])
        self.end = self._begin if is_known else KnownSteps(self.steps[self._left.stop :])
        self.vector = vectorized(self.steps) if is_known else None

    def is_of(self, transform: object) -> bool:
        """Return True if this was compiled from `transform`, and `transform` has not changed since."""
        if self.theirs is not transform:
            return False
        parameters = _parameters_of(transform)
        are_same = map(operator.is_, parameters, self._parameters)
        return len(parameters) == len(self._parameters) and all(are_same)

    def kinds(self) -> Iterator[tuple[CompiledStep, StepKind]]:
        """Yield each step and its kind, `unknown` for all from the first unknown one to the tail."""
        for step in self._first:
            yield step, "conversion"
        for place, step in enumerate(self.steps):
            yield step, "unknown" if place in self._left else step.kind

    @property
    def is_useful(self) -> bool:
        """True if a step is known."""
        return any(step.kind != "unknown" for step in self.steps)

    def prepare(self, image: LazyImage) -> object:
        """Draw all random numbers of one image; return a LazyImage for `end`, or the finished image."""
        result: Any = self._begin.prepare(image)
        if not self._left:
            return result
        # Unknown steps get the same input as before: a tensor, or a decoded image.
        result = self._begin.in_their_memory_format(self._begin.finish(result))
        for step in self.steps[self._left.start : self._left.stop]:
            result = step.theirs(result)
        if isinstance(result, PIL.Image.Image) and result.mode in ("RGB", "L"):
            return self.end.prepare(result)
        for step in self.steps[self._left.stop :]:
            result = step.theirs(result)
        return result

    def __call__(self, *inputs: object, **options: object) -> object:
        """Transform a PIL image or a NumPy array; pass any other input to the original transform."""
        image = inputs[0] if len(inputs) == 1 and not options else None
        if isinstance(image, PIL.Image.Image) and image.mode in ("RGB", "L") and not self._needs_arrays:
            lazy = LazyImage.of(image)
        elif self._takes_arrays and _is_image_array(image):
            lazy = LazyImage(DeferredImage.of_pixels(np.ascontiguousarray(image)))
        else:
            return self.theirs(*inputs, **options)
        return self.end.finish(self.prepare(lazy))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "theirs":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledTransform, (self.theirs,)

    def __repr__(self) -> str:
        return f"compiled({self.theirs!r})"


def _is_image_array(image: object) -> TypeGuard[Pixels]:
    """Return True for pixels as OpenCV returns them: (height, width, 1 or 3), uint8."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        return False
    return image.ndim == 3 and image.shape[2] in (1, 3) and image.size > 0


def _parameters_of(value: object, depth: int = 0) -> list[object]:
    """Return the parameters of a transform and of its inner transforms."""
    if isinstance(value, (list, tuple)):
        found = list(value) if len(value) <= _MOST_PARTS else []
    elif depth < _MOST_DEPTH and callable(value) and not isinstance(value, type):
        depth += 1
        attributes = getattr(value, "__dict__", {})
        found = [each for name, each in attributes.items() if name[0] != "_"]
        # Of a Module's private attributes, only its submodules matter.
        found += attributes.get("_modules", {}).values()
    else:
        return []
    for part in found[:]:
        found += _parameters_of(part, depth)
    return found
