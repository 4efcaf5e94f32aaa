"""Datasets of this library inside another one: a Subset, a ConcatDataset, a compiled dataset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeGuard

from torch.utils.data import ConcatDataset, Subset

from fastload.datasets.cache.options import Cache
from fastload.datasets.images import ImageDataset
from fastload.errors import OptionError

NEEDS_IMAGES = (
    "a cache needs a known dataset of image files, got {}: load from an ImageFolder, a FolderDataset or a "
    "PackedDataset, or leave cache out"
)


class UsesImages(ABC):
    """Base class of datasets that make another one's samples from images of a dataset of this library."""

    @property
    @abstractmethod
    def images(self) -> ImageDataset | None:
        """The images; None if the other dataset makes the samples itself."""


def image_datasets_in(dataset: object) -> list[ImageDataset]:
    """Return the datasets of this library that a dataset consists of; none if any part is of another kind."""
    if isinstance(dataset, ImageDataset):
        return [dataset]
    if isinstance(dataset, UsesImages):
        return [] if dataset.images is None else [dataset.images]
    if is_plain_subset(dataset):
        return image_datasets_in(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        found: list[object] = list(dataset.datasets)
        parts = [image_datasets_in(part) for part in found]
        return [part for each in parts for part in each] if all(parts) else []
    return []


def is_plain_subset(dataset: object) -> TypeGuard[Subset[object]]:
    """Return True for a Subset whose samples are those of its dataset: no subclass changes them."""
    if not isinstance(dataset, Subset):
        return False
    kind = type(dataset)
    return kind.__getitem__ is Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__


def use_cache_in(dataset: object, cache: str | Cache) -> None:
    """Set the cache of all datasets inside another one; raise OptionError if there are none."""
    parts = image_datasets_in(dataset)
    if not parts:
        raise OptionError(NEEDS_IMAGES.format(dataset.__class__.__name__))
    for part in parts:
        part.use_cache(cache)
