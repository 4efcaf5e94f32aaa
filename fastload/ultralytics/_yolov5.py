"""Loader of YOLOv5, in `utils.dataloaders` of its repository, based on that of fastload.

Its dataset is unchanged. Its loader becomes fastload's, and images are stacked in the memory of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from fastload.datasets.batch import BatchMemory
from fastload.loader.dataloader import DataLoader
from fastload.system.patching import Replacement


def replacements(module: ModuleType) -> list[Replacement]:
    """Return the replacements of attributes: (owner, name, value); none for another `utils.dataloaders`."""
    names = ("InfiniteDataLoader", "LoadImagesAndLabels", "create_dataloader")
    if not all(hasattr(module, name) for name in names):
        return []
    loader, dataset = module.InfiniteDataLoader, module.LoadImagesAndLabels
    plain_init, plain_collate = loader.__init__, dataset.collate_fn

    @functools.wraps(plain_init)
    def init(self: object, *args: object, **options: Any) -> None:
        if options.get("collate_fn") is plain_collate:
            options["collate_fn"] = StackedImages(plain_collate)
        plain_init(self, *args, **options)

    bases = (loader, "__bases__", (DataLoader,))
    return [bases, (loader, "__init__", init), (module, "DataLoader", DataLoader)]


class StackedImages:
    """Collate function of YOLOv5, with the images stacked in the final memory of the batch."""

    changes = "its batches are stacked in shared memory by fastload.ultralytics"

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the batch in ordinary memory."""
        return self._plain(samples)

    def collate_into(self, samples: Sequence[Any], memory: BatchMemory) -> Any:
        """Return the batch, with the images in `memory`."""
        images = [sample[0] for sample in samples]
        first = images[0]
        if any(each.shape != first.shape or each.dtype != first.dtype for each in images):
            return self._plain(samples)
        stacked = memory.empty((len(images), *first.shape), first.dtype)
        torch.stack(images, 0, out=stacked)
        _, *others = self._plain([(first[:0], *sample[1:]) for sample in samples])
        return (stacked, *others)
