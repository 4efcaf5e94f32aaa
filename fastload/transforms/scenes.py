"""Images with objects whose pixels are made last, and the transforms that need other images of a dataset.

scene = Scene(image, objects)                                  # nothing is decoded yet
for step: scene = step.compose(scene, parameters, others)
scene.pixels()                                                 # decoded, warped and coloured once
scene.objects
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.deferred import DeferredImage
from fastload.transforms.options import require
from fastload.transforms.transform import Annotations, Draws, Parameters, Row, Sizes, Transform

Indices = NDArray[np.int64]

# The position of all scene transforms in a pipeline; the other steps are numbered from 0.
_PLACE = -1


@dataclass(frozen=True, slots=True)
class Scene:
    """Deferred image, RGB, with its objects in its pixels."""

    image: DeferredImage
    objects: Annotations
    is_exact: bool = False  # True to make the pixels that Ultralytics makes; see `Canvas`
    is_original: bool = False  # True for an image of the dataset to which nothing was done

    @property
    def size(self) -> Size:
        """Height and width."""
        return self.image.size

    def pixels(self) -> Pixels:
        """Return the pixels, (height, width, channels), in memory that may be written to."""
        pixels = self.image.pixels()
        return pixels.copy() if self.image.is_source else pixels

    def with_pixels(self, pixels: Pixels, objects: Annotations) -> Scene:
        """Return rendered pixels as a scene to which more can be done."""
        return Scene(DeferredImage.of_pixels(pixels), objects, self.is_exact)


class SceneTransform(Transform):
    """Base class of transforms of scenes; a plain image is composed as a scene of that image alone."""

    #: The number of other images that it takes.
    needed = 0

    #: True if a single image is not enough.
    needs_dataset: ClassVar[bool] = False

    def others(self, parameters: Parameters, positions: Indices, count: int) -> Indices:
        """Return the other images for each image of a batch, (images, `needed`).

        `positions` are the indices of the batch's images, out of the `count` images of the dataset.
        """
        return np.empty((len(positions), 0), np.int64)

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        """Return the transformed scene, made with the `needed` others, which are the dataset's images."""
        raise NotImplementedError

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        channels = image.shape[2]
        require(channels in (1, 3), f"{type(self).__name__} takes images of 3 channels or 1", channels)
        return self._alone(image, Annotations((image.shape[0], image.shape[1])), parameters).pixels()

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        # Pixels that take no memory, and are not rendered.
        pixels = np.broadcast_to(np.uint8(0), (*annotations.size, 3))
        return self._alone(pixels, annotations, parameters).objects

    def _alone(self, pixels: Pixels, objects: Annotations, parameters: Row) -> Scene:
        """Return the scene that is made of a single image."""
        if self.needs_dataset:
            raise OptionError(
                f"{type(self).__name__} must be given other images too: make it a transform of a dataset, at "
                "the beginning of a fastload.transforms.Compose of fastload's transforms alone"
            )
        scene = Scene(DeferredImage.of_pixels(pixels), objects, is_original=True)
        return self.compose(scene, parameters, ())


class SceneSteps:
    """Transforms of scenes one after the other, as one."""

    def __init__(self, steps: Sequence[SceneTransform]) -> None:
        self.steps = tuple(steps)
        self.width, self.needed = 0, 0
        self._parts: list[tuple[SceneTransform, slice, slice]] = []  # the parameters and images of each
        for step in steps:
            columns = slice(self.width, self.width + step.width)
            self._parts.append((step, columns, slice(self.needed, self.needed + step.needed)))
            self.width, self.needed = columns.stop, self.needed + step.needed

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw the parameters of a batch, (images, `width`)."""
        draws = draws.at(_PLACE)
        parts = [step.draw(draws.at(place), sizes) for place, step in enumerate(self.steps)]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(sizes), 0))

    def others(self, parameters: Parameters, positions: Indices, count: int) -> Indices:
        """Return the other images for each image of a batch, (images, `needed`)."""
        parts = [step.others(parameters[:, columns], positions, count) for step, columns, _ in self._parts]
        return np.concatenate((np.empty((len(positions), 0), np.int64), *parts), axis=1)

    def compose(self, scene: Scene, parameters: Row, others: Sequence[Scene]) -> Scene:
        """Return the scene with all steps done."""
        for step, columns, needed in self._parts:
            scene = step.compose(scene, parameters[columns], others[needed])
        return scene
