"""What `choose_cache` asks for, measured: the disk, the memory, and what preparing samples takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastload.datasets.cache.attaching import Extent
from fastload.datasets.cache.choose import CacheReadings, Form
from fastload.datasets.cache.folder import DEFAULT_PARENT
from fastload.datasets.cache.limits import Limits, tmpfs_room
from fastload.datasets.cache.opening import can_keep, can_share_memory
from fastload.datasets.cache.options import Cache
from fastload.errors import OptionError
from fastload.system.disks import disk_of
from fastload.system.read_speed import Reading, Speed, measure_reading

# A dataset is opened in the blink that this leaves it; a loader that knows more hands it over.
_MOST_S = 1.0
_MOST_BYTES = 128 << 20

# Beyond any cache of a core: 10 ms.
_COPIED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """What somebody has measured already, such as a loader; None is measured here, or not known.

    Attributes:
        reading: The disk's speeds, for this dataset's files.
        prepare_samples_per_s: P: from encoded bytes in memory to a batch, by all workers.
        prepare_decoded_samples_per_s: The same from pixels in memory.
        step_samples_per_s: G: what the model learns from.
        device_room_bytes: Memory of the device that a dataset may take; None where none is to hold it.
    """

    reading: Reading | None = None
    prepare_samples_per_s: float | None = None
    prepare_decoded_samples_per_s: float | None = None
    step_samples_per_s: float | None = None
    device_room_bytes: int | None = None


def gather(
    extent: Extent, cache: Cache, measured: Measured, prepare: Callable[[Form], float | None], limits: Limits
) -> CacheReadings:
    """Gathers readings, measuring what is not known yet: about a second.

    Args:
        extent: Of the dataset.
        cache: What was asked for.
        measured: What is known.
        prepare: Measures how many samples this machine prepares in a second, of what is stored or of pixels.
        limits: What must stay free of the memory.
    """
    samples = max(1, extent.samples)
    is_in_memory = disk_of(extent.paths[0]).kind == "memory" if extent.paths else False
    # Before anything is decoded: what that reads would lie in the page cache.
    reading = measured.reading or _measured(extent)
    disk = reading.cold_random if os.cpu_count() == 1 else _faster(reading.cold_random, reading.cold_parallel)
    rate = measured.prepare_samples_per_s or prepare("encoded") or float("inf")
    pixels = measured.prepare_decoded_samples_per_s
    if pixels is None and measured.step_samples_per_s is not None and extent.can_be_decoded:
        pixels = prepare("decoded")
    room = limits.room()
    folder = os.path.expanduser(os.fspath(cache.folder or DEFAULT_PARENT))
    in_tmpfs = tmpfs_room(folder) if can_keep() else 0
    return CacheReadings(
        samples=samples,
        sample_bytes=extent.size_bytes("encoded") / samples,
        decoded_bytes=extent.size_bytes("decoded") / samples,
        disk_samples_per_s=disk.bytes_per_s / max(1.0, extent.stored_bytes / samples),
        memory_bytes_per_s=_memory_bytes_per_s(),
        prepare_samples_per_s=rate,
        prepare_decoded_samples_per_s=pixels,
        step_samples_per_s=measured.step_samples_per_s,
        room_bytes=room if can_share_memory() and cache.folder is None else 0,
        tmpfs_room_bytes=min(room, in_tmpfs),
        page_room_bytes=room,
        is_in_memory=is_in_memory,
        device_room_bytes=measured.device_room_bytes,
    )


def _measured(extent: Extent) -> Reading:
    """The disk's speeds: of whole files, or of stretches of shards as long as a sample is."""
    is_files = len(extent.paths) >= extent.samples
    mean = max(1, extent.stored_bytes // max(1, extent.samples))
    try:
        return measure_reading(
            extent.paths, None if is_files else mean, most_s=_MOST_S, most_bytes=_MOST_BYTES
        )
    except OptionError:
        nothing = Speed(0.0, 0.0)
        return Reading(mean, nothing, nothing, nothing, nothing, 0.0, False, "", 0.0, 0)


def _memory_bytes_per_s() -> float:
    """How fast one process copies memory: of the disk's own page cache, only the disk could tell."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros(_COPIED_BYTES, np.uint8)
    began = time.perf_counter()
    target[:] = source
    return _COPIED_BYTES / (time.perf_counter() - began)


def _faster(one: Speed, other: Speed) -> Speed:
    return max(one, other, key=lambda speed: speed.bytes_per_s)
