"""Compiled transforms of other libraries, and user code that runs with compiled versions of its transforms.

A compiled transform draws the same random parameters as the original, and is faster. It has three parts:

    begin    the known steps before the first unknown one, recorded in a LazyImage
    left     the steps from that one up to `end`, called with the same images as in the original
    end      the conversions, arithmetic and erasing that come last, applied once to each batch

An unknown step may be the user's own function, such as one that takes two crops with a known transform. It is
called as before, but while it runs, the names of transforms in its code refer to their compiled versions.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import PIL
import PIL.Image
from torch.utils.data import get_worker_info

from fastload.datasets.compiled.known import KnownSteps, known_first, tail_of
from fastload.datasets.compiled.late_files import decoded_late
from fastload.datasets.compiled.lazy import LazyImage, plain_afterwards
from fastload.datasets.compiled.parameters import parameters_of
from fastload.datasets.compiled.recognition import Foreign
from fastload.datasets.compiled.references import Reference, Search, restore
from fastload.datasets.compiled.stand_in import StandIn
from fastload.datasets.compiled.steps import CompiledStep, StepKind, least_pixels, steps_of
from fastload.datasets.compiled.vector import vectorized
from fastload.images.arrays import Pixels
from fastload.images.deferred import DeferredImage

_MOST_DEPTH = 6  # of callables inside each other
_MOST_SMALL = 64  # images in a row, before a compiled transform is not used any more


class CompiledTransform(StandIn):
    """A faster version of a transform.

    Attributes:
        theirs: The original transform.
        most_levels: The greatest difference from the original's pixels, in levels of 255, of a compiled step.
        steps: Its steps.
        end: The steps that finish an image; all steps, if all are known.
        vector: The pipeline that makes whole batches of one image size; None if a step does not allow it.
        least_pixels: Size of an image in memory from which on it is faster than the original, image by image.
    """

    def __init__(
        self, transform: Foreign | None, most_levels: float = math.inf, outer: tuple[object, ...] = ()
    ) -> None:
        self.theirs = transform
        self.most_levels = most_levels
        self._parameters = list(parameters_of(transform))
        self.steps = steps_of(transform)
        # The first step says if the images may be arrays.
        name = self.steps[0].name if self.steps and self.steps[0].kind != "unknown" else ""
        self._needs_arrays = name == "ToPILImage"
        self._takes_arrays = name in ("ToPILImage", "ToImage", "ToTensor")
        first = known_first(self.steps, most_levels)
        is_known = first == len(self.steps)
        self._left = range(first, first if is_known else tail_of(self.steps, first))
        left = [step.theirs for step in self.steps[self._left.start : self._left.stop]]
        self._calls = [compiled_code(each, most_levels, outer) or each for each in left]
        self._begin = KnownSteps(self.steps[:first])
        self.end = self._begin if is_known else KnownSteps(self.steps[self._left.stop :])
        is_close = all(step.closeness.levels <= most_levels for step in self.steps)
        self.vector = vectorized(self.steps) if is_known and is_close else None
        self.least_pixels = least_pixels(self.steps[:first])
        for call in self._calls:
            for each in call.compiled.values() if type(call) is CompiledCode else ():
                if type(each) is CompiledTransform:
                    self.least_pixels = min(self.least_pixels, each.least_pixels)
        self._least_to_convert = _least_to_convert(self.steps[self._left.stop :])
        self._small = 0  # in a row

    def is_of(self, transform: object) -> bool:
        """Return True if this was compiled from `transform`, and `transform` has not changed since."""
        if self.theirs is not transform:
            return False
        return all(parameters.are_same() for parameters in self._parameters)

    def kinds(self) -> Iterator[tuple[CompiledStep, StepKind, CompiledCode | None]]:
        """Yield each step, its kind, and its compiled code; all that are left are `unknown`."""
        for place, step in enumerate(self.steps):
            is_left = place in self._left
            call = self._calls[place - self._left.start] if is_left else None
            yield step, "unknown" if is_left else step.kind, call if type(call) is CompiledCode else None

    @property
    def is_useful(self) -> bool:
        """True if a step is made faster, of those that get the image before an unknown one."""
        return self._left.start > 0 or any(code is not None for _, _, code in self.kinds())

    def prepare(self, image: LazyImage) -> object:
        """Draw all random numbers of one image; return a LazyImage for `end`, or the finished image."""
        if not self._left:
            return self._begin.prepare(image)
        result = self._before_end(image)
        return self.end.prepare(result) if _is_8_bit(result) else self._ended(result)

    def _before_end(self, image: LazyImage) -> object:
        """Return the result of the steps up to the unknown ones."""
        result: object = self._begin.prepare(image)
        if type(self._calls[0]) is CompiledCode and isinstance(result, LazyImage):
            result = result if self._begin.makes_tensors else result.kept()
        else:
            # Unknown steps get the same input as before: a tensor, or a decoded image.
            result = self._begin.in_their_memory_format(self._begin.finish(result))
        for call in self._calls:
            result = call(result)
        return result

    def _ended(self, result: object) -> object:
        """Return the result of the original transform's last steps."""
        for step in self.steps[self._left.stop :]:
            result = step.theirs(result)
        return result

    def __call__(self, *inputs: object, **options: object) -> object:
        """Transform a PIL image or a NumPy array; pass any other input to the original transform."""
        image = inputs[0] if len(inputs) == 1 and not options else None
        if self._is_small(image):
            image = None
        if _is_8_bit(image) and not self._needs_arrays:
            lazy = LazyImage.of(image, self.most_levels)
        elif self._takes_arrays and _is_image_array(image):
            lazy = LazyImage(DeferredImage.of_pixels(np.ascontiguousarray(image)), dict, self.most_levels)
        else:
            assert self.theirs is not None
            return self.theirs(*inputs, **options)
        if not self._left:
            return self.end.finish(self._begin.prepare(lazy))
        result = self._before_end(lazy)
        if type(result) is LazyImage or (_is_8_bit(result) and _size(result) >= self._least_to_convert):
            return self.end.finish(self.end.prepare(result))
        return self._ended(result)

    def _is_small(self, image: object) -> bool:
        """Return True for an image in memory so small that the original transform is faster."""
        if isinstance(image, np.ndarray):
            pixels = image.size // 3
        elif isinstance(image, PIL.Image.Image) and type(image) is not LazyImage:
            pixels = _size(image)
        else:
            return False
        is_small = pixels < self.least_pixels
        self._small = self._small + 1 if is_small else 0
        return is_small

    @property
    def is_idle(self) -> bool:
        """True if it is only called with small images, which it leaves to its transform."""
        return self._small > _MOST_SMALL

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledTransform, (self.theirs, self.most_levels)


