"""Datasets of (image, target), compiled: the samples of another dataset, made faster."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import torch
from torch.utils.data import Dataset, default_collate

from fastload.datasets.batch import BatchMemory, BatchSource, HostMemory, fill
from fastload.datasets.compiled._explain import Explained, description_of, indented
from fastload.datasets.compiled._lazy import LazyImage
from fastload.datasets.compiled._pipeline import CompiledTransform
from fastload.datasets.images import ImageDataset
from fastload.transforms.draws import fresh_draws


class CompiledDataset(Explained, Dataset[tuple[Any, Any]]):
    """A dataset that returns the samples of another one, made faster.

    Attributes that are not defined here, such as `classes`, are the other dataset's. Its `transform` and
    `target_transform` may be set at any time, here or there.

    Attributes:
        theirs: The other dataset.
        images: Its images and targets, as a dataset of fastload's without a transform.
        decodes_late: Whether images that are no tensors may be decoded when their pixels are asked for.
    """

    #: Draws come from torch's generators, in the order of the samples.
    counts_draws = False

    def __init__(
        self, theirs: Any, images: ImageDataset, memory_format: torch.memory_format = torch.contiguous_format
    ) -> None:
        self.theirs = theirs
        self.images = images
        self.memory_format = memory_format
        self.decodes_late = False
        self._compiled = CompiledTransform(theirs.transform)

    def explanation_lines(self) -> list[str]:
        """See `Explained`."""
        self._follow_transform()
        return [type(self.theirs).__name__, *indented(description_of(self._compiled))]

    def __len__(self) -> int:
        return len(self.images)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "theirs":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    @property
    def transform(self) -> Any:
        """The other dataset's transform."""
        return self.theirs.transform

    @transform.setter
    def transform(self, transform: Any) -> None:
        self.theirs.transform = transform

    @property
    def target_transform(self) -> Any:
        """The other dataset's target_transform."""
        return self.theirs.target_transform

    @target_transform.setter
    def target_transform(self, target_transform: Any) -> None:
        self.theirs.target_transform = target_transform

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any]:
        """Return one sample, (image, target).

        Raises:
            IndexError: There is no such sample.
        """
        self._follow_transform()
        positions = self.images.positions_of([operator.index(index)])
        (prepared,), (target,) = self._prepared(
            self.images.source_of(positions), self.images.targets_of(positions)
        )
        return self._finished(prepared), target

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[tuple[Any, Any]]:
        """Return several samples; their images may be parts of one tensor."""
        return self.samples_of(*self._made(indices, HostMemory()))

    def samples_of(self, images: Any, targets: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return what `made_of` made as samples."""
        if isinstance(images, torch.Tensor):
            images = map(self._compiled.wrap, images)
        return list(zip(images, targets, strict=True))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Any:
        """Make a batch in its final memory; see `ImageDataset.fetch_into`."""
        positions = self.images.positions_of(indices)
        source = self.images.source_of(positions)
        vectorized = self._vectorized(source, len(positions), out)
        if vectorized is not None:
            return [vectorized, self.images.batch_of_targets(positions, out)]
        images, targets = self.made_of(source, self.images.targets_of(positions), out)
        return [
            images if isinstance(images, torch.Tensor) else default_collate(images),
            default_collate(targets),
        ]

    def _made(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> tuple[Any, list[Any]]:
        positions = self.images.positions_of(indices)
        return self.made_of(self.images.source_of(positions), self.images.targets_of(positions), out)

    def made_of(
        self, source: BatchSource, stored: Sequence[Any], out: BatchMemory
    ) -> tuple[torch.Tensor | list[Any], list[Any]]:
        """Return transformed images, as one tensor if they have one size and as a list if not, and targets.

        Args:
            source: The images of a batch.
            stored: Their targets before `target_transform`.
            out: The allocator of the tensor.
        """
        images = self._vectorized(source, len(stored), out)
        if images is not None:
            return images, list(stored)
        prepared, targets = self._prepared(source, stored)
        if self._is_batch(prepared):
            return self._compiled.batch(prepared, out, self.memory_format), targets
        return [self._finished(image) for image in prepared], targets

    def _vectorized(self, source: BatchSource, count: int, out: BatchMemory) -> torch.Tensor | None:
        """Return images whose parameters are drawn for all at once; None where that is not possible."""
        self._follow_transform()
        pipeline = self._compiled.vector
        if pipeline is None or not self._compiled.makes_tensors or self.theirs.target_transform is not None:
            return None
        if not pipeline.makes_one_size(source.sizes):
            return None
        return fill(source, pipeline, fresh_draws(count), out, self.memory_format)

    def _finished(self, prepared: Any) -> Any:
        """Return a sample's image of what `CompiledTransform.prepare` returned."""
        is_left = self.decodes_late and not self._compiled.makes_tensors
        return prepared if is_left else self._compiled.finish(prepared)

    @property
    def has_known_steps(self) -> bool:
        """True if a step of the transform is known."""
        self._follow_transform()
        return self._compiled.is_useful

    def _follow_transform(self) -> None:
        """Compile the transform again if the user has set another one."""
        if self._compiled.theirs is not self.theirs.transform:
            self._compiled = CompiledTransform(self.theirs.transform)

    @property
    def is_known(self) -> bool:
        """True if each step of the transform is known, and targets are not transformed."""
        self._follow_transform()
        has_unknown = any(kind == "unknown" for _, kind in self._compiled.kinds())
        return self.theirs.target_transform is None and not has_unknown

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        """Do on a batch's device what `fetch_into` left to it; see `ImageDataset.finish`."""
        return self._compiled.on_device(images) if images.dtype == torch.uint8 else images

    def prefetch(self, indices: Sequence[int]) -> None:
        """Ask the system to read some samples from disk now; see `ImageDataset`."""
        prefetch = getattr(self.images, "prefetch", None)
        if prefetch is not None:
            prefetch(indices)

    def _prepared(self, source: BatchSource, stored: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Draw all random numbers in the other dataset's order: each image's before its target's."""
        to_target = self.theirs.target_transform
        images, targets = [], []
        for place, size in enumerate(source.sizes.tolist()):
            images.append(self._compiled.prepare(LazyImage.whole(source, place, size, source.channels)))
            targets.append(stored[place] if to_target is None else to_target(stored[place]))
        return images, targets

    def _is_batch(self, prepared: Sequence[Any]) -> bool:
        """Return True if images can be finished together: they have one size, and become tensors."""
        if not self._compiled.makes_tensors or not all(isinstance(image, LazyImage) for image in prepared):
            return False
        return len({image.shape for image in prepared}) == 1

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compiled = CompiledTransform(self.theirs.transform)
