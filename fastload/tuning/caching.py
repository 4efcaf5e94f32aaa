"""The cache of a loader's dataset: opened before the first worker starts, decided by what was measured.

Datasets of this library keep their samples themselves (`use_cache`). A loader looks for them in its dataset,
through Subset and ConcatDataset, and tells them what to do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from fastload.cache.options import Cache, cache_of
from fastload.cache.readings import Measured
from fastload.cache.resident import Resident, device_room
from fastload.dataset.images import ImageDataset
from fastload.errors import OptionError
from fastload.machine import usable_cpus
from fastload.tuning.plan import Alone, Choice


class LoaderCache:
    """What a loader keeps of its dataset, and where.

    Args:
        asked: As the loader was told.
        device: Where batches go, if anywhere.

    Attributes:
        resident: The dataset on the device; None where it is not kept there.
        choice: What came of it, for the plan.

    Raises:
        OptionError: There is no such cache.
    """

    def __init__(self, asked: str | Cache, device: torch.device | None) -> None:
        self._asked = cache_of(asked)
        self._device = device
        self._is_decided = False
        self.resident: Resident | None = None
        self.choice = Choice(asked if isinstance(asked, str) else asked.kind, "as you said")

    @property
    def waits_for_measurements(self) -> bool:
        """Whether it is to be decided by what the training takes, and has not been."""
        return self._asked.kind == "auto" and not self._is_decided

    def open(self, dataset: Any) -> None:
        """Opens what was asked for by name.

        Args:
            dataset: The loader's.

        Raises:
            OptionError: It cannot be had, or not for this dataset.
        """
        if self._asked.kind != "auto" and not self._is_decided:
            self._use(dataset, Measured())

    def decide(self, dataset: Any, alone: Alone | None) -> None:
        """Decides by what was measured.

        Args:
            dataset: The loader's.
            alone: What a batch takes without workers; None where that is not known: then the disk is compared
                with what all CPUs can prepare.
        """
        if self.waits_for_measurements:
            self._use(dataset, _measured(alone, self._device))

    def _use(self, dataset: Any, measured: Measured) -> None:
        self._is_decided = True
        parts = _parts(dataset)
        if not parts:
            needs = f"a cache needs a FolderDataset or a PackedDataset, got {type(dataset).__name__}"
            if self._asked.kind != "auto":
                raise OptionError(f"{needs}: load from one of these, or leave cache out")
            self.choice = Choice(None, f"no cache: {needs}")
            return
        if self._asked.kind == "device":
            self._load(parts, dataset)
            return
        reports = [part.use_cache(self._asked, measured) for part in parts]
        self.choice = Choice(reports[0].kind, reports[0].reason)
        if reports[0].kind == "device":
            self._load(parts, dataset)

    def _load(self, parts: list[ImageDataset], dataset: Any) -> None:
        """Loads the dataset onto the device."""
        if self._device is None:
            raise OptionError('cache="device" needs to know which: say device="cuda" too')
        inner = dataset
        while type(inner) is Subset:
            inner = inner.dataset
        if inner is not parts[0]:
            raise OptionError(
                'cache="device" keeps one dataset, or a Subset of one: use cache="ram" for several'
            )
        self.resident = Resident.load(inner, self._device)
        size = self.resident.pixels.nbytes / 1e9
        self.choice = Choice("device", f"{size:.2f} GB of pixels lie on {self._device}")


def _parts(dataset: Any) -> list[ImageDataset]:
    """The datasets of this library that a dataset is made of."""
    if isinstance(dataset, ImageDataset):
        return [dataset]
    if type(dataset) is Subset:
        return _parts(dataset.dataset)
    if type(dataset) is ConcatDataset:
        found: list[Dataset[Any]] = list(dataset.datasets)
        parts = [_parts(part) for part in found]
        return [part for each in parts for part in each] if all(parts) else []
    return []


def _measured(alone: Alone | None, device: torch.device | None) -> Measured:
    """What a loader knows: what all CPUs can prepare of bytes in memory, and what the model takes."""
    room = device_room(device) if device is not None and device.type == "cuda" else None
    if alone is None:
        return Measured(device_room_bytes=room)
    cpu_s = max(alone.load_cpu_s, 1e-9) / alone.batch_size
    step_s = max(alone.step_s, 1e-9) / alone.batch_size
    return Measured(
        prepare_samples_per_s=usable_cpus() / cpu_s, step_samples_per_s=1 / step_s, device_room_bytes=room
    )