def _is_8_bit(image: object) -> TypeGuard[PIL.Image.Image]:
    """Return True for a PIL image of bytes, RGB or grey."""
    return isinstance(image, PIL.Image.Image) and image.mode in ("RGB", "L")


def _size(image: PIL.Image.Image) -> int:
    width, height = image.size
    return int(width * height)


def _is_image_array(image: object) -> TypeGuard[Pixels]:
    """Return True for pixels as OpenCV returns them: (height, width, 1 or 3), uint8."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        return False
    return image.ndim == 3 and image.shape[2] in (1, 3) and image.size > 0


def _least_to_convert(steps: Sequence[CompiledStep]) -> int:
    """Return the size of an image in memory from which on converting it takes less time than by `steps`.

    Measured with square images of noise, from 32 to 512 pixels a side.
    """
    return 144 * 144 if sum(step.rescaling is not None for step in steps) > 1 else 320 * 320


class CompiledCode(StandIn):
    """A user's callable or dataset, whose code runs with compiled versions of what it refers to.

    These are transforms in its attributes, its closure, its bound arguments and the global variables of its
    module, also those of functions and methods that it calls; and datasets in its attributes. Each name
    stands for the compiled object while the code runs, then for the original again.

    Attributes:
        theirs: The callable or dataset.
        compiled: The compiled transforms and datasets, by the names that refer to them.
        opens_images: True if the code opens image files with PIL, and torchvision transforms them; they are
            then decoded on first use.
    """

    def __init__(
        self,
        theirs: Any,
        most_levels: float = math.inf,
        outer: tuple[object, ...] = (),
        compile_inner: Callable[[Any, bool], object] = lambda dataset, may_decode_late: dataset,
    ) -> None:
        self.theirs = theirs
        self.most_levels = most_levels
        outer = (*outer, theirs)

        def compiled_transform(value: Any) -> CompiledTransform | None:
            # The search goes on in a callable of the user's.
            if any(step.theirs is value and not step.name for step in steps_of(value)):
                return None
            transform = CompiledTransform(value, most_levels, outer)
            return transform if transform.is_useful else None

        found = Search(compiled_transform, _renewed)
        found.search("", theirs)
        self._references = found.references
        may_decode_late = bool(self._references)  # a transform gets the images of the datasets
        self.opens_images = found.opens_images and (may_decode_late or found.calls_torchvision)
        for name, scope, key in found.datasets:
            compiled = compile_inner(scope[key], may_decode_late)
            if compiled is not scope[key]:
                self._references.append(Reference(name, scope, key, compiled))
        self._scopes = {**found.scopes, **{id(each.scope): each.scope for each in self._references}}

    @property
    def compiled(self) -> dict[str, object]:
        return {reference.name: reference.compiled for reference in self._references}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let the names refer to the compiled objects in the block, unless another thread may use them."""
        is_idle = not self.opens_images and all(reference.is_idle for reference in self._references)
        if is_idle or not is_alone():
            yield
            return
        with contextlib.ExitStack() as stack:
            if self._references:
                stack.callback(self._restore)
            for reference in self._references:
                reference.replace()
            if self.opens_images:
                stack.enter_context(decoded_late(self.most_levels))
            yield

    def _restore(self) -> None:
        """Let all names refer to the user's objects again."""
        replaced = {}
        for reference in self._references:
            reference.restore()
            replaced[id(reference.compiled)] = reference.theirs
        for scope in self._scopes.values():
            restore(scope, replaced)

    def __call__(self, *args: object, **options: object) -> object:
        with plain_afterwards(), self.running():
            return self.theirs(*args, **options)

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledCode, (self.theirs, self.most_levels)


