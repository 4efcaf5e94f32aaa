"""Images of a batch made of others: joined from several sources, turned upright, or composed as scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fastload.contracts import Box, Gathered
from fastload.datasets.batch import BatchSource, Positions
from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.images.region import stored_box, swaps_sides, upright
from fastload.transforms.annotations import Annotations
from fastload.transforms.draws import Draws
from fastload.transforms.scenes import Scene, SceneSteps
from fastload.transforms.transform import Sizes

# An image that a batch uses at least this often is decoded completely, once.
_OFTEN = 3


class JoinedImages(BatchSource):
    """Images of a batch from several sources, each added with its positions in the batch."""

    def __init__(self, count: int) -> None:
        self.sizes = np.zeros((count, 2), np.int64)
        self._origins: list[tuple[BatchSource, int]] = [(self, 0)] * count
        self._parts: list[tuple[BatchSource, Sequence[int]]] = []

    def add(self, source: BatchSource, positions: Sequence[int]) -> None:
        self.sizes[positions] = source.sizes
        self.channels, self.dtype = source.channels, source.dtype
        self._parts.append((source, positions))
        for inner, position in enumerate(positions):
            self._origins[position] = source, inner

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        source, inner = self._origins[position]
        return source.region(inner, box, size)

    def info(self, position: int) -> dict[object, object]:
        source, inner = self._origins[position]
        return source.info(inner)

    def orientations(self) -> list[int]:
        joined = [1] * len(self.sizes)
        for source, positions in self._parts:
            for position, orientation in zip(positions, source.orientations(), strict=True):
                joined[position] = orientation
        return joined


class UprightImages(BatchSource):
    """Images of another source, turned upright by their EXIF orientations."""

    def __init__(self, images: BatchSource) -> None:
        self._images = images
        self.channels, self.dtype = images.channels, images.dtype
        self._orientations = images.orientations()
        is_turned = np.array([swaps_sides(orientation) for orientation in self._orientations])
        self.sizes = np.where(is_turned[:, None], images.sizes[:, ::-1], images.sizes)

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        orientation = self._orientations[position]
        height, width = self._images.sizes[position].tolist()
        box = stored_box(box, (height, width), orientation)
        size = (size[1], size[0]) if swaps_sides(orientation) else size
        return upright(self._images.region(position, box, size), orientation)

    def gathered(self) -> Gathered | None:
        """Return all images as `BatchSource` does, but None if any must be turned."""
        is_turned = any(orientation != 1 for orientation in self._orientations)
        return None if is_turned else self._images.gathered()


class StoredSamples(Protocol):
    """A dataset's images and annotations, before any transform."""

    def __len__(self) -> int: ...

    def source_of(self, positions: Positions) -> BatchSource:
        """Return the images at some positions."""

    def annotations_of(self, positions: Positions, sizes: Sizes) -> list[Annotations] | None:
        """Return the annotations of images of these sizes; None if they have no objects and no mask."""


class SceneImages(BatchSource):
    """Images of a batch that are composed of several images of the dataset, such as mosaics.

    Attributes:
        annotations: Annotations of the composed images; None if the dataset has none.

    Raises:
        OptionError: A transform needs objects, but the images have none.
    """

    gives_own_regions = True

    def __init__(self, steps: SceneSteps, positions: Positions, draws: Draws, dataset: StoredSamples) -> None:
        parameters = steps.draw(draws, np.zeros((len(positions), 2), np.int64))
        indices = np.column_stack((positions, steps.others(parameters, positions, len(dataset))))
        distinct, rows = np.unique(indices, return_inverse=True)
        source = dataset.source_of(distinct)
        annotations = dataset.annotations_of(distinct, source.sizes)
        if annotations is None and steps.needed:
            raise OptionError(
                "Mosaic, ObjectMixUp, ObjectCutMix and CopyPaste must be given a dataset with objects, got "
                "one with labels of images: use MixUp and CutMix"
            )
        sizes: list[Size] = [(height, width) for height, width in source.sizes.tolist()]
        objects = list(map(Annotations, sizes)) if annotations is None else annotations
        images = _DecodedOnce(source, sizes)
        originals = [
            Scene(
                DeferredImage.of(PixelSource(images, index, size, source.channels, source.dtype)),
                objects[index],
                is_original=True,
            )
            for index, size in enumerate(sizes)
        ]
        scenes = []
        for row, numbers in zip(rows.reshape(indices.shape), parameters.tolist(), strict=True):
            own, *others = [originals[index] for index in row]
            scenes.append(steps.compose(own, numbers, others))
        images.expect([scene.image for scene in scenes])
        self.annotations = None if annotations is None else [scene.objects for scene in scenes]
        self.sizes = np.array([scene.size for scene in scenes], np.int64)
        self.channels, self.dtype = source.channels, source.dtype
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
        if position not in self._often:
            return self._source.region(position, box, size)
        if position not in self._decoded:
            whole = self._sizes[position]
            self._decoded[position] = self._source.region(position, Box(0, 0, *whole), whole)
        return box.of(self._decoded[position])
