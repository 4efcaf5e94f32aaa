"""Common base of PackedDataset and FolderDataset: indices, transforms, samples and whole batches.

Both work in torch's DataLoader and in fastload's, with every start method of workers, and can replace a
torchvision ImageFolder. fastload's DataLoader asks for whole batches: only the region of each image that the
transform's crop needs is decoded, and written to the batch's final memory:

    fetch_into ──▶ _drawn ──▶ source_of: images of the cache, or of _stored_images ──▶ Pipeline.draw
               ──▶ batch.fill_batch ──▶ BatchSource.region: decoded pixels of one image ──▶ the batch's memory
               ──▶ batch_of_targets
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastload.contracts import BatchMemory, Box
from fastload.datasets.batch import BatchSource, Positions, fill_batch, render_sample
from fastload.datasets.cache.choosing import Measured, choose_cache, gather, open_cache
from fastload.datasets.cache.options import Cache, CacheReport, cache_of, no_cache
from fastload.datasets.cache.originals import Originals
from fastload.datasets.cache.sample_cache import SampleCache
from fastload.datasets.composed import SceneImages, UprightImages
from fastload.errors import DamageError, DecodeError, OptionError, RecordIndexError
from fastload.images.arrays import Pixels
from fastload.images.pixel_types import RGB, PixelType
from fastload.system.memory import Room, memory_room
from fastload.transforms.annotations import Annotations
from fastload.transforms.compose import AnyTransform, are_fastloads, flattened, package_of
from fastload.transforms.draws import begin_sample, draws_for
from fastload.transforms.pipeline import Drawn, Pipeline
from fastload.transforms.transform import Sizes

AnySample = tuple[Any, Any]
"""An image and its target, as the user's transforms return them."""

_NOT_REQUESTED = no_cache("not requested")


