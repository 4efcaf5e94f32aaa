"""Compiled transforms of other libraries, which draw the same random parameters and make pixels faster.

Parts of a pipeline:

    begin    known steps, recorded in a LazyImage
    left     from the first unknown step on: transforms are called with the same images as before
    end      conversions, arithmetic and erasing: once for each batch

prepare    image by image: all random numbers are drawn; crops, resizes and flips are recorded
finish     decoding, resizing, conversion to a tensor: for one image, or for a batch in its final memory
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np
import PIL.Image
import torch

from fastload.contracts import BatchMemory
from fastload.datasets.batch import HostMemory
from fastload.datasets.compiled.lazy import LazyImage
from fastload.datasets.compiled.steps import CompiledStep, Foreign, StepKind, is_timms, is_v2, steps_of
from fastload.datasets.compiled.vector import vectorized
from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.images.deferred import DeferredImage
from fastload.system.buffers import reusable_array
from fastload.transforms.levels.rescaling import Rescale, Rescaling, ToDtype

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

    def __init__(self, transform: Foreign | None) -> None:
        self.theirs = transform
        self._parameters = _parameters_of(transform)
        self.steps = steps_of(transform)
        # The first step says if the images may be arrays.
        name = self.steps[0].name if self.steps and self.steps[0].kind != "unknown" else ""
        self._needs_arrays = name == "ToPILImage"
        self._takes_arrays = name in ("ToPILImage", "ToImage", "ToTensor")
        first = known_first(self.steps)
        is_known = first == len(self.steps)
        self._left = range(first, first if is_known else _tail_of(self.steps, first))
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
        for place, step in enumerate(self.steps):
            yield step, "unknown" if place in self._left else step.kind

    @property
    def is_useful(self) -> bool:
        """True if a step is known."""
        return any(step.kind != "unknown" for step in self.steps)

    def prepare(self, image: LazyImage) -> object:
        """Draw all random numbers of one image; return a LazyImage for `end`, or the finished image."""
        prepared = self._begin.prepare(image)
        if not self._left:
            return prepared
        # Unknown steps get the same input as before: a tensor, or a decoded image.
        result: object = self._begin.in_their_memory_format(self._begin.finish(prepared))
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
            assert self.theirs is not None
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


class KnownSteps:
    """Steps that are all known (see `known_first`).

    Attributes:
        makes_tensors: True if finished images are tensors.
        rescale: The arithmetic on levels.
        grey_channels: The number of channels of a grey image after Normalize.
    """

    def __init__(self, steps: Sequence[CompiledStep]) -> None:
        # Conversions before the last crop or adjustment wait until all of those are done.
        conversions = [step for step in steps if step.kind in ("conversion", "rescale")]
        names = {step.name for step in conversions}
        self._recorded = [step for step in steps if step.kind in ("region", "pixels")]
        self._erasings = [step for step in steps if step.kind == "erase"]
        self.rescale = Rescale.of([step.rescaling for step in conversions if step.rescaling], torch.uint8)
        self.makes_tensors = bool(names - {"ToPILImage", "ToPureTensor"})
        # The arithmetic of v1 transforms returns plain tensors.
        is_all_v2 = all(is_v2(step.theirs) for step in conversions if step.rescaling is not None)
        self._tv_image: Callable[[torch.Tensor], torch.Tensor] | None = None
        if "ToImage" in names and "ToPureTensor" not in names and is_all_v2:
            from torchvision.tv_tensors import Image

            self._tv_image = Image
        # Only ToTensor stores one colour plane after another. Later transforms that draw a number per element
        # do so in memory order.
        self._is_mixed = bool(names & {"PILToTensor", "ToImage"})
        self.grey_channels = 1
        for step in conversions:
            # Only the Normalize of transforms.v2 makes several channels from one.
            if step.name == "Normalize" and is_v2(step.theirs) and not step.theirs.inplace:
                self.grey_channels = max(self.grey_channels, len(step.theirs.mean))

    def prepare(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """Draw all random numbers of one image, RGB or grey; return an image for `finish`."""
        # The `info` of an image that becomes a tensor is never read.
        result: PIL.Image.Image = LazyImage.of(image).without_info() if self.makes_tensors else image
        for step in self._recorded:
            result = step.call(result)
        if self.makes_tensors:
            result, count = LazyImage.of(result), self.grey_channels
            if result.shape[2] == 1 < count:
                result = result.changed(lambda pixels: np.repeat(pixels, count, axis=2), count)
        for step in self._erasings:
            result = step.call(result)
        return result

    def finish(self, prepared: object) -> object:
        """Return the finished image, given the result of `prepare`."""
        if not isinstance(prepared, LazyImage):
            return prepared
        if not self.makes_tensors:
            prepared.load()
            return prepared
        return self.wrap(self.batch([prepared], HostMemory())[0])

    def wrap(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give a finished tensor the class that torchvision's conversions would give it."""
        return tensor if self._tv_image is None else self._tv_image(tensor)

    def in_their_memory_format(self, finished: object) -> object:
        """Return a finished image with its numbers in the order in memory that torchvision gives them."""
        if not (self._is_mixed and isinstance(finished, torch.Tensor)):
            return finished
        return self.wrap(finished[None].contiguous(memory_format=torch.channels_last)[0])

    def batch(self, images: Sequence[LazyImage], out: BatchMemory) -> torch.Tensor:
        """Return finished images of one size as a batch (images, channels, height, width).

        If batches are finished on a device, `rescale` is left to it.
        """
        height, width, channels = images[0].shape
        is_left = out.finishes_on_device and self.rescale.dtype.is_floating_point and not self._erasings
        dtype = torch.uint8 if is_left else self.rescale.dtype
        batch = out.empty((len(images), channels, height, width), dtype)
        pixels = reusable_array((len(images), height, width, channels))
        for image, place in zip(images, pixels, strict=True):
            image.render_into(place)
        if dtype == torch.uint8:
            batch.copy_(torch.from_numpy(pixels).permute(0, 3, 1, 2))
        else:
            self.rescale.into(pixels, batch)
        for image, finished in zip(images, batch, strict=True):
            for (top, left, box_height, box_width), value in image.erasures:
                finished[:, top : top + box_height, left : left + box_width] = value
        return batch


