"""Known steps of a transform: random numbers, drawn for each image, and pixels, made for an entire batch.

prepare    image by image: all random numbers are drawn; crops, resizes and flips are recorded
finish     decoding, resizing, conversion to a tensor: for one image, or for a batch in its final memory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch

from fastload.datasets.batch import BatchMemory, HostMemory
from fastload.datasets.compiled._lazy import LazyImage
from fastload.datasets.compiled._steps import CompiledStep, is_timms, is_v2, steps_of
from fastload.errors import OptionError
from fastload.system.buffers import reusable_array
from fastload.transforms.levels.rescaling import Rescale, Rescaling, ToDtype


class KnownSteps:
    """Steps that are all known (see `known_first`).

    Attributes:
        makes_tensors: True if finished images are tensors.
        rescale: The arithmetic on levels.
        grey_channels: The number of channels of a grey image after Normalize.
        wrap: Gives a finished tensor the class that torchvision's conversions would give it.
    """

    def __init__(self, steps: Sequence[CompiledStep]) -> None:
        # Conversions before the last crop or adjustment wait until all of those are done.
        conversions = [step for step in steps if step.kind in ("conversion", "rescale")]
        self._recorded = [step for step in steps if step.kind in ("region", "pixels")]
        self._erasings = [step for step in steps if step.kind == "erase"]
        self.rescale = Rescale.of([step.rescaling for step in conversions if step.rescaling], torch.uint8)
        self.wrap = _wrapper_of(conversions)
        self.makes_tensors = any(step.name != "ToPureTensor" for step in conversions)
        # Only ToTensor stores one colour plane after another. Later transforms that draw a number per element
        # do so in memory order.
        self._is_mixed = any(step.name in ("PILToTensor", "ToImage") for step in conversions)
        self.grey_channels = _grey_channels(conversions)

    def prepare(self, image: PIL.Image.Image) -> PIL.Image.Image:
        """Draw all random numbers of one image, RGB or grey; return an image for `finish`."""
        # The `info` of an image that becomes a tensor is never read.
        result: PIL.Image.Image = LazyImage.of(image).without_info() if self.makes_tensors else image
        for step in self._recorded:
            result = step.call(result)
        if self.makes_tensors:
            result = self._broadcast(LazyImage.of(result))
        for step in self._erasings:
            result = step.call(result)
        return result

    def _broadcast(self, image: LazyImage) -> LazyImage:
        """Return a grey image with as many channels as Normalize will give it."""
        count = self.grey_channels
        if image.shape[2] > 1 or count == 1:
            return image
        return image.changed(lambda pixels: np.repeat(pixels, count, axis=2), count)

    def finish(self, prepared: object) -> Any:
        """Return the finished image, given the result of `prepare`."""
        if not isinstance(prepared, LazyImage):
            return prepared
        if not self.makes_tensors:
            prepared.load()
            return prepared
        return self.wrap(self.batch([prepared], HostMemory())[0])

    def in_their_memory_format(self, finished: torch.Tensor) -> Any:
        """Return a finished image with its numbers in the order in memory that torchvision gives them."""
        if not (self.makes_tensors and self._is_mixed):
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


def tail_of(steps: Sequence[CompiledStep], first: int) -> int:
    """Return the place of the first step, after an unknown one at `first`, from which batches can be made."""
    for place in range(first + 1, len(steps)):
        rest = steps[place:]
        if all(step.kind in ("conversion", "rescale", "erase") for step in rest) and known_first(rest) == len(
            rest
        ):
            return place
    return len(steps)


def _wrapper_of(conversions: Sequence[CompiledStep]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that gives a finished tensor the class that torchvision's conversions give it."""
    names = {step.name for step in conversions}
    # The arithmetic of v1 transforms returns plain tensors.
    is_all_v2 = all(is_v2(step.theirs) for step in conversions if step.rescaling is not None)
    if "ToImage" not in names or "ToPureTensor" in names or not is_all_v2:
        return lambda tensor: tensor
    from torchvision import tv_tensors

    return lambda tensor: tv_tensors.Image(tensor)


def _grey_channels(conversions: Sequence[CompiledStep]) -> int:
    """Return how many channels Normalize makes from one: only that of transforms.v2 makes several."""
    for step in conversions:
        if step.name == "Normalize" and len(step.theirs.mean) > 1:
            broadcasts = is_v2(step.theirs) and not step.theirs.inplace
            return len(step.theirs.mean) if broadcasts else 1
    return 1
