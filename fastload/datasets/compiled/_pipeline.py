"""Compiled transforms of other libraries: the same random parameters, and pixels made faster.

    prepare    image by image: all random numbers are drawn; crops, resizes and flips are recorded
    finish     decoding, resizing, conversion to a tensor: for one image, or for a batch in its final memory

Parts of a pipeline:

    first      known steps, recorded in a LazyImage
    middle     from the first unknown step on: transforms are called with the same images as before
    tail       conversions, arithmetic and erasing at the end: once for each batch
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch

from fastload.datasets.batch import BatchMemory, HostMemory
from fastload.datasets.compiled._lazy import LazyImage
from fastload.datasets.compiled._steps import Kind, Step, is_timms, is_v2, steps_of
from fastload.datasets.compiled._vector import vectorized
from fastload.errors import OptionError
from fastload.system.buffers import reusable_array
from fastload.transforms.rescaling import Rescale, ToDtype

# A transform's parameters are not compared at greater depth, or in larger containers.
_MOST_DEPTH, _MOST_PARTS = 6, 32

# A container, a function that returns its values as they are now, and its values as they were.
_Watched = tuple[Any, Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]


class CompiledTransform:
    """A transform that returns the same as another one, faster.

    Attributes:
        theirs: The other transform.
        steps: Its steps.
        vector: The pipeline that makes whole batches of one image size; None if a step does not allow it.
        makes_tensors: Whether finished images are tensors.
        grey_channels: The number of channels of a grey image after Normalize.
    """

    def __init__(self, transform: Any, steps: Sequence[Step] | None = None) -> None:
        self.theirs = transform
        self._watched = list(_watched(transform))
        self.steps = steps_of(transform) if steps is None else steps
        first = _known(self.steps)
        is_known = first == len(self.steps)
        tail = first if is_known else _tail_of(self.steps, first)
        known = self.steps[:first]
        self._first = [step for step in known if step.kind in ("region", "pixels")]
        # Conversions before the last crop or adjustment wait until all of those are done.
        waiting = [step for step in known if step.kind in ("conversion", "rescale")]
        # If an unknown step gets tensors, the known steps before it make them, as a transform of their own.
        self._head = None if is_known or not _make_tensors(waiting) else CompiledTransform(None, known)
        self._middle = self.steps[first:tail]
        self._tail = self.steps[tail:]
        conversions = waiting if is_known else self._tail
        self._erasings = [step for step in (known if is_known else self._tail) if step.kind == "erase"]
        self._left = slice(first, tail)
        self._rescale = Rescale.of([step.rescaling for step in conversions if step.rescaling], torch.uint8)
        self.wrap = _wrapper_of(conversions)
        self.vector = vectorized(self.steps) if is_known else None
        self.makes_tensors = _make_tensors(conversions)
        # Only ToTensor puts one colour behind the other; random numbers for a tensor are drawn in its order.
        is_mixed = any(step.name in ("PILToTensor", "ToImage") for step in conversions)
        self._memory_format = torch.channels_last if is_mixed else torch.contiguous_format
        self.grey_channels = _grey_channels(conversions)
        self._of_arrays = self._for_arrays()

    def is_of(self, transform: Any) -> bool:
        """Return True if this was compiled from a transform, and that has not changed since."""
        return self.theirs is transform and all(map(_is_unchanged, self._watched))

    def _for_arrays(self) -> CompiledTransform | None:
        """Return the transform for arrays in place of PIL images; None if only the original takes them."""
        name = self.steps[0].name if self.steps else ""
        if name == "ToPILImage" and getattr(self.steps[0].theirs, "mode", None) is None:
            return CompiledTransform(None, self.steps[1:])
        return self if name in ("ToImage", "ToTensor") else None

    def kinds(self) -> Iterator[tuple[Step, Kind]]:
        """Yield each step and how it is done; from the first unknown one to the tail, all are `unknown`."""
        if self._of_arrays not in (None, self):
            yield self.steps[0], "conversion"
            yield from self._of_arrays.kinds()
            return
        for place, step in enumerate(self.steps):
            is_left = self._left.start <= place < self._left.stop
            yield step, "unknown" if is_left else step.kind

    @property
    def is_useful(self) -> bool:
        """True if a step is known."""
        return any(step.kind != "unknown" for step in self.steps)

    @property
    def can_finish_on_device(self) -> bool:
        """True if only arithmetic on levels follows decoding."""
        return not self._middle and not self._erasings and self._rescale.dtype.is_floating_point

    def prepare(self, image: LazyImage) -> Any:
        """Draw all random numbers of one image; return a LazyImage for `finish`, or the finished image."""
        result: Any = image
        if self._head is not None:
            result = self._head.finish(self._head.prepare(image))
            for step in self.steps[self._left.start :]:
                result = step.theirs(result)
            return result
        if self.makes_tensors and not self._middle:
            result = image.without_info()  # nothing reads it
        for step in self._first:
            result = step.call(result)
        if self._middle:
            if isinstance(result, LazyImage):
                result.load()
            for step in self._middle:
                result = step.theirs(result)
            if not (isinstance(result, PIL.Image.Image) and result.mode in ("RGB", "L")):
                for step in self._tail:
                    result = step.theirs(result)
                return result
        if self.makes_tensors:
            result = self._broadcast(LazyImage.from_pil(result))
        for step in self._erasings:
            result = step.call(result)
        return result

    def _broadcast(self, image: LazyImage) -> LazyImage:
        """Return a grey image with as many channels as Normalize will give it."""
        count = self.grey_channels
        if image.shape[2] > 1 or count == 1:
            return image
        return image.adjusted(lambda pixels: np.repeat(pixels, count, axis=2), count)

    def finish(self, prepared: Any) -> Any:
        """Return the finished image, given the result of `prepare`."""
        if not isinstance(prepared, LazyImage):
            return prepared
        if not self.makes_tensors:
            prepared.load()
            return prepared
        return self.wrap(self.batch([prepared], HostMemory(), self._memory_format)[0])

    def batch(
        self, images: Sequence[LazyImage], out: BatchMemory, memory_format: torch.memory_format
    ) -> torch.Tensor:
        """Return finished images of one size as a batch (images, channels, height, width).

        If the memory finishes batches on a device, arithmetic on levels is left to `on_device`.
        """
        height, width, channels = images[0].shape
        is_left = out.finishes_on_device and self.can_finish_on_device
        dtype = torch.uint8 if is_left else self._rescale.dtype
        is_last = memory_format == torch.channels_last
        size = (height, width, channels) if is_last else (channels, height, width)
        batch = out.empty((len(images), *size), dtype)
        batch = batch.permute(0, 3, 1, 2) if is_last else batch
        is_final = is_last and dtype == torch.uint8 and self._rescale.dtype == torch.uint8
        shape = len(images), height, width, channels
        pixels = batch.permute(0, 2, 3, 1).numpy() if is_final else reusable_array(shape)
        for image, place in zip(images, pixels, strict=True):
            image.render_into(place)
        if dtype == torch.uint8:
            if not is_final:
                batch.copy_(torch.from_numpy(pixels).permute(0, 3, 1, 2))
        else:
            self._rescale.into(pixels, batch)
        for image, finished in zip(images, batch, strict=True):
            for (top, left, box_height, box_width), value in image.erasures:
                finished[:, top : top + box_height, left : left + box_width] = value
        return batch

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Finish a batch on its device."""
        return self._rescale.on(images)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Transform an image of PIL or NumPy; other inputs are passed to the other transform."""
        image = inputs[0] if len(inputs) == 1 and not options else None
        if isinstance(image, PIL.Image.Image) and image.mode in ("RGB", "L"):
            return self.finish(self.prepare(LazyImage.around(image)))
        if self._of_arrays is not None and _is_image_array(image):
            of_arrays = self._of_arrays
            return of_arrays.finish(of_arrays.prepare(LazyImage.of(np.ascontiguousarray(image))))
        return self.theirs(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "theirs":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledTransform, (self.theirs,)

    def __repr__(self) -> str:
        return f"compiled({self.theirs!r})"


def _is_image_array(image: Any) -> bool:
    """Return True for pixels as OpenCV returns them: (height, width, 1 or 3), uint8."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        return False
    return image.ndim == 3 and image.shape[2] in (1, 3) and image.size > 0