class ImageDataset(torch.utils.data.Dataset[AnySample]):
    """Base of datasets of (image, target).

    Attributes:
        classes: The names of the classes; a label is an index of this list.
        transform: Applied to every image, None for a tensor of the pixels. May be set at any time.
        target_transform: Applied to every target.
    """

    classes: list[str]

    def __init__(
        self,
        transform: AnyTransform | None,
        target_transform: AnyTransform | None,
        memory_format: torch.memory_format,
        reducing_gap: float | None,
        apply_orientation: bool,
    ) -> None:
        if reducing_gap is not None and not reducing_gap >= 1:
            raise OptionError(f"reducing_gap must be at least 1, or None, got {reducing_gap!r}")
        if memory_format not in (torch.channels_last, torch.contiguous_format):
            raise OptionError(
                f"memory_format must be torch.channels_last or torch.contiguous_format, got {memory_format!r}"
            )
        self.transform = transform
        self.target_transform = target_transform
        self._is_channels_last = memory_format == torch.channels_last
        self.reducing_gap = reducing_gap
        self.apply_orientation = apply_orientation
        self._compiled: tuple[list[AnyTransform], Pipeline] | None = None
        self.cache_option: Cache | None = None
        self._cache: SampleCache | None = None
        self._why_no_cache = _NOT_REQUESTED

    @property
    def pixel_type(self) -> PixelType:
        """The dtype and the number of channels of the images before any transform."""
        return RGB

    @property
    def memory_format(self) -> torch.memory_format:
        """The memory format of batches; not an attribute, because torch.save could not pickle it."""
        return torch.channels_last if self._is_channels_last else torch.contiguous_format

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class name."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def draws_from_epoch_seed_only(self) -> bool:
        """True if making samples of an epoch that has a seed uses no global random generator."""
        transforms = [] if self.transform is None else [self.transform]
        is_subclassed = package_of(self) != __name__.partition(".")[0]
        return not is_subclassed and self.target_transform is None and are_fastloads(transforms)

    def __getitem__(self, index: SupportsIndex) -> AnySample:
        """Return one sample, (image, target).

        Args:
            index: An int, a NumPy integer or a tensor of one; negative ones count from the end.

        Raises:
            RecordIndexError: There is no such sample.
            DamageError: The record fails its checksum.
            DecodeError: Its image cannot be decoded.
        """
        return self._samples(self.positions_of([operator.index(index)]))[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[AnySample]:
        """Return several samples; called by torch's DataLoader for a batch."""
        kind = type(self)
        if kind.__getitem__ is not _getitem and kind.__getitems__ is _getitems:
            # A subclass changes samples.
            return [self[index] for index in indices]
        return self._samples(self.positions_of(indices))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> object:
        """See `FillsBatches`; the result is [images, targets], images (batch, 3, height, width).

        Samples must be made one by one if their sizes differ, the transform holds other libraries' callables,
        or `on_error` must replace a sample.
        """
        pipeline = self.pipeline()
        if pipeline.is_foreign or len(indices) == 0:
            return NotImplemented
        positions = self.positions_of(indices)
        try:
            source, drawn = self._drawn(pipeline, positions)
            images = fill_batch(source, pipeline, drawn, out, self.memory_format)
            targets = None if images is None else self.batch_of_targets(positions, out, drawn.annotations)
        except (DamageError, DecodeError):
            if self.substitutes_samples:
                return NotImplemented
            raise
        return NotImplemented if images is None else [images, targets]

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        """Apply the last ToDtype and Normalize to uint8 images, which `fetch_into` leaves so for a device."""
        tail = self.pipeline().tail
        return images if tail is None or images.dtype != torch.uint8 else tail.on(images)

    @property
    def cached(self) -> CacheReport:
        """The state of the cache: its kind, the share of samples stored, why it was chosen."""
        return self._why_no_cache if self._cache is None else self._cache.report()

    def use_cache(
        self, cache: str | Cache | None, measured: Measured | None = None, room: Room = memory_room
    ) -> CacheReport:
        """Replace the dataset's cache, and return the state of the new one, with the reason for the choice.

        Args:
            cache: Same meaning as for the dataset.
            measured: Known rates, for `auto`; the rest is measured here.
            room: Returns the memory that the cache may take, in bytes.

        Raises:
            OptionError: This cache is not possible here.
        """
        self.cache_option = option = None if cache is None else cache_of(cache)
        if option is None:
            self.close_cache()
            return self.cached
        if self.lies_in_memory:
            raise OptionError("a dataset that lies in memory needs no cache: leave cache out")
        if self.reducing_gap is not None:
            if option.form == "decoded":
                raise OptionError(
                    "a cache of decoded images cannot be combined with reducing_gap, which decodes them for "
                    'each size: leave out one of them, or use form="encoded"'
                )
            option = replace(option, form="encoded")
        # Opened before the old one is closed, because it may be the same.
        originals = self._originals()

        def choose() -> CacheReport:
            return choose_cache(gather(self, originals, option, measured or Measured(), room))

        opened = open_cache(option, originals, choose, room)
        self.close_cache()
        self._cache, self._why_no_cache = opened
        return self.cached

    def fill_cache(self) -> None:
        """Start reading the missing samples in the background; making a batch calls this too."""
        if self._cache is not None:
            self._cache.refresh()

    def prefetch(self, indices: Sequence[int]) -> None:
        """Start reading some samples from the disk without waiting; all indices must be in range."""
        positions = np.asarray(indices, np.int64)
        if self._cache is not None:
            self._cache.refresh()
            positions = self._cache.missing(positions)
        if len(positions):
            self._prefetch(positions)

    def close_cache(self) -> None:
        """Stop using the cache, which is removed if no other process uses it and it is not on a disk."""
        self._cache, self._why_no_cache = None, _NOT_REQUESTED

    @abstractmethod
    def __len__(self) -> int: ...

    #: True if a sample that cannot be made is replaced by another.
    substitutes_samples = False
    #: True if samples have an image.
    has_images = True
    #: True if the samples are in memory already, so they need no cache; if False, the class has `_originals`.
    lies_in_memory = False

    def _prefetch(self, positions: Positions) -> None:
        """Start reading samples that are not cached from the disk, without waiting for them."""

    def _originals(self) -> Originals:
        """Return the samples without a cache, for one that is to hold copies of them."""
        raise NotImplementedError

    @abstractmethod
    def _stored_images(self, positions: Positions) -> BatchSource:
        """Return the stored images of some samples."""

    @abstractmethod
    def targets_of(
        self, positions: Positions, annotations: Sequence[Annotations] | None = None
    ) -> list[object]:
        """Return the targets of some samples, before `target_transform`.

        If they have objects or a mask, `annotations` are those after the transform; None: before it.
        """

    def _labels(self, positions: Positions) -> NDArray[np.generic] | None:
        """Return the targets as one array if they are integers within the range of int64."""
        return None

    def _samples(self, positions: Positions) -> list[AnySample]:
        """Return the samples at valid positions."""
        if not len(positions):
            return []
        pipeline = self.pipeline()
        annotations = None
        if pipeline.is_foreign:
            draws = draws_for(positions, self)
            full = enumerate(self._full_images(positions))
            images = (pipeline.run(image, draws.image(place)) for place, image in full)
        else:
            source, drawn = self._drawn(pipeline, positions)
            annotations = drawn.annotations
            views, tail = enumerate(drawn.geometry.views()), pipeline.tail
            images = (render_sample(source, drawn, view, i, tail) for i, view in views)
        # Each image is made before its target: the order in which the transforms of an ImageFolder draw.
        return list(zip(images, self._final_targets(positions, annotations), strict=True))

    def _full_images(self, positions: Positions) -> Iterator[Pixels]:
        """Yield all pixels of the images at valid positions, writable, for transforms of the user's own."""
        for place, single in enumerate(positions[:, None]):
            begin_sample(place)
            source = self.source_of(single)
            height, width = source.sizes[0].tolist()
            pixels = source.region(0, Box(0, 0, height, width), (height, width))
            yield pixels if pixels.flags.writeable and pixels.base is None else pixels.copy()

    def _drawn(self, pipeline: Pipeline, positions: Positions) -> tuple[BatchSource, Drawn]:
        """Return the images at valid positions, and the pipeline with the parameters drawn for them."""
        draws = draws_for(positions, self)
        source: BatchSource
        if pipeline.scenes.steps:
            source = scenes = SceneImages(pipeline.scenes, positions, draws, self)
            annotations = scenes.annotations
        else:
            source = self.source_of(positions)
            annotations = self.annotations_of(positions, source.sizes)
        return source, pipeline.draw(draws, source.sizes, source.channels, annotations)

    def source_of(self, positions: Positions) -> BatchSource:
        """Return the stored images at valid positions."""
        if self._cache is None:
            stored = self._stored_images(positions)
        else:
            self._cache.refresh()
            stored = self._cache.images(positions, self._stored_images, self.reducing_gap)
        return UprightImages(stored) if self.apply_orientation else stored

    def annotations_of(self, positions: Positions, sizes: Sizes) -> list[Annotations] | None:
        """Return the annotations of some images of these sizes; None if they have no objects and no mask."""
        return None

    def batch_of_targets(
        self, positions: Positions, out: BatchMemory, annotations: Sequence[Annotations] | None = None
    ) -> object:
        """Return the targets of some samples, collated as by torch's `default_collate`."""
        labels = None if annotations is not None else self._labels(positions)
        if labels is None or self.target_transform is not None:
            # A tuple, as in torch: its default_collate returns a tuple of strings unchanged.
            targets: Any = tuple(self._final_targets(positions, annotations))
            return default_collate(targets)
        batch = out.empty(labels.shape, torch.int64)
        batch.numpy()[:] = labels
        return batch

    def _final_targets(
        self, positions: Positions, annotations: Sequence[Annotations] | None
    ) -> Iterator[Any]:
        """Yield the targets of some samples, given their annotations after the transform."""
        targets = self.targets_of(positions, annotations)
        return iter(targets) if self.target_transform is None else map(self.target_transform, targets)

    def pipeline(self) -> Pipeline:
        """Return the transform, split into parts; it is split again after a change."""
        steps = flattened(self.transform)
        if self._compiled is None or self._compiled[0] != steps:
            self._compiled = steps, Pipeline(self.transform, self.pixel_type.dtype)
        return self._compiled[1]

    def positions_of(self, indices: Sequence[SupportsIndex]) -> Positions:
        """Return indices as positions counted from the first sample; raise RecordIndexError for others."""
        length, positions = len(self), np.asarray(indices)
        # NumPy would accept floats and booleans as indices too.
        if positions.dtype.kind not in "iu" or positions.ndim != 1:
            positions = np.array([operator.index(index) for index in indices])
        if positions.size and not (positions.min() >= 0 and positions.max() < length):
            is_outside = (positions < -length) | (positions >= length)
            if is_outside.any():
                first = positions[is_outside][0]
                raise RecordIndexError(f"{self}: index {first} is out of range for {length:,} samples")
            positions = np.where(positions < 0, positions + length, positions)
        return positions.astype(np.int64, copy=False)

    def __getstate__(self) -> dict[str, object]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("targets", "samples")}
        return {**state, "_compiled": None}


_getitem, _getitems = ImageDataset.__getitem__, ImageDataset.__getitems__
