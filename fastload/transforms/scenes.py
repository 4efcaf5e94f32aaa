"""Images with objects whose pixels are made last, and the transforms that need other images of a dataset.

scene = Scene.of(index, images)                                # nothing is decoded yet
for step: scene = step.compose(scene, parameters, others, images)
scene.pixels(images)                                           # decoded, warped and coloured once
scene.objects
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.region import Box
from fastload.transforms.annotations import Annotations
from fastload.transforms.canvas import Canvas, render
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.hsv import shift_hsv
from fastload.transforms.options import require
from fastload.transforms.transform import Parameters, Row, Transform

Indices = NDArray[np.int64]

# The position of all scene transforms in a pipeline; the other steps are numbered from 0.
_PLACE = -1

# In place of other images, for a scene that needs none.
_NO_IMAGES: Any = None


class ObjectImages(Protocol):
    """A dataset's images and objects, by index."""

    def size(self, index: int) -> Size:
        """Return an image's height and width."""

    def region(self, index: int, box: Box, size: Size) -> Pixels:
        """Return a region of an image, RGB, or reduced towards the `size` to which it will be resized."""

    def annotations(self, index: int) -> Annotations:
        """Return an image's objects, in its pixels."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Image rendered on demand.

    Attributes:
        canvas: The placed parts of which it is made.
        sources: The images of these parts: indices of the dataset, or pixels.
        objects: Its objects, in its pixels.
        gains: The change of its colours; see `shift_hsv`.
        is_original: True for an image of the dataset to which nothing was done.
    """

    canvas: Canvas
    sources: tuple[int | Pixels, ...]
    objects: Annotations
    gains: tuple[float, float, float] | None = None
    is_original: bool = False

    @classmethod
    def of(cls, index: int, images: ObjectImages) -> Scene:
        """Return an image of the dataset as it is."""
        return cls(Canvas.of(images.size(index)), (index,), images.annotations(index), None, True)

    @classmethod
    def of_pixels(cls, pixels: Pixels, objects: Annotations, is_exact: bool = False) -> Scene:
        """Return pixels as a scene to which more can be done."""
        canvas = Canvas.of((pixels.shape[0], pixels.shape[1]))
        return cls(replace(canvas, is_exact=is_exact), (pixels,), objects)

    @property
    def size(self) -> Size:
        """Height and width."""
        return self.canvas.output

    def pixels(self, images: ObjectImages) -> Pixels:
        """Return the pixels, (height, width, 3), in memory that may be written to."""

        def region(number: int, box: Box, size: Size) -> Pixels:
            source = self.sources[number]
            if isinstance(source, int):
                return images.region(source, box, size)
            return box.of(source)

        pixels = render(self.canvas, region)
        if self.gains is not None:
            shift_hsv(pixels, self.gains)
        return pixels

    def drawn_as(self, canvas: Canvas, objects: Annotations) -> Scene:
        """Return the scene with its images on another canvas."""
        return replace(self, canvas=canvas, objects=objects, is_original=False)

    def flattened(self, images: ObjectImages) -> Scene:
        """Render the changes so far if there are any, so that the scene can be placed or warped again."""
        if self.canvas.matrix is None and self.gains is None:
            return self
        return Scene.of_pixels(self.pixels(images), self.objects, self.canvas.is_exact)


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

    def compose(self, scene: Scene, parameters: Row, others: Sequence[int], images: ObjectImages) -> Scene:
        """Return the transformed scene."""
        raise NotImplementedError

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        channels = image.shape[2]
        require(channels in (1, 3), f"{type(self).__name__} takes images of 3 channels or 1", channels)
        pixels = image if channels == 3 else np.repeat(image, 3, axis=2)
        scene = self._composed(pixels, Annotations((image.shape[0], image.shape[1])), parameters)
        return scene.pixels(_NO_IMAGES)[:, :, :channels]

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        return self._composed(0, annotations, parameters).objects

    def _composed(self, source: int | Pixels, objects: Annotations, parameters: Row) -> Scene:
        """Return the scene that is made of a single image, or of its annotations alone."""
        if self.needs_dataset:
            raise OptionError(
                f"{type(self).__name__} must be given other images too: make it a transform of a dataset, at "
                "the beginning of a fastload.transforms.Compose of fastload's transforms alone"
            )
        scene = Scene(Canvas.of(objects.size), (source,), objects, is_original=True)
        return self.compose(scene, parameters, (), _NO_IMAGES)


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

    def applied(self, image: Pixels, draws: Draws) -> Pixels:
        """Return one image transformed, without others and without objects.

        Raises:
            OptionError: A transform needs them.
        """
        row = self.draw(draws, np.array([image.shape[:2]]))[0].tolist()
        for step, columns, _ in self._parts:
            image = step.apply_checked(image, row[columns])
        return image

    def others(self, parameters: Parameters, positions: Indices, count: int) -> Indices:
        """Return the other images for each image of a batch, (images, `needed`)."""
        parts = [step.others(parameters[:, columns], positions, count) for step, columns, _ in self._parts]
        return np.concatenate((np.empty((len(positions), 0), np.int64), *parts), axis=1)

    def compose(self, scene: Scene, parameters: Row, others: Sequence[int], images: ObjectImages) -> Scene:
        """Return the scene with all steps done."""
        for step, columns, needed in self._parts:
            scene = step.compose(scene, parameters[columns], others[needed], images)
        return scene
