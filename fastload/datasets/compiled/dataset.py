"""Compiled datasets of (image, target), their subsets and concatenations: the same samples, made faster."""

from __future__ import annotations

import bisect
import copy
import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, TypeGuard

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

from fastload.contracts import BatchMemory
from fastload.datasets.batch import BatchSource, HostMemory, fill_batch
from fastload.datasets.compiled.explain import LATE, Explained, description_of
from fastload.datasets.compiled.lazy import LazyImage, plain_afterwards
from fastload.datasets.compiled.pipeline import CompiledTransform
from fastload.datasets.compiled.sources import Arrays, TheirDataset, images_of, source_attributes
from fastload.datasets.compiled.stand_in import StandIn
from fastload.datasets.composed import JoinedImages
from fastload.datasets.images import ImageDataset
from fastload.datasets.within import UsesImages, is_plain_subset
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.system.random_states import RandomStates
from fastload.transforms.draws import begin_sample, fresh_draws

Images = torch.Tensor | list[object]
Batch = tuple[Images, torch.Tensor | list[object]]
"""Images and targets, each in one tensor if that is possible."""


# With at least this many images in memory, drawing all parameters at once is faster.
_LEAST_AT_ONCE = 4


class Counterpart(StandIn, Explained):
    """Base class of compiled datasets, which share the attributes of the original dataset, `theirs`.

    All attributes but their own, such as `classes`, are those of the original; they can be set in either.
    """

    def __init__(self, theirs: object, **own: object) -> None:
        self.__dict__.update(own, theirs=theirs)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self.theirs, name, value)

    def __repr__(self) -> str:
        return Explained.__repr__(self)

    def __copy__(self) -> Counterpart:
        return _restored(type(self), {**self.__dict__, "theirs": copy.copy(self.theirs)})

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), dict(self.__dict__))


def _restored(kind: type[Counterpart], state: dict[str, object]) -> Counterpart:
    result: Counterpart = object.__new__(kind)
    result.__dict__.update(state)
    return result


