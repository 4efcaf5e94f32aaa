"""Batches of images composed of several images of the dataset, such as mosaics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sized

import numpy as np

from fastload.datasets.batch import BatchSource
from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.region import Box
from fastload.transforms.annotations import Annotations
from fastload.transforms.draws import Draws, draws_for
from fastload.transforms.pipeline import Drawn, Pipeline
from fastload.transforms.scenes import Indices, Scene, SceneSteps

Opened = Callable[[Indices], tuple[BatchSource, "list[Annotations] | None"]]

# An image that a batch uses at least this often is decoded completely, once.
_OFTEN = 3


def draw_batch(
    pipeline: Pipeline, positions: Indices, dataset: Sized, opened: Opened
) -> tuple[BatchSource, Drawn]:
    """Return the images of a batch, and the pipeline with the parameters drawn for them.

    `opened` returns the source of some images of the dataset, given their indices, and their annotations.
    """
    draws = draws_for(positions, dataset)
    source: BatchSource
    if pipeline.scenes.steps:
        source = scenes = SceneImages(pipeline.scenes, positions, len(dataset), draws, opened)
        annotations = scenes.annotations
    else:
        source, annotations = opened(positions)
    return source, pipeline.draw(draws, source.sizes, source.channels, annotations)


class SceneImages(BatchSource):
    """Composed images of a batch.

    Attributes:
        annotations: Annotations of the composed images; None if the dataset has none.

    Raises:
        OptionError: A transform needs objects, but the images have none.
    """

    gives_own_regions = True

    def __init__(
        self, steps: SceneSteps, positions: Indices, count: int, draws: Draws, opened: Opened
    ) -> None:
        parameters = steps.draw(draws, np.zeros((len(positions), 2), np.int64))
        indices = np.column_stack((positions, steps.others(parameters, positions, count)))
        distinct, rows = np.unique(indices, return_inverse=True)
        source, annotations = opened(distinct)
        if annotations is None and steps.needed:
            raise OptionError(
                "Mosaic, ObjectMixUp, ObjectCutMix and CopyPaste must be given a dataset with objects, got "
                "one with labels of images: use MixUp and CutMix"
            )
        self._images = _Images(source, annotations)
        self._scenes: list[Scene] = []
        for row, numbers in zip(rows.reshape(indices.shape), parameters.tolist(), strict=True):
            own, *others = map(int, row)
            scene = Scene.of(own, self._images)
            self._scenes.append(steps.compose(scene, numbers, others, self._images))
        self._images.expect(self._scenes)
        self.annotations = None if annotations is None else [scene.objects for scene in self._scenes]
        self.sizes = np.array([scene.size for scene in self._scenes], np.int64)

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        pixels = self._scenes[position].pixels(self._images)
        return box.of(pixels)


class _Images:
    """Images of a batch source, as `ObjectImages`; one that several scenes use is decoded once."""

    def __init__(self, source: BatchSource, annotations: list[Annotations] | None) -> None:
        self._source = source
        self._sizes: list[Size] = [(height, width) for height, width in source.sizes.tolist()]
        self._annotations = annotations
        self._often: set[int] = set()
        self._decoded: dict[int, Pixels] = {}

    def expect(self, scenes: list[Scene]) -> None:
        """Find the images that these scenes use often."""
        uses = Counter(each for scene in scenes for each in scene.sources if isinstance(each, int))
        self._often = {index for index, count in uses.items() if count >= _OFTEN}

    def size(self, index: int) -> Size:
        return self._sizes[index]

    def region(self, index: int, box: Box, size: Size) -> Pixels:
        if index not in self._often:
            return self._source.region(index, box, size)
        if index not in self._decoded:
            height, width = self._sizes[index]
            self._decoded[index] = self._source.region(index, Box(0, 0, height, width), (height, width))
        return box.of(self._decoded[index])

    def annotations(self, index: int) -> Annotations:
        return Annotations(self._sizes[index]) if self._annotations is None else self._annotations[index]
