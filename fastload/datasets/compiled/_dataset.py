"""Compiled datasets of (image, target), which make the samples of another dataset faster."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, cast

import torch
from torch.utils.data import Dataset, default_collate

from fastload.datasets._batch_source import BatchSource
from fastload.datasets.batch import BatchMemory, HostMemory, fill
from fastload.datasets.compiled._explain import LATE, Counterpart, description_of
from fastload.datasets.compiled._lazy import LazyImage
from fastload.datasets.compiled._pipeline import CompiledTransform
from fastload.datasets.compiled._recognized import images_of, source_attributes
from fastload.datasets.images import ImageDataset
from fastload.errors import OptionError
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.system.random_states import RandomStates
from fastload.transforms.draws import begin_sample, fresh_draws

Images = torch.Tensor | list[object]
Batch = tuple[Images, torch.Tensor | list[object]]
"""Images and targets, each in one tensor if that is possible."""


class CompiledDataset(Counterpart, Dataset[tuple[object, object]]):
    """Dataset that makes the samples of another dataset faster."""

    decodes_late: bool  # True if images that are not converted to tensors may be decoded on first use
    _images: ImageDataset
    _source_attributes: tuple[Any, ...]
    _compiled: CompiledTransform

    def __init__(self, theirs: Any, images: ImageDataset) -> None:
        super().__init__(
            theirs,
            _images=images,
            decodes_late=False,
            _source_attributes=source_attributes(theirs),
            _compiled=CompiledTransform(theirs.transform),
        )

    @property
    def compiled_transform(self) -> CompiledTransform:
        """The original dataset's transform, compiled."""
        self._refresh()
        return self._compiled

    @property
    def images(self) -> ImageDataset:
        """The original dataset's images and targets, without a transform."""
        self._refresh()
        return self._images

    def explained_parts(self, outer: tuple[object, ...]) -> list[str]:
        return [LATE] * self.decodes_late + description_of(self.compiled_transform)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: SupportsIndex) -> tuple[object, object]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[tuple[object, object]]:
        return self.to_samples(*self._make_batch(indices, HostMemory()))

    def to_samples(self, images: Images, targets: Iterable[object]) -> list[tuple[object, object]]:
        """Return images and targets made by `transform_images` as samples."""
        finished = map(self._compiled.end.wrap, images) if isinstance(images, torch.Tensor) else images
        return list(zip(finished, targets, strict=True))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Any:
        return collated(*self._make_batch(indices, out, is_collated=True))

    def _make_batch(
        self, indices: Sequence[SupportsIndex], out: BatchMemory, is_collated: bool = False
    ) -> Batch:
        """Return images and targets like `transform_images`; if `is_collated`, targets may be a tensor."""
        self._refresh()
        positions = self._images.positions_of(indices)
        source = self._images.source_of(positions)
        if is_collated and (images := self._vectorized(source, len(positions), out)) is not None:
            return images, cast(Images, self._images.batch_of_targets(positions, out))
        return self.transform_images(source, self._images.targets_of(positions), out)

    def transform_images(self, source: BatchSource, stored: Sequence[object], out: BatchMemory) -> Batch:
        """Return the transformed images of a source, as one tensor if they have one size, and targets.

        `stored` holds their targets before `target_transform`.
        """
        self._refresh()
        images = self._vectorized(source, len(stored), out)
        if images is not None:
            return images, list(stored)
        prepared, targets = self._prepared(source, stored)
        end = self._compiled.end
        lazy = [image for image in prepared if isinstance(image, LazyImage)]
        if end.makes_tensors and len(lazy) == len(prepared) and len({image.shape for image in lazy}) == 1:
            return end.batch(lazy, out), targets
        is_left = self.decodes_late and not end.makes_tensors
        return [image if is_left else end.finish(image) for image in prepared], targets

    def _vectorized(self, source: BatchSource, count: int, out: BatchMemory) -> torch.Tensor | None:
        """Return images whose parameters are drawn all at once; None if that is not possible."""
        pipeline, end = self._compiled.vector, self._compiled.end
        if count == 1:
            return None  # that takes longer than drawing for it alone
        if torch.get_default_dtype() != torch.float32:
            return None  # torchvision then draws numbers of another precision
        if pipeline is None or not end.makes_tensors or self.theirs.target_transform is not None:
            return None
        is_repeated = source.channels == 1 and end.grey_channels > 1
        if is_repeated or not pipeline.makes_one_size(source.sizes):
            return None
        drawn = pipeline.draw(fresh_draws(count), source.sizes, source.channels)
        return fill(source, pipeline, drawn, out, torch.contiguous_format)

    def _refresh(self) -> None:
        """Update the compiled transform and the images if the user has replaced or changed the originals."""
        if not self._compiled.is_of(self.theirs.transform):
            self._compiled = CompiledTransform(self.theirs.transform)
        found = source_attributes(self.theirs)
        if any(map(operator.is_not, found, self._source_attributes)) or (
            found[0] is not None and len(found[0]) != len(self._images)
        ):
            images = images_of(self.theirs)
            if images is None:
                raise OptionError(
                    f"{type(self.theirs).__name__}: its samples or its loader were replaced by others that "
                    "cannot be compiled: compile the dataset again"
                )
            if self._images.cached.kind is not None:
                images.use_cache(self._images.cache_option)
            self._images, self._source_attributes = images, found

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        return self._compiled.end.rescale.on(images) if images.dtype == torch.uint8 else images

    def prefetch(self, indices: Sequence[int]) -> None:
        self.images.prefetch(indices)

    def _prepared(self, source: BatchSource, stored: Sequence[object]) -> tuple[list[object], list[object]]:
        """Prepare images and targets, with random numbers drawn in the original order: image, then target."""
        to_target = self.theirs.target_transform
        images, targets = [], []
        for place, size in enumerate(source.sizes.tolist()):
            if len(stored) > 1:  # else it may be one of a batch that a ConcatDataset makes
                begin_sample(place)
            stored_image = PixelSource(source, place, (size[0], size[1]), source.channels)
            lazy = LazyImage(DeferredImage.of(stored_image), functools.partial(source.info, place))
            images.append(self._compiled.prepare(lazy))
            targets.append(stored[place] if to_target is None else to_target(stored[place]))
        return images, targets


def collated(*parts: Images) -> list[object]:
    """Return images and targets, passed to `default_collate` unless they are tensors already."""
    return [part if isinstance(part, torch.Tensor) else default_collate(part) for part in parts]


class SkippingDataset(CompiledDataset):
    """Compiled dataset whose samples are made by the original dataset if making them fast fails.

    The original dataset draws the same random numbers, and skips a damaged file with its own warning.
    """

    def _make_batch(
        self, indices: Sequence[SupportsIndex], out: BatchMemory, is_collated: bool = False
    ) -> Batch:
        state = RandomStates()
        try:
            return super()._make_batch(indices, out, is_collated)
        except Exception:
            state.restore()
        samples = [self.theirs[operator.index(index)] for index in indices]
        return [image for image, _ in samples], [target for _, target in samples]
