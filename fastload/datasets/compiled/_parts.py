"""Subset and ConcatDataset of compiled datasets."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

import torch
from torch.utils.data import ConcatDataset, Subset

from fastload.datasets._batch_source import JoinedImages
from fastload.datasets.batch import BatchMemory, HostMemory
from fastload.datasets.compiled._dataset import Batch, CompiledDataset, collated
from fastload.datasets.compiled._explain import Counterpart
from fastload.transforms.draws import begin_sample


class CompiledSubset(Counterpart, Subset[object]):
    """A Subset of a compiled dataset."""

    def __init__(self, theirs: Subset[object], dataset: object) -> None:
        super().__init__(theirs, dataset=dataset)


class CompiledConcat(Counterpart, ConcatDataset[object]):
    """A ConcatDataset of compiled parts; entire batches are made at once if all parts share a transform."""

    def __init__(self, theirs: ConcatDataset[object], datasets: list[object]) -> None:
        super().__init__(theirs, datasets=datasets)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[object]:
        common, made = self._common(), self._make_batch(indices, HostMemory())
        if common is None or made is None:
            return list(map(self._sample, range(len(indices)), indices))
        return list(common.to_samples(*made))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Any:
        """See `ImageDataset`; returns NotImplemented if the parts have different transforms."""
        made = self._make_batch(indices, out)
        return NotImplemented if made is None else collated(*made)

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        part = self._common()
        return images if part is None else part.finish(images)

    def prefetch(self, indices: Sequence[SupportsIndex]) -> None:
        for part, index in (_located(self, index) for index in indices):
            if isinstance(part, CompiledDataset):
                part.prefetch([index])

    def _make_batch(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Batch | None:
        """Return images and targets; None unless all parts share their transform."""
        common = self._common()
        if common is None or not len(indices):
            return None
        joined, channels = JoinedImages(len(indices)), set()
        stored: list[object] = []
        for place, (part, index) in enumerate(_located(self, index) for index in indices):
            positions = part.images.positions_of([index])
            source = part.images.source_of(positions)
            joined.add(source, [place])
            channels.add(source.channels)
            stored += part.images.targets_of(positions)
        return None if len(channels) > 1 else common.transform_images(joined, stored, out)

    def _sample(self, place: int, index: SupportsIndex) -> object:
        begin_sample(place)
        return self[index]

    def _common(self) -> CompiledDataset | None:
        """Return the first part, if all parts are compiled and share its transforms."""
        parts = list(leaves(self))
        if not all(type(part) is CompiledDataset for part in parts):
            return None
        first, *others = [(part.transform, part.target_transform) for part in parts]
        are_same = all(other[0] is first[0] and other[1] is first[1] for other in others)
        return parts[0] if are_same else None


def leaves(dataset: Any) -> Iterator[Any]:
    """Yield the innermost datasets of a Subset or ConcatDataset."""
    if isinstance(dataset, Subset):
        yield from leaves(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from leaves(part)
    else:
        yield dataset


def _located(dataset: Any, index: Any) -> tuple[Any, int]:
    """Return the innermost dataset of a sample, and its index there."""
    while True:
        if isinstance(dataset, Subset):
            dataset, index = dataset.dataset, dataset.indices[index]
        elif isinstance(dataset, ConcatDataset):
            ends = dataset.cumulative_sizes
            # An index out of range is passed on: the part raises the error.
            index = index + ends[-1] if index < 0 else index
            part = min(bisect.bisect_right(ends, index), len(ends) - 1)
            dataset, index = dataset.datasets[part], index - (ends[part - 1] if part else 0)
        else:
            return dataset, int(index)
