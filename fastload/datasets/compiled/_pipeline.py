"""Compiled transforms of other libraries, which draw the same random parameters and make pixels faster.

Parts of a pipeline:

    begin    known steps, recorded in a LazyImage
    left     from the first unknown step on: transforms are called with the same images as before
    end      conversions, arithmetic and erasing: once for each batch
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import PIL.Image

from fastload.datasets.compiled._known import KnownSteps, known_first, tail_of
from fastload.datasets.compiled._lazy import LazyImage
from fastload.datasets.compiled._steps import CompiledStep, StepKind, steps_of
from fastload.datasets.compiled._vector import vectorized
from fastload.images.deferred import DeferredImage

# Parameters of a transform that are nested more deeply, or in larger containers, are not compared.
_MOST_DEPTH, _MOST_PARTS = 6, 32

# A container, a function that returns its current values, and its values at the time of compilation.
_Watched = tuple[object, Callable[[Any], tuple[object, ...]], tuple[object, ...]]


class CompiledTransform:
    """A faster version of a transform.

    Attributes:
        theirs: The original transform.
        steps: Its steps.
        end: The steps that finish an image; all steps, if all are known.
        vector: The pipeline that makes whole batches of one image size; None if a step does not allow it.
    """

    def __init__(self, transform: Any, steps: Sequence[CompiledStep] | None = None) -> None:
        self.theirs = transform
        self._watched = list(_watched(transform))
        self.steps = steps_of(transform) if steps is None else steps
        first = known_first(self.steps)
        is_known = first == len(self.steps)
        self._left = range(first, first if is_known else tail_of(self.steps, first))
        self._begin = KnownSteps(self.steps[:first])
        self.end = self._begin if is_known else KnownSteps(self.steps[self._left.stop :])
        self.vector = vectorized(self.steps) if is_known else None
        self._of_arrays = self._for_arrays()

    def is_of(self, transform: object) -> bool:
        """Return True if this was compiled from `transform`, and `transform` has not changed since."""
        return self.theirs is transform and all(map(_is_unchanged, self._watched))

    def _for_arrays(self) -> CompiledTransform | None:
        """Return the transform for arrays instead of PIL images; None if only the original takes arrays."""
        name = self.steps[0].name if self.steps else ""
        if name == "ToPILImage" and getattr(self.steps[0].theirs, "mode", None) is None:
            return CompiledTransform(None, self.steps[1:])
        return self if name in ("ToImage", "ToTensor") else None

    def kinds(self) -> Iterator[tuple[CompiledStep, StepKind]]:
        """Yield each step and its kind, `unknown` for all from the first unknown one to the tail."""
        if self._of_arrays not in (None, self):
            yield self.steps[0], "conversion"
            yield from self._of_arrays.kinds()
            return
        for place, step in enumerate(self.steps):
            yield step, "unknown" if place in self._left else step.kind

    @property
    def is_useful(self) -> bool:
        """True if a step is known."""
        return any(step.kind != "unknown" for step in self.steps)

    def prepare(self, image: LazyImage) -> object:
        """Draw all random numbers of one image; return a LazyImage for `end`, or the finished image."""
        result = self._begin.prepare(image)
        if not self._left:
            return result
        # Unknown steps get the same input as before: a tensor, or a decoded image.
        result = self._begin.finish(result)
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
        if isinstance(image, PIL.Image.Image) and image.mode in ("RGB", "L"):
            return self.end.finish(self.prepare(LazyImage.of(image)))
        if self._of_arrays is not None and _is_image_array(image):
            of_arrays = self._of_arrays
            return of_arrays.end.finish(
                of_arrays.prepare(LazyImage(DeferredImage.of_pixels(np.ascontiguousarray(image))))
            )
        return self.theirs(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "theirs":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledTransform, (self.theirs,)

    def __repr__(self) -> str:
        return f"compiled({self.theirs!r})"


def _is_image_array(image: object) -> bool:
    """Return True for pixels as OpenCV returns them: (height, width, 1 or 3), uint8."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        return False
    return image.ndim == 3 and image.shape[2] in (1, 3) and image.size > 0


def _watched(value: Any, depth: int = 0) -> Iterator[_Watched]:
    """Yield the containers that hold the parameters of a transform and of its inner transforms."""
    parts: tuple[object, ...] = ()
    if type(value) in (list, tuple):
        if len(value) <= _MOST_PARTS:
            parts = tuple(value)
            yield value, tuple, parts
    elif depth < _MOST_DEPTH and callable(value) and type(value) is not type:
        depth += 1
        attributes = getattr(value, "__dict__", {})
        # Of a Module's private attributes, only its submodules matter.
        for container in (attributes, attributes.get("_modules", {})):
            if values := _public_values(container):
                yield container, _public_values, values
                parts += values
    for part in parts:
        yield from _watched(part, depth)


def _public_values(named: Mapping[str, object]) -> tuple[object, ...]:
    return tuple([value for name, value in named.items() if name[0] != "_"])


def _is_unchanged(watched: _Watched) -> bool:
    container, values_of, before = watched
    values = values_of(container)
    return len(values) == len(before) and all(map(operator.is_, values, before))
