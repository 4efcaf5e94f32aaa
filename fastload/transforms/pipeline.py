"""A dataset's transform, split into the parts run while decoding, after decoding, and once for a batch.

    head    crops, resizes and flips at the beginning: a geometry that the decoder carries out
    body    fastload's other transforms: on each image, or on all at once
    tail    ToTensor, ToDtype and Normalize at the end: once for a batch, in its memory or on its device

Conversions between types of images are skipped. A pipeline with a foreign callable, one of another library,
is not split: it runs image by image, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from fastload.contracts import AppliesToImages
from fastload.images.arrays import Pixels
from fastload.transforms.compose import (
    AnyTransform,
    TakesPILImages,
    call_foreign,
    flattened,
    package_of,
    to_steps,
)
from fastload.transforms.levels.converting import Conversion, ToTensor
from fastload.transforms.levels.rescaling import Normalize, Rescale, ToDtype, rescaled
from fastload.transforms.pixels import to_pil, to_pixels, to_tensor
from fastload.transforms.scenes import SceneSteps, SceneTransform
from fastload.transforms.shapes.boxes import ObjectTransform
from fastload.transforms.transform import (
    Annotations,
    Draws,
    Geometry,
    Parameters,
    Sizes,
    Transform,
    common_size,
)

# Up to this image size, the number of calls dominates, so each step runs on the whole batch; above it, all
# steps run on one image after the other, which stays in the core's cache.
_WHOLE_BATCH_BYTES = 16_384

_PICTURE_CHANNELS = (1, 3)  # of images that other libraries get as PIL images


class Drawn(NamedTuple):
    """A pipeline with the parameters of a batch."""

    geometry: Geometry  # the head
    body: list[tuple[AppliesToImages, Parameters]]
    size: tuple[int, int] | None  # (height, width) of the results; None if they differ
    channels: int  # of the results
    is_uniform: bool  # True if images have one size after each step of the body, too
    annotations: list[Annotations] | None = None  # of the results; None if the images have none

    @property
    def works_on_batches(self) -> bool:
        """True if the body is applied to whole batches: images are tiny, and of one size throughout."""
        size = common_size(self.geometry.sizes)
        return self.is_uniform and size is not None and size[0] * size[1] * 3 <= _WHOLE_BATCH_BYTES

    def applied(self, image: Pixels, position: int) -> Pixels:
        """Return one image of the batch with the body applied."""
        for step, parameters in self.body:
            image = step.apply_checked(image, parameters[position].tolist())
        return image


class Pipeline:
    """A dataset's transform (a Compose, one of fastload's transforms, or any callable), split into parts.

    It is made for images of a dtype, by its name. `scenes` are the transforms of scenes at the beginning,
    which are done before all others; `dtype` is that of pixels before the tail. If any step is a callable of
    another library, it is foreign.
    """

    def __init__(self, transform: AnyTransform | None, dtype: str = "uint8") -> None:
        steps = to_steps(flattened(transform))
        self.is_foreign = not all(isinstance(step, Transform) for step in steps)
        scenes: list[SceneTransform] = []
        for step in [] if self.is_foreign else steps:
            if not isinstance(step, SceneTransform):
                break
            scenes.append(step)
        self.scenes = SceneSteps(scenes)
        steps = steps[len(scenes) :]
        last = len(steps)
        while last and isinstance(steps[last - 1], (ToDtype, Normalize, Conversion, ObjectTransform)):
            last -= 1
        # Transforms of objects alone are moved before the tail: neither affects the other.
        tail = steps[last:]
        self._before_tail = steps[:last] + [step for step in tail if isinstance(step, ObjectTransform)]
        self._tail_steps = [step for step in tail if isinstance(step, (ToDtype, Normalize))]
        self._object_dtypes = [step for step in tail if isinstance(step, ToDtype) and step.of_objects]
        # The steps that change pixels, with the positions for which their parameters are drawn.
        self._steps = [
            (place, step)
            for place, step in enumerate(self._before_tail)
            if isinstance(step, Transform) and not isinstance(step, Conversion)
        ]
        #: The steps that cannot run on a device.
        self.host_steps = [step for step in (*scenes, *self._before_tail) if not _runs_on_device(step)]
        dtypes = [step for step in self._before_tail if isinstance(step, ToDtype)]
        self.dtype = Rescale.of(dtypes, getattr(torch, dtype)).dtype

    @property
    def tail(self) -> Rescale | None:
        """The tail; None if there is none, or a foreign callable comes before it."""
        # Not kept, because users may change the parameters of Normalize.
        return None if self.is_foreign or not self._tail_steps else Rescale.of(self._tail_steps, self.dtype)

    def draw(
        self, draws: Draws, sizes: Sizes, channels: int = 3, annotations: Sequence[Annotations] | None = None
    ) -> Drawn:
        """Draw all parameters for images of these sizes; only for a pipeline that is not foreign.

        The images' annotations, if they have any, are moved at once.
        """
        geometry = Geometry(sizes)
        known = self._drawn_at_once(sizes)
        moved = None if annotations is None else list(annotations)
        body: list[tuple[AppliesToImages, Parameters]] = []
        is_uniform = True
        for place, step in self._steps:
            if place in known:
                parameters = known[place]
            elif moved is None:
                parameters = step.draw(draws.at(place), sizes)
            else:
                parameters = step.draw_with(draws.at(place), sizes, moved)
                moved = [step.apply_to(*pair) for pair in zip(moved, parameters.tolist(), strict=True)]
            if body or not step.fold(geometry, parameters):
                body.append((step, parameters))
            sizes = step.sizes_after(sizes, parameters)
            channels = step.channels_after(channels)
            is_uniform = is_uniform and (not body or common_size(sizes) is not None)
        if moved is not None:
            for dtypes in self._object_dtypes:
                moved = [dtypes.apply_to(each, ()) for each in moved]
        return Drawn(geometry, body, common_size(sizes), channels, is_uniform, moved)

    def _drawn_at_once(self, sizes: Sizes) -> Mapping[int, Parameters]:
        """Return the parameters of steps that draw together, by position in the pipeline; here none do."""
        return {}

    def on_device(self, images: torch.Tensor, draws: Draws) -> torch.Tensor:
        """Run all steps on a batch of one size on its device, (images, channels, height, width).

        There must be no `host_steps`. The parameters are those that `draw` draws.
        """
        for place, step in self._steps:
            sizes = np.tile(np.array(images.shape[2:]), (len(images), 1))
            images = step.on_device(images, step.draw(draws.at(place), sizes))
        tail = self.tail
        return images if tail is None else tail.on(images)

    def run(self, pixels: Pixels, draws: Draws) -> object:
        """Run all steps but scenes' on one image (height, width, 3), as foreign ones have to be.

        The result is a tensor (3, height, width), or the result of a foreign callable at the end.
        """
        image: object = pixels
        for place, step in enumerate(self._before_tail):
            if isinstance(step, (Conversion, ToTensor)):
                image = step(image)
            elif isinstance(step, Transform):
                array = to_pixels(image)
                sizes = np.array([array.shape[:2]], np.int64)
                result = step.apply_checked(array, step.draw(draws.at(place), sizes)[0].tolist())
                # A tensor stays one, because torchvision treats tensors and PIL images differently.
                image = to_tensor(result) if isinstance(image, torch.Tensor) else result
            else:
                image = _foreign_result(step, image)
        if self._tail_steps:
            return rescaled(image, self._tail_steps)
        ends_foreign = bool(self._before_tail) and not isinstance(self._before_tail[-1], Transform)
        return image if ends_foreign or not isinstance(image, np.ndarray) else to_tensor(image)


def _runs_on_device(step: object) -> bool:
    return isinstance(step, Transform) and step.runs_on_device


def _foreign_result(step: AnyTransform, image: object) -> object:
    """Call another library's transform with the type of image that it takes."""
    if isinstance(image, np.ndarray):
        # torchvision's transforms return arrays unchanged, without any error.
        if package_of(step) != "torchvision" and not isinstance(step, TakesPILImages):
            image = np.ascontiguousarray(image)
        else:
            is_picture = image.dtype == np.uint8 and image.shape[2] in _PICTURE_CHANNELS
            image = to_pil(image) if is_picture else to_tensor(image)
    return call_foreign(step, image)
