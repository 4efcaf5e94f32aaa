"""Available memory and its limit, what a cache may take of it, and reuse of freed memory."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import psutil

from fastload.system.proc import PROC_SELF, Cgroup, cgroups_of, read_text

# glibc maps blocks above a threshold, and returns them to the kernel when they are freed. The threshold rises
# to the size of the largest mapped block that was freed, at most 32 MiB; twice as much free memory is kept
# (mallopt(3)).
_LARGEST_KEPT_BYTES = (32 << 20) - (64 << 10)

# The share of memory, or of a tmpfs, that caches leave free for others, and the least memory that they do:
# training takes more after its first batches (several workers of about 150 MB each, batches in flight), and
# the kernel stalls without free memory.
_FREE_SHARE = 0.1
_LEAST_MARGIN_BYTES = 1 << 30

Room: TypeAlias = Callable[[], int]
"""Returns the memory that a cache may take now, in bytes."""


class SharedMemory(NamedTuple):
    """Size and free space of the file system for named shared memory, which Docker limits to 64 MiB."""

    total_bytes: int
    free_bytes: int


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc retain freed memory for the next image; other C libraries are not affected.

    Called by code that loads images, not on import of fastload: the doctor, which imports it too, must not
    change the speed of a training run. Without room for the block (`ulimit -v`), nothing changes.
    """
    with contextlib.suppress(MemoryError):
        np.empty(_LARGEST_KEPT_BYTES, np.uint8)  # never touched, and freed at once


def available_memory_bytes(proc_self: Path = PROC_SELF, machine_bytes: int | None = None) -> int:
    """Return the memory that can be taken without swapping: the machine's, or less if a cgroup allows less.

    The page cache counts as available, because the kernel drops it when memory is needed; tmpfs and
    shared memory do not. `machine_bytes` replaces the machine's own available memory.
    """
    available = int(psutil.virtual_memory().available) if machine_bytes is None else machine_bytes
    left = [_left_bytes(cgroup) for cgroup in cgroups_of("memory", proc_self)]
    return max(0, min([available, *(each for each in left if each is not None)]))


def memory_limit_bytes(proc_self: Path = PROC_SELF, machine_bytes: int | None = None) -> int:
    """Return the most memory that this process can ever have: the machine's, or the cgroups' limit."""
    total = int(psutil.virtual_memory().total) if machine_bytes is None else machine_bytes
    limits = [_limit_bytes(cgroup) for cgroup in cgroups_of("memory", proc_self)]
    return min([total, *(limit for limit in limits if limit is not None)])


def shared_memory(folder: str | os.PathLike[str] = "/dev/shm") -> SharedMemory | None:
    """Return size and free space of named shared memory; None if there is no such folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return SharedMemory(usage.total, usage.free)


def margin_of(total_bytes: int, least_bytes: int = _LEAST_MARGIN_BYTES) -> int:
    """Return how many of the total bytes must stay free: a tenth, or `least_bytes` if that is more."""
    return max(least_bytes, int(total_bytes * _FREE_SHARE))


def memory_margin() -> int:
    """Return how many bytes of this process's memory limit must stay free."""
    return margin_of(memory_limit_bytes())


def memory_room(available: Callable[[], int] = available_memory_bytes) -> int:
    """Return the memory that a cache may take now, in bytes."""
    return max(0, available() - memory_margin())


def tmpfs_room(folder: str) -> int:
    """Return how many bytes of a folder's file system a cache may take; 0 if there is no such folder."""
    usage = shared_memory(folder)
    return 0 if usage is None else max(0, usage.free_bytes - margin_of(usage.total_bytes, 0))


def _limit_bytes(cgroup: Cgroup) -> int | None:
    folder, version = cgroup
    # Above memory.high the kernel throttles a cgroup heavily: it is as real a limit as memory.max. Version 1
    # states a number near 2^63 for no limit, which is never the smallest.
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = [read_text(folder / name) for name in names]
    return min((int(text) for text in limits if text.isdigit()), default=None)


def _left_bytes(cgroup: Cgroup) -> int | None:
    folder, version = cgroup
    if version == 2:
        used, cached = "memory.current", ("inactive_file", "active_file")
    else:
        used, cached = "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
    limit, taken = _limit_bytes(cgroup), read_text(folder / used)
    if limit is None or not taken.isdigit():
        return None
    pairs = (line.split() for line in read_text(folder / "memory.stat").splitlines())
    return limit - int(taken) + sum(int(value) for name, value in pairs if name in cached)