def _watched(value: Any, depth: int = 0) -> Iterator[_Watched]:
    """Yield the containers of the parameters of a transform and of those that it contains."""
    parts: tuple[Any, ...] = ()
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


def _public_values(named: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple([value for name, value in named.items() if name[0] != "_"])


def _is_unchanged(watched: _Watched) -> bool:
    container, values_of, before = watched
    values = values_of(container)
    return len(values) == len(before) and all(map(operator.is_, values, before))


def _make_tensors(steps: Sequence[Step]) -> bool:
    """Return True if one of the steps makes a tensor of a PIL image."""
    return any(step.kind in ("conversion", "rescale") and step.name != "ToPureTensor" for step in steps)


def _known(steps: Sequence[Step]) -> int:
    """Return how many of the first steps can be made faster for a PIL image."""
    # The form of the pixels by now: a PIL image, a tensor's bytes, levels of 0...1, or any other numbers.
    form = "image"
    rescalings: list[Any] = []
    for place, step in enumerate(steps):
        if step.kind == "region":
            is_known = form == "image" or _is_same_for_tensors(step, form)
        elif step.kind == "pixels":
            is_known = form in ("image", "bytes")
        elif step.kind == "conversion":
            is_known = True
            form = "bytes" if form == "image" and step.name != "ToPureTensor" else form
        elif step.kind == "rescale":
            is_known = (form == "image") == (step.name == "ToTensor")
            rescalings.append(step.rescaling)
            rescale = _rescale_of(rescalings)
            is_known = is_known and rescale is not None
            if not (form == "bytes" and rescale is not None and rescale.dtype == torch.uint8):
                are_levels = all(isinstance(each, ToDtype) and each.scale for each in rescalings)
                form = "levels" if are_levels else "numbers"
        else:
            is_last = all(later.kind == "erase" or later.name == "ToPureTensor" for later in steps[place:])
            is_known = step.kind == "erase" and form != "image" and is_last
        if not is_known or (
            step.kind in ("region", "pixels") and _changes_class(step) and _is_tv_image(steps[:place], steps)
        ):
            return place
    return len(steps)


def _is_same_for_tensors(step: Step, form: str) -> bool:
    """Return True if transforming bytes before their conversion changes pixels by at most a level."""
    theirs = step.theirs
    if form == "numbers" or is_timms(theirs) or not getattr(theirs, "antialias", True):
        return False
    if getattr(theirs, "padding", None) or getattr(theirs, "pad_if_needed", False):
        return form == "bytes"
    held = [inner for each in getattr(theirs, "transforms", ()) for inner in steps_of(each)]
    if held or not hasattr(theirs, "interpolation"):
        return all(_is_same_for_tensors(each, form) for each in held)
    # For tensors, "nearest" selects other pixels; only bilinear weights give levels that bytes can hold.
    kernel = getattr(theirs.interpolation, "value", "")
    return kernel == "bilinear" or (kernel == "bicubic" and form == "bytes")


def _tail_of(steps: Sequence[Step], first: int) -> int:
    """Return the place of the first step, after an unknown one at `first`, from which batches can be made."""
    for place in range(first + 1, len(steps)):
        rest = steps[place:]
        if all(step.kind in ("conversion", "rescale", "erase") for step in rest) and _known(rest) == len(
            rest
        ):
            return place
    return len(steps)


def _rescale_of(rescalings: Sequence[Any]) -> Rescale | None:
    try:
        return Rescale.of(rescalings, torch.uint8)
    except OptionError:
        return None


def _wrapper_of(conversions: Sequence[Step]) -> Callable[[torch.Tensor], Any]:
    """Return a function that gives a finished tensor the class that torchvision's conversions would."""
    if not _is_tv_image(conversions, conversions):
        return lambda tensor: tensor
    from torchvision import tv_tensors

    return lambda tensor: tv_tensors.Image(tensor)


def _is_tv_image(done: Sequence[Step], steps: Sequence[Step]) -> bool:
    """Return True if the steps `done` so far make a tv_tensors.Image, and its class matters in the end."""
    if any(step.name == "ToPureTensor" for step in steps):
        return False
    is_image = False
    dtype = torch.uint8
    for step in done:
        if step.name == "ToImage":
            is_image = True
        elif step.rescaling is not None:
            after = getattr(step.rescaling, "dtype", None)
            # Transforms of version 1 return plain tensors, unless they change nothing.
            is_image = is_image and (is_v2(step.theirs) or after == dtype)
            dtype = after or dtype
    return is_image


def _changes_class(step: Step) -> bool:
    """Return True for a transform of version 1: some of its results are no longer a tv_tensors.Image."""
    held = [inner for each in getattr(step.theirs, "transforms", ()) for inner in steps_of(each)]
    return any(map(_changes_class, held)) if held else not is_v2(step.theirs)


def _grey_channels(conversions: Sequence[Step]) -> int:
    """Return how many channels Normalize makes of one: only that of version 2 makes several."""
    for step in conversions:
        if step.name == "Normalize" and len(step.theirs.mean) > 1:
            broadcasts = is_v2(step.theirs) and not step.theirs.inplace
            return len(step.theirs.mean) if broadcasts else 1
    return 1