class CompiledDataset(Counterpart, UsesImages, Dataset[tuple[object, object]]):
    """Dataset that makes the samples of another dataset faster.

    If its images are replaced by some that cannot be compiled, the other dataset makes the samples.
    """

    theirs: TheirDataset
    decodes_late: bool  # True if images that are not converted to tensors may be decoded on first use
    _images: ImageDataset | None
    _source_attributes: tuple[object, ...]
    _compiled: CompiledTransform

    def __init__(self, theirs: TheirDataset, images: ImageDataset, most_levels: float) -> None:
        own = {"_images": images, "_source_attributes": source_attributes(theirs)}
        compiled = CompiledTransform(theirs.transform, most_levels)
        super().__init__(theirs, decodes_late=False, _compiled=compiled, **own)

    @property
    def compiled_transform(self) -> CompiledTransform:
        """The original dataset's transform, compiled."""
        self._refresh()
        return self._compiled

    def is_faster_for(self, count: int) -> bool:
        """Return True if `count` samples take less time: of files, at once, or with costly steps."""
        images, compiled = self._images, self._compiled
        if not isinstance(images, Arrays) or images.size >= compiled.least_pixels:
            return True
        draws_at_once = compiled.vector is not None and self.theirs.target_transform is None
        return draws_at_once and count >= _LEAST_AT_ONCE

    @property
    def images(self) -> ImageDataset | None:
        """The original dataset's images and targets, without a transform; None if it makes the samples."""
        self._refresh()
        return self._images

    def explained_parts(self) -> list[str]:
        return [LATE] * self.decodes_late + description_of(self.compiled_transform, self.images)

    def __len__(self) -> int:
        source: Any = self.theirs if self.images is None else self.images
        return len(source)

    def __getitem__(self, index: SupportsIndex) -> tuple[object, object]:
        if not self.is_faster_for(1):
            return self.theirs[operator.index(index)]
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[tuple[object, object]]:
        return self.to_samples(*self._make_batch(indices, HostMemory()))

    def to_samples(self, images: Images, targets: Iterable[object]) -> list[tuple[object, object]]:
        """Return images and targets made by `transform_images` as samples."""
        finished = map(self._compiled.end.wrap, images) if isinstance(images, torch.Tensor) else images
        return list(zip(finished, targets, strict=True))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> list[object]:
        return collated(*self._make_batch(indices, out, is_collated=True))

    def _make_batch(
        self, indices: Sequence[SupportsIndex], out: BatchMemory, is_collated: bool = False
    ) -> Batch:
        """Return images and targets like `transform_images`; if `is_collated`, targets may be a tensor."""
        if not self.is_faster_for(len(indices)):
            return self._their_samples(indices)
        self._refresh()
        if self._images is None:
            return self._their_samples(indices)
        positions = self._images.positions_of(indices)
        source = self._images.source_of(positions)
        if is_collated and (images := self._vectorized(source, len(positions), out)) is not None:
            batch = self._images.batch_of_targets(positions, out)
            return images, batch if isinstance(batch, torch.Tensor) else self._images.targets_of(positions)
        return self.transform_images(source, self._images.targets_of(positions), out)

    def _their_samples(self, indices: Sequence[SupportsIndex]) -> Batch:
        samples = []
        for place, index in enumerate(indices):
            if len(indices) > 1:
                begin_sample(place)
            samples.append(self.theirs[operator.index(index)])
        return [image for image, _ in samples], [target for _, target in samples]

    def transform_images(self, source: BatchSource, stored: Sequence[object], out: BatchMemory) -> Batch:
        """Return the transformed images of a source, as one tensor if they have one size, and targets.

        `stored` holds their targets before `target_transform`.
        """
        self._refresh()
        images = self._vectorized(source, len(stored), out)
        if images is not None:
            return images, list(stored)
        with plain_afterwards():
            return self._transformed(source, stored, out)

    def _transformed(self, source: BatchSource, stored: Sequence[object], out: BatchMemory) -> Batch:
        prepared, targets = self._prepared(source, stored)
        end = self._compiled.end
        lazy = [image for image in prepared if isinstance(image, LazyImage)]
        if end.makes_tensors and len(lazy) == len(prepared) and len({image.shape for image in lazy}) == 1:
            return end.batch(lazy, out), targets
        if self.decodes_late and not end.makes_tensors:
            return [_late(image) for image in prepared], targets
        return [end.finish(image) for image in prepared], targets

    def _vectorized(self, source: BatchSource, count: int, out: BatchMemory) -> torch.Tensor | None:
        """Return images whose parameters are drawn all at once; None if that is not possible."""
        pipeline, end = self._compiled.vector, self._compiled.end
        if pipeline is None or not end.makes_tensors or self.theirs.target_transform is not None:
            return None
        # One image takes longer than drawing for it alone; of another dtype, torchvision draws other numbers.
        if count == 1 or torch.get_default_dtype() != torch.float32:
            return None
        is_repeated = source.channels == 1 and end.grey_channels > 1
        if is_repeated or not pipeline.makes_one_size(source.sizes):
            return None
        drawn = pipeline.draw(fresh_draws(count), source.sizes, source.channels)
        return fill_batch(source, pipeline, drawn, out, torch.contiguous_format)

    def _refresh(self) -> None:
        """Update the compiled transform and the images if the user has replaced or changed the originals."""
        if not self._compiled.is_of(self.theirs.transform):
            self._compiled = CompiledTransform(self.theirs.transform, self._compiled.most_levels)
        found, before = source_attributes(self.theirs), self._images
        is_changed = any(map(operator.is_not, found, self._source_attributes))
        if found[0] is not None and before is not None:
            is_changed |= len(self.theirs.samples) != len(before)
        if is_changed:
            self._images, self._source_attributes = images_of(self.theirs), found
            if self._images is not None and before is not None and before.cached.kind is not None:
                self._images.use_cache(before.cache_option)

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        return self._compiled.end.rescale.on(images) if images.dtype == torch.uint8 else images

    def prefetch(self, indices: Sequence[int]) -> None:
        if isinstance(self._images, Arrays):
            return
        images = self.images
        if images is not None:
            images.prefetch(indices)

    def _prepared(self, source: BatchSource, stored: Sequence[object]) -> tuple[list[object], list[object]]:
        """Prepare images and targets, with random numbers drawn in the original order: image, then target."""
        to_target = self.theirs.target_transform
        images, targets = [], []
        for place, size in enumerate(source.sizes.tolist()):
            if len(stored) > 1:  # else it may be one of a batch that a ConcatDataset makes
                begin_sample(place)
            stored_image = PixelSource(source, place, (size[0], size[1]), source.channels)
            info = functools.partial(source.info, place)
            lazy = LazyImage(DeferredImage.of(stored_image), info, self._compiled.most_levels)
            images.append(self._compiled.prepare(lazy))
            targets.append(stored[place] if to_target is None else to_target(stored[place]))
        return images, targets


