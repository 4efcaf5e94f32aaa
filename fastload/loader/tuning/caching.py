"""The cache of a loader's dataset: opened before the first worker starts, decided by what was measured.

Datasets of this library keep their samples themselves (`use_cache`). A loader looks for them in its dataset,
through Subset and ConcatDataset, and tells them what to do.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

from fastload.datasets.cache.options import Cache, cache_of
from fastload.datasets.cache.readings import Measured
from fastload.datasets.cache.resident import Resident, device_room
from fastload.datasets.images import ImageDataset
from fastload.errors import OptionError
from fastload.loader.strategy import LoaderView
from fastload.loader.transport.filling import can_fill_batches
from fastload.loader.tuning.plan import Alone, Choice
from fastload.system.cpus import local_ranks, usable_cpus
from fastload.system.units import size as size_text

# Of what a cache is to hold: samples that cannot be kept, as one whose file is gone, leave it never full.
_FILLED = 0.98


class LoaderCache:
    """What a loader keeps of its dataset, and where.

    Args:
        asked: As the loader was told.
        device: Where batches go, if anywhere.
        why_not_resident: Why batches cannot be made on the device, as a clause; "" if they can.

    Attributes:
        resident: The dataset on the device; None where it is not kept there.
        choice: What came of it, for the plan.

    Raises:
        OptionError: There is no such cache.
    """

    def __init__(self, asked: str | Cache, device: torch.device | None, why_not_resident: str) -> None:
        self._asked = cache_of(asked)
        self._device = device
        self._why_not_resident = why_not_resident
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
            self._is_decided = True

    def decide(self, dataset: Any, alone: Alone | None) -> None:
        """Decides by what was measured.

        Args:
            dataset: The loader's.
            alone: What a batch takes without workers; None where that is not known: then the disk is compared
                with what all CPUs can prepare.
        """
        if self.waits_for_measurements:
            self._use(dataset, self._measured(alone))
        self._is_decided = True

    def _use(self, dataset: Any, measured: Measured) -> None:
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
        if reports[0].kind == "device":
            try:
                self._load(parts, dataset)
            except OptionError:
                # It is no such dataset, as is found out by loading it: what is best besides?
                self._use(dataset, dataclasses.replace(measured, device_room_bytes=None))
            return
        self.choice = Choice(reports[0].kind, reports[0].reason)

    def _measured(self, alone: Alone | None) -> Measured:
        """What a loader knows: what all CPUs can prepare of bytes in memory, and what the models take."""
        device, room = self._device, None
        if device is not None and device.type == "cuda" and not self._why_not_resident:
            room = device_room(device)
        if alone is None:
            return Measured(device_room_bytes=room)
        cpu_s = max(alone.load_cpu_s, 1e-9) / alone.batch_size
        step_s = max(alone.step_s, 1e-9) / alone.batch_size
        # The ranks of a machine share its CPUs and its disk, and each has a model.
        return Measured(
            prepare_samples_per_s=usable_cpus() / cpu_s,
            step_samples_per_s=local_ranks() / step_s,
            device_room_bytes=room,
        )

    def _load(self, parts: list[ImageDataset], dataset: Any) -> None:
        """Loads the dataset onto the device."""
        if self._device is None:
            raise OptionError('cache="device" needs to know which: say device="cuda" too')
        if self._why_not_resident:
            raise OptionError(
                f'cache="device" makes batches by itself, and {self._why_not_resident}: use cache="ram"'
            )
        inner = dataset
        while type(inner) is Subset:
            inner = inner.dataset
        if inner is not parts[0]:
            raise OptionError(
                'cache="device" keeps one dataset, or a Subset of one: use cache="ram" for several'
            )
        self.resident = Resident.load(inner, self._device)
        size = size_text(self.resident.pixels.nbytes)
        self.choice = Choice("device", f"{size} of pixels lie on {self._device}")


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


def why_not_resident(view: LoaderView) -> str:
    """Why a loader's batches cannot be made on its device, as a clause; "" if they can.

    Args:
        view: The loader.
    """
    if not view.is_batched:
        return "this loader hands out samples (batch_size=None)"
    if view.collate_fn is not default_collate:
        return "this loader has a collate_fn, which would not be called"
    if not can_fill_batches(view.dataset):
        return "this dataset's own __getitem__ would not be called"
    return ""


def is_filling(dataset: Any) -> bool:
    """Whether a cache is on its way to hold as much of a dataset as it is to hold.

    Args:
        dataset: A loader's.
    """
    reports = [part.cached for part in _parts(dataset)]
    kept = [report for report in reports if report.kind in ("ram", "tmpfs") and not report.stopped]
    return any(report.ready < _FILLED * report.share for report in kept)


def own_choice(dataset: Any) -> Choice | None:
    """Where a dataset itself keeps its bytes, as it was told; None where it was told nothing.

    Args:
        dataset: A loader's.
    """
    for report in (part.cached for part in _parts(dataset)):
        if report.kind is not None or report.reason:
            return Choice(report.kind, report.reason or "as the dataset was told")
    return None


def asks_for_device(dataset: Any) -> bool:
    """Whether a dataset itself has been told to live on the device, which takes a loader.

    Args:
        dataset: A loader's.
    """
    return any(part.cached.kind == "device" for part in _parts(dataset))
