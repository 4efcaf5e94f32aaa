"""What this machine allows, where that is, or soon would be, in the way."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.loader.diagnosis.measurements import Limits, Measurements, Setting
from fastload.system.units import size

SMALL_SHARED_MEMORY = 64 << 20
"""What Docker gives a container unless told otherwise."""

FEW_OPEN_FILES = 4096
"""Below this a training comes to the end of its descriptors: torch's file_descriptor strategy takes one
for each tensor on its way, h5py and LMDB one for each shard and worker (pytorch 973). Distributions give
1024."""


def limits_of(measured: Measurements) -> Iterator[str]:
    """A sentence for each limit that the training meets, or soon would."""
    limits, times, setting = measured.limits, measured.times, measured.setting
    workers = times.num_workers
    kept_bytes = workers * (times.prefetch_factor or 2) * times.batch_bytes
    yield from machine_limits(setting, limits, kept_bytes)
    if (
        limits is not None
        and limits.available_bytes is not None
        and kept_bytes > 0.5 * limits.available_bytes
    ):
        yield (
            f"Memory: {size(limits.available_bytes)} are available, and {size(kept_bytes)} of "
            "batches are on their way."
        )
    if workers > 2 * setting.cpus:
        yield f"{workers} workers share {setting.cpus} CPUs."


def machine_limits(setting: Setting, limits: Limits | None, kept_bytes: int = 0) -> Iterator[str]:
    """A sentence for each limit of the machine that is low.

    Args:
        setting: Where the training runs.
        limits: What the machine allows; None: nobody looked.
        kept_bytes: Of the batches that are on their way at once.
    """
    if setting.usable_cpus < setting.cpus:
        yield (
            f"CPU quota: {setting.usable_cpus:g} CPUs' worth of time on {setting.cpus} CPUs. Programs that "
            "count CPUs start too many threads and workers; os.cpu_count() does not know of it."
        )
    if limits is None:
        return
    if limits.open_files is not None and limits.open_files < FEW_OPEN_FILES:
        yield (
            f"ulimit -n: {limits.open_files} open files. torch's loader takes one for each tensor on its "
            "way, "
            "and shards one each a worker: 'ulimit -n 65536' before the training (Docker: --ulimit "
            "nofile=65536)."
        )
    shared = limits.shared_memory_bytes
    if shared is not None and (kept_bytes > 0.5 * shared or shared <= SMALL_SHARED_MEMORY):
        kept = f", and {size(kept_bytes)} of batches are on their way" if kept_bytes else ""
        way = (
            "fastload's loader does not use it."
            if setting.is_fastload
            else "torch's loader dies of a bus error where it is full: docker run --shm-size=8g, or "
            "fastload's DataLoader, which does not use it."
        )
        yield f"/dev/shm: {size(shared)}{kept}. {way}"