def _late(image: object) -> object:
    return image.kept(is_sure=False) if isinstance(image, LazyImage) else image


def collated(*parts: Images) -> list[object]:
    """Return images and targets, passed to `default_collate` unless they are tensors already."""
    # torch's samples become tuples of images and of targets, which strings stay.
    given: list[Any] = [part if isinstance(part, torch.Tensor) else tuple(part) for part in parts]
    return [part if isinstance(part, torch.Tensor) else default_collate(part) for part in given]


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
        return self._their_samples(indices)


class CompiledSubset(Counterpart, Subset[object]):
    """A Subset of a compiled dataset."""

    def __init__(self, theirs: Subset[object], dataset: object) -> None:
        super().__init__(theirs, dataset=dataset)


class CompiledConcat(Counterpart, ConcatDataset[object]):
    """A ConcatDataset of compiled parts; entire batches are made at once if all parts share a transform."""

    def __init__(self, theirs: ConcatDataset[object], datasets: list[object]) -> None:
        super().__init__(theirs, datasets=datasets)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[object]:
        common, made = self.common(), self._make_batch(indices, HostMemory())
        if common is None or made is None:
            return list(map(self._sample, range(len(indices)), indices))
        return list(common.to_samples(*made))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Any:
        """See `ImageDataset`; returns NotImplemented if the parts have different transforms."""
        made = self._make_batch(indices, out)
        return NotImplemented if made is None else collated(*made)

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        part = self.common()
        return images if part is None else part.finish(images)

    def prefetch(self, indices: Sequence[SupportsIndex]) -> None:
        for part, index in (_located(self, index) for index in indices):
            if isinstance(part, CompiledDataset):
                part.prefetch([index])

    def _make_batch(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Batch | None:
        """Return images and targets; None unless all parts share their transform."""
        common = self.common()
        if common is None or not common.is_faster_for(len(indices)):
            return None
        joined, channels = JoinedImages(len(indices)), set()
        stored: list[object] = []
        for place, (part, index) in enumerate(_located(self, index) for index in indices):
            assert isinstance(part, CompiledDataset)
            assert part.images is not None
            positions = part.images.positions_of([index])
            source = part.images.source_of(positions)
            joined.add(source, [place])
            channels.add(source.channels)
            stored += part.images.targets_of(positions)
        return None if len(channels) > 1 else common.transform_images(joined, stored, out)

    def _sample(self, place: int, index: SupportsIndex) -> object:
        begin_sample(place)
        return self[operator.index(index)]

    def common(self) -> CompiledDataset | None:
        """Return the first part, if all parts are compiled and share its transforms."""
        parts = list(leaves(self))
        compiled = [part for part in parts if type(part) is CompiledDataset and part.images is not None]
        if len(compiled) < len(parts):
            return None
        first, *others = [(part.theirs.transform, part.theirs.target_transform) for part in compiled]
        are_same = all(other[0] is first[0] and other[1] is first[1] for other in others)
        return compiled[0] if are_same else None


def leaves(dataset: object) -> Iterator[object]:
    """Yield the innermost datasets of a Subset or ConcatDataset."""
    if is_plain_subset(dataset):
        yield from leaves(dataset.dataset)
    elif _is_plain_concat(dataset):
        for part in dataset.datasets:
            yield from leaves(part)
    else:
        yield dataset


def _is_plain_concat(dataset: object) -> TypeGuard[ConcatDataset[object]]:
    return isinstance(dataset, ConcatDataset) and type(dataset).__getitem__ is ConcatDataset.__getitem__


def _located(dataset: object, index: SupportsIndex) -> tuple[object, int]:
    """Return the innermost dataset of a sample, and its index there."""
    while True:
        index = operator.index(index)
        if is_plain_subset(dataset):
            index, dataset = dataset.indices[index], dataset.dataset
        elif _is_plain_concat(dataset):
            ends = dataset.cumulative_sizes
            # An index out of range is passed on: the part raises the error.
            index = index + ends[-1] if index < 0 else index
            part = min(bisect.bisect_right(ends, index), len(ends) - 1)
            dataset, index = dataset.datasets[part], index - (ends[part - 1] if part else 0)
        else:
            return dataset, index