def is_alone() -> bool:
    """Return True if no other thread runs a user's code in this process."""
    if get_worker_info() is None:
        return threading.active_count() == 1 or not user_threads()
    return threading.current_thread() is threading.main_thread()  # beside it, only torch's threads


def user_threads() -> list[threading.Thread]:
    """Return the other threads of this process that may run a user's code.

    Those of installed packages, such as a progress bar's monitor, or the ones of a notebook's kernel, do not.
    """
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    return [each for each in others if not _is_of_a_package(getattr(each, "_target", None) or type(each))]


def _is_of_a_package(started: Any) -> bool:
    """Return True for a thread's function or class that is defined in an installed package."""
    module = sys.modules.get(getattr(started, "__module__", None) or "")
    return bool({"site-packages", "dist-packages"} & {*Path(getattr(module, "__file__", None) or "").parts})


def compiled_code(value: object, most_levels: float, outer: tuple[object, ...]) -> CompiledCode | None:
    """Return a callable with compiled transforms; None if it refers to none."""
    if len(outer) > _MOST_DEPTH or any(value is each for each in outer):
        return None
    code = CompiledCode(value, most_levels, outer)
    return code if code.compiled else None


def _renewed(compiled: object, theirs: Any) -> object:
    """Return a compiled transform, compiled again if `theirs`, the original, was replaced or has changed."""
    assert type(compiled) is CompiledTransform
    is_same = type(theirs) is CompiledTransform or compiled.is_of(theirs)
    return compiled if is_same else CompiledTransform(theirs, compiled.most_levels)
