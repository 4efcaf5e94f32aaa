"""Measurements for `choose_cache`: the disk, the memory, and the preparing of samples."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastload.datasets.cache._attaching import Extent
from fastload.datasets.cache._choose import CacheReadings, Form
from fastload.datasets.cache._limits import CacheLimits, tmpfs_room
from fastload.datasets.cache.opening import DEFAULT_PARENT, can_cache
from fastload.datasets.cache.options import Cache
from fastload.errors import OptionError
from fastload.system.disks import disk_of
from fastload.system.read_speed import measure_reading

# Opening a dataset may take about a second.
_MOST_S = 1.0
_MOST_BYTES = 128 << 20

# Larger than the caches of a core: copying takes 10 ms.
_COPIED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """Rates that a loader has measured already; None is measured here, or stays unknown."""

    prepare_samples_per_s: float | None = None  # P, by all workers
    step_samples_per_s: float | None = None  # G
    device_room_bytes: int | None = None  # for the dataset; None: it cannot be there


def gather(
    extent: Extent,
    cache: Cache,
    measured: Measured,
    prepare: Callable[[Form], float | None],
    limits: CacheLimits,
) -> CacheReadings:
    """Return readings for `choose_cache`, measuring what is not known yet, in about a second.

    `prepare` measures how many samples this machine prepares in a second, from encoded bytes or from pixels.
    """
    samples = max(1, extent.samples)
    # First of all, because preparing samples leaves them in the page cache.
    disk_bytes_per_s = _disk_bytes_per_s(extent)
    may_cache_pixels = measured.step_samples_per_s is not None and extent.can_be_decoded
    room = limits.room() if can_cache() else 0
    folder = os.path.expanduser(os.fspath(cache.folder or DEFAULT_PARENT))
    return CacheReadings(
        samples=samples,
        sample_bytes=extent.size_bytes("encoded") / samples,
        decoded_bytes=extent.size_bytes("decoded") / samples,
        disk_samples_per_s=disk_bytes_per_s / max(1.0, extent.stored_bytes / samples),
        memory_bytes_per_s=_memory_bytes_per_s(),
        prepare_decoded_samples_per_s=prepare("decoded") if may_cache_pixels else None,
        prepare_samples_per_s=measured.prepare_samples_per_s or prepare("encoded") or float("inf"),
        step_samples_per_s=measured.step_samples_per_s,
        room_bytes=room if cache.folder is None else 0,
        tmpfs_room_bytes=min(room, tmpfs_room(folder)),
        is_in_memory=bool(extent.paths) and disk_of(extent.paths[0]).kind == "memory",
        device_room_bytes=measured.device_room_bytes,
    )


def _disk_bytes_per_s(extent: Extent) -> float:
    """Measure reading whole files, or parts of shards as large as a sample; 0 if nothing can be read."""
    are_files = len(extent.paths) >= extent.samples
    record_bytes = None if are_files else max(1, extent.stored_bytes // max(1, extent.samples))
    try:
        reading = measure_reading(extent.paths, record_bytes, most_s=_MOST_S, most_bytes=_MOST_BYTES)
    except OptionError:
        return 0.0
    parallel = 0.0 if os.cpu_count() == 1 else reading.cold_parallel.bytes_per_s
    return max(reading.cold_random.bytes_per_s, parallel)


def _memory_bytes_per_s() -> float:
    """Measure how fast one process copies memory."""
    source, target = np.ones(_COPIED_BYTES, np.uint8), np.zeros(_COPIED_BYTES, np.uint8)
    began = time.perf_counter()
    target[:] = source
    return _COPIED_BYTES / (time.perf_counter() - began)