def known_first(steps: Sequence[CompiledStep]) -> int:
    """Return how many leading steps can be made faster for a PIL image."""
    # The form of the pixels so far: a PIL image, bytes of a tensor, levels of 0…1, or any other numbers.
    form = "image"
    rescalings: list[Rescaling] = []
    for place, step in enumerate(steps):
        if step.kind == "region":
            is_known = form == "image" or _is_same_for_tensors(step, form)
        elif step.kind == "pixels":
            is_known = form in ("image", "bytes")
        elif step.name == "ToPILImage":
            is_known = place == 0 and step.kind == "conversion"
        elif step.kind == "conversion":
            is_known = True
            form = "bytes" if form == "image" and step.name != "ToPureTensor" else form
        elif step.kind == "rescale":
            is_known = (form == "image") == (step.name == "ToTensor")
            rescalings += [step.rescaling] if step.rescaling is not None else []
            try:
                rescale = Rescale.of(rescalings, torch.uint8)
            except OptionError:
                return place
            if form != "bytes" or rescale.dtype != torch.uint8:
                are_levels = all(isinstance(each, ToDtype) and each.scale for each in rescalings)
                form = "levels" if are_levels else "numbers"
        else:
            is_last = all(later.kind == "erase" or later.name == "ToPureTensor" for later in steps[place:])
            is_known = step.kind == "erase" and form != "image" and is_last
        if not is_known:
            return place
    return len(steps)


def _is_same_for_tensors(step: CompiledStep, form: str) -> bool:
    """Return True if transforming bytes before their conversion changes pixels by at most a level."""
    theirs = step.theirs
    if form == "numbers" or is_timms(theirs) or not getattr(theirs, "antialias", True):
        return False
    if getattr(theirs, "padding", None) or getattr(theirs, "pad_if_needed", False):
        return form == "bytes"
    steps = [inner for each in getattr(theirs, "transforms", ()) for inner in steps_of(each)]
    if steps or not hasattr(theirs, "interpolation"):
        return all(_is_same_for_tensors(each, form) for each in steps)
    # For tensors, "nearest" selects other pixels; only bilinear weights give levels that bytes can hold.
    kernel = getattr(theirs.interpolation, "value", "")
    return kernel == "bilinear" or (kernel == "bicubic" and form == "bytes")


def _tail_of(steps: Sequence[CompiledStep], first: int) -> int:
    """Return the place of the first step, after an unknown one at `first`, from which batches can be made."""
    for place in range(first + 1, len(steps)):
        rest = steps[place:]
        are_last = all(step.kind in ("conversion", "rescale", "erase") for step in rest)
        if are_last and rest[0].name != "ToPILImage" and known_first(rest) == len(rest):
            return place
    return len(steps)
