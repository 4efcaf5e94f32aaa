"""Known steps of a pipeline: image by image with recorded geometry, then finished for a batch at once.

prepare    all random numbers of an image are drawn; crops, resizes and flips are recorded
finish     decoding, resizing, conversion to a tensor: for one image, or for a batch in its final memory
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import PIL.Image
import torch

from fastload.contracts import BatchMemory
from fastload.datasets.batch import HostMemory
from fastload.datasets.compiled.lazy import LazyImage
from fastload.datasets.compiled.recognition import is_timms, is_v2
from fastload.datasets.compiled.steps import CompiledStep, steps_of
from fastload.errors import OptionError
from fastload.system.buffers import reusable_array
from fastload.transforms.levels.rescaling import Rescale, Rescaling, ToDtype


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
        # Those before the first conversion change images, the others tensors.
        before = itertools.takewhile(lambda step: step.kind not in ("conversion", "rescale"), steps)
        self._on_images = len(list(before))
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
        for place, step in enumerate(self._recorded):
            result = step.call(LazyImage.of(result).as_tensor() if place == self._on_images else result)
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


def known_first(steps: Sequence[CompiledStep], most_levels: float = math.inf) -> int:
    """Return how many leading steps can be made faster for a PIL image, within `most_levels`."""
    # The form of the pixels so far: a PIL image, bytes of a tensor, levels of 0…1, or any other numbers.
    form = "image"
    rescalings: list[Rescaling] = []
    for place, step in enumerate(steps):
        closeness = step.closeness if form == "image" else step.tensor_closeness
        is_close = closeness.levels <= most_levels
        if step.kind == "region":
            # Of a PIL image, LazyImage itself leaves the filters that are not close to PIL.
            is_known = form == "image" or (is_close and _is_same_for_tensors(step, form))
        elif step.kind == "pixels":
            is_known = is_close and form in ("image", "bytes")
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


def tail_of(steps: Sequence[CompiledStep], first: int) -> int:
    """Return the place of the first step, after an unknown one at `first`, from which batches can be made."""
    for place in range(first + 1, len(steps)):
        rest = steps[place:]
        are_last = all(step.kind in ("conversion", "rescale", "erase") for step in rest)
        if are_last and rest[0].name != "ToPILImage" and known_first(rest) == len(rest):
            return place
    return len(steps)
