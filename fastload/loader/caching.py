"""Cache of a loader's dataset: opened before the first worker starts, chosen from measurements.

Datasets of this library cache their samples themselves (`use_cache`). A loader finds these datasets, also
inside a Subset or ConcatDataset, and configures their caches.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from fastload.contracts import KnowsLimits
from fastload.datasets.cache.choosing import Measured
from fastload.datasets.cache.options import Cache, CacheReport, cache_of
from fastload.datasets.cache.sharing import can_cache
from fastload.datasets.images import ImageDataset
from fastload.datasets.resident import Resident, device_room
from fastload.datasets.within import NEEDS_IMAGES, image_datasets_in, is_plain_subset
from fastload.errors import OptionError
from fastload.loader.arguments import LoaderView
from fastload.loader.measurements import PlannedValue, SingleProcessCost
from fastload.loader.transport.making import can_fill_batches, innermost
from fastload.system.cpus import local_ranks, usable_cpus
from fastload.system.units import format_size


class LoaderCache:
    """The cache that a loader was given.

    `why_not_resident` is why batches cannot be made on the device, as a clause; "" if they can.

    Attributes:
        resident: The dataset on the device; None if it is not there.
        choice: The cache in use and the reason for it, for the plan.
    """

    def __init__(self, asked: str | Cache, device: torch.device | None, why_not_resident: str) -> None:
        self._asked = cache_of(asked)
        self._device = device
        self._why_not_resident = why_not_resident
        self._is_decided = False
        self.resident: Resident | None = None
        self.choice: PlannedValue[str | None] = PlannedValue(
            asked if isinstance(asked, str) else asked.kind, "set by you"
        )

    def open(self, dataset: object) -> None:
        """Open a cache that was requested by name; raise OptionError if it cannot be used."""
        if self._asked.kind != "auto":
            self._decide(dataset, Measured())

    def decide(self, dataset: object, cost: SingleProcessCost | None) -> None:
        """Choose the cache for "auto": by the cost of a batch or, if unknown, by disk and CPUs."""
        if self._asked.kind == "auto":
            self._decide(dataset, self._measured(cost))

    def _decide(self, dataset: object, measured: Measured) -> None:
        if not self._is_decided:
            self._use(dataset, measured)
            self._is_decided = True

    def _use(self, dataset: object, measured: Measured) -> None:
        parts = image_datasets_in(dataset)
        if not parts:
            name = dataset.__class__.__name__
            if self._asked.kind != "auto":
                raise OptionError(NEEDS_IMAGES.format(name))
            self.choice = PlannedValue(None, f"no cache: {name} is not a known dataset of image files")
            return
        if self._asked.kind == "device":
            self._load(parts, dataset)
            return
        report, *_ = [part.use_cache(self._asked, measured) for part in parts]
        self.choice = PlannedValue(report.kind, report.reason)
        if report.kind == "device":
            try:
                self._load(parts, dataset)
            except OptionError:
                # Only loading shows that the dataset does not fit: choose again without the device.
                self._use(dataset, dataclasses.replace(measured, device_room_bytes=None))

    def _measured(self, cost: SingleProcessCost | None) -> Measured:
        """Return the rates that a loader knows: of preparing samples from memory, and of training on them."""
        device, room = self._device, None
        if device is not None and device.type == "cuda" and not self._why_not_resident:
            room = device_room(device)
        if cost is None:
            return Measured(device_room_bytes=room)
        # The ranks of a machine share its CPUs and its disk, and each has a model.
        return Measured(
            prepare_samples_per_s=usable_cpus() * cost.batch_size / max(cost.load_cpu_s, 1e-9),
            step_samples_per_s=local_ranks() * cost.batch_size / max(cost.step_s, 1e-9),
            device_room_bytes=room,
        )

    def _load(self, parts: list[ImageDataset], dataset: object) -> None:
        if self._device is None:
            raise OptionError('cache="device" needs a device: set device="cuda" too')
        if self._why_not_resident:
            raise OptionError(
                f'cache="device" makes batches on the device, and {self._why_not_resident}: use cache="ram"'
            )
        inner, _ = innermost(dataset)
        if inner is not parts[0]:
            raise OptionError(
                'cache="device" takes one dataset, or a Subset of one: use cache="ram" for several'
            )
        self.resident = Resident.load(inner, self._device)
        size = format_size(self.resident.pixels.nbytes)
        self.choice = PlannedValue("device", f"{size} of pixels are on {self._device}")

    def on_device(self, dataset: Any) -> Any:
        """Return the dataset on the device, within the same subsets."""
        if is_plain_subset(dataset):
            return Subset(self.on_device(dataset.dataset), dataset.indices)
        return self.resident


def why_not_resident(view: LoaderView) -> str:
    """Return why a loader's batches cannot be made on its device, as a clause; "" if they can."""
    if not view.is_batched:
        return "this loader hands out samples (batch_size=None)"
    if view.collate_fn is not default_collate:
        return "this loader has a collate_fn, which would not be called"
    if not can_fill_batches(view.dataset):
        return "this dataset's __getitem__ would not be called"
    return ""


def own_choice(dataset: object) -> PlannedValue[str | None] | None:
    """Return the cache that is set on a dataset itself; None if there is none."""
    chosen = [report for report in _reports(dataset) if report.kind is not None or report.reason]
    return PlannedValue(chosen[0].kind, chosen[0].reason) if chosen else None


def can_be_cached(dataset: object) -> bool:
    """Return True if a dataset has no cache, but could have one."""
    reports = _reports(dataset)
    return can_cache() and bool(reports) and all(report.kind is None for report in reports)


def asks_for_device(dataset: object) -> bool:
    """Return whether the device cache is set on a dataset itself; only a loader can provide it."""
    return any(report.kind == "device" for report in _reports(dataset))


def refresh_caches(dataset: object) -> None:
    """Open the caches on the disk that are complete, and fill the others, before workers are forked."""
    for part in image_datasets_in(dataset):
        part.fill_cache()


def disk_states(dataset: object) -> list[str]:
    """Return the states of a dataset's caches on the disk, as sentences."""
    states = [f"Cache on the disk: {each.state}." for each in _reports(dataset) if each.kind == "disk"]
    return list(dict.fromkeys(states))


def limits_of(dataset: object) -> tuple[str, ...]:
    """Return the limits of this process that make reading a dataset slow, as sentences with the remedy."""
    parts = [part for part in image_datasets_in(dataset) if isinstance(part, KnowsLimits)]
    return tuple(dict.fromkeys(limit for part in parts for limit in part.limits))


def _reports(dataset: object) -> list[CacheReport]:
    return [part.cached for part in image_datasets_in(dataset)]
