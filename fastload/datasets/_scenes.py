"""Batches of images composed of several images of the dataset, such as mosaics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Sized

import numpy as np

from fastload.datasets.batch import BatchSource
from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.deferred import DeferredImage, PixelSource
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
        sizes: list[Size] = [(height, width) for height, width in source.sizes.tolist()]
        objects = list(map(Annotations, sizes)) if annotations is None else annotations
        images = _DecodedOnce(source, sizes)
        originals = [
            Scene(DeferredImage.of(PixelSource(images, index, size)), objects[index], is_original=True)
            for index, size in enumerate(sizes)
        ]
        scenes = []
        for row, numbers in zip(rows.reshape(indices.shape), parameters.tolist(), strict=True):
            own, *others = [originals[index] for index in row]
            scenes.append(steps.compose(own, numbers, others))
        images.expect([scene.image for scene in scenes])
        self.annotations = None if annotations is None else [scene.objects for scene in scenes]
        self.sizes = np.array([scene.size for scene in scenes], np.int64)
        self._scenes = scenes

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        return box.of(self._scenes[position].pixels())


class _DecodedOnce:
    """Images of a batch; one that is used often is decoded once, completely. See `Regions`."""

    def __init__(self, source: BatchSource, sizes: Sequence[Size]) -> None:
        self._source = source
        self._sizes = sizes
        self._often: set[int] = set()
        self._decoded: dict[int, Pixels] = {}

    def expect(self, images: Sequence[DeferredImage]) -> None:
        """Find the images that are often sources of these."""
        sources = [source for image in images for source in image.sources if source.regions is self]
        uses = Counter(source.position for source in sources)
        self._often = {position for position, count in uses.items() if count >= _OFTEN}

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        """See `Regions`."""
        if position not in self._often:
            return self._source.region(position, box, size)
        if position not in self._decoded:
            whole = self._sizes[position]
            self._decoded[position] = self._source.region(position, Box(0, 0, *whole), whole)
        return box.of(self._decoded[position])
