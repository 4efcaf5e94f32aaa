"""Measurements for `choose_cache`: disk, memory, and the preparation of samples."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastload.contracts import FillsBatches
from fastload.datasets.batch import HostMemory
from fastload.datasets.cache._choose import CacheReadings, CacheReport, Form
from fastload.datasets.cache._limits import Room, tmpfs_room
from fastload.datasets.cache.opening import can_cache
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.originals import Originals
from fastload.errors import DamageError, DecodeError, OptionError, SourceError
from fastload.sources.protocol import evenly_spaced
from fastload.system.cpus import usable_cpus
from fastload.system.disks import disk_of
from fastload.system.random_states import preserved_random_states
from fastload.system.read_speed import measure_reading
from fastload.transforms.draws import EpochDraws

# Limits of the disk measurement: opening a dataset may take about a second.
_MOST_S = 1.0
_MOST_BYTES = 128 << 20

# Larger than the caches of a core; copied in 10 ms.
_COPIED_BYTES = 64 << 20

# Samples prepared to measure how fast that is: about 50 ms of photos.
_PREPARED = 32


class PreparesSamples(FillsBatches, Protocol):
    """A dataset whose speed is measured, through a copy with another cache."""

    reducing_gap: float | None

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> object: ...

    def use_cache(self, cache: Cache, *, room: Room) -> CacheReport:
        """See `ImageDataset`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Rates that a loader has measured already. Those that are None are measured here, or remain unknown."""

    prepare_samples_per_s: float | None = None  # P, by all workers
    step_samples_per_s: float | None = None  # G
    device_room_bytes: int | None = None  # for the dataset; None if the device cannot hold it


def gather(
    dataset: PreparesSamples, originals: Originals, cache: Cache, measured: Measured, room: Room
) -> CacheReadings:
    """Return readings for `choose_cache`, measuring what is not known yet, in about a second."""
    samples, paths = max(1, originals.samples), originals.paths()
    # Measured first, because preparing samples leaves them in the page cache.
    disk_bytes_per_s = _disk_bytes_per_s(originals, paths)
    # Only a loader knows whether caching pixels could pay.
    may_cache_pixels = measured.step_samples_per_s is not None and originals.can_be_decoded
    room_bytes = room() if can_cache() else 0
    if cache.folder is not None:
        room_bytes = min(room_bytes, tmpfs_room(os.path.expanduser(cache.folder)))
    prepare = measured.prepare_samples_per_s or _prepared_per_s(dataset, "encoded", room)
    form: Form = "encoded" if measured == Measured() else "decoded"
    return CacheReadings(
        samples=samples,
        sample_bytes=originals.size_bytes("encoded") / samples,
        decoded_bytes=originals.size_bytes(form) / samples,
        disk_samples_per_s=disk_bytes_per_s / max(1.0, originals.stored_bytes / samples),
        memory_bytes_per_s=_memory_bytes_per_s(),
        prepare_decoded_samples_per_s=_prepared_per_s(dataset, "decoded", room) if may_cache_pixels else None,
        prepare_samples_per_s=prepare or float("inf"),
        step_samples_per_s=measured.step_samples_per_s,
        room_bytes=room_bytes,
        has_folder=cache.folder is not None,
        is_in_memory=bool(paths) and disk_of(paths[0]).kind == "memory",
        device_room_bytes=measured.device_room_bytes,
    )


def _disk_bytes_per_s(originals: Originals, paths: list[str]) -> float:
    """Measure reads of files, or of parts of shards as large as a sample; 0 if nothing can be read."""
    size_bytes = originals.stored_bytes // max(1, originals.samples)
    record_bytes = None if originals.records is None else max(1, size_bytes)
    try:
        return measure_reading(paths, record_bytes, most_s=_MOST_S, most_bytes=_MOST_BYTES).bytes_per_s
    except OptionError:
        return 0.0


def _memory_bytes_per_s() -> float:
    source, target = np.ones(_COPIED_BYTES, np.uint8), np.zeros(_COPIED_BYTES, np.uint8)
    began = time.perf_counter()
    target[:] = source
    return _COPIED_BYTES / (time.perf_counter() - began)


def _prepared_per_s(dataset: PreparesSamples, form: Form, room: Room) -> float | None:
    """Measure how many samples all usable CPUs prepare in a second, from bytes or pixels in memory."""
    probe = copy.copy(dataset)
    if form == "decoded":
        if dataset.reducing_gap is not None or not can_cache():
            return None
        if probe.use_cache(Cache("ram", form=form), room=room).kind is None:
            return None
    indices = evenly_spaced(len(dataset), _PREPARED)
    try:
        with preserved_random_states(), EpochDraws(0):
            for _ in range(2):  # the first time, samples are read from the disk
                began = time.perf_counter()
                if probe.fetch_into(indices, HostMemory()) is NotImplemented:
                    probe.__getitems__(indices)
            return len(indices) / (time.perf_counter() - began) * usable_cpus()
    except (SourceError, DamageError, DecodeError):
        return None  # training will raise the error, which names the sample
