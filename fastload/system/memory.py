"""The memory that this process may use, and the shared memory that has a name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fastload.system.cgroups import PROC_SELF, Group, groups_of, text_of

_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The file system in which named shared memory lies.

    Attributes:
        total_bytes: Its size: Docker makes it 64 MiB unless told otherwise (`--shm-size`).
        free_bytes: How much of it is free. What is written there takes the machine's memory as well.
    """

    total_bytes: int
    free_bytes: int


def available_memory_bytes(proc_self: Path = PROC_SELF, meminfo: Path = _MEMINFO) -> int | None:
    """Returns the memory that can be taken without swapping, None where the system does not say.

    That is Linux's `MemAvailable`, or what a control group's limit leaves if that is less. Files in
    the page cache count as available in both, since the kernel drops them when memory is asked for;
    what lies in tmpfs or shared memory does not.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
        meminfo: The file `/proc/meminfo`, or one like it.
    """
    available = _told("MemAvailable", meminfo)
    if available is None:
        return None
    for group in groups_of("memory", proc_self):
        left = _left_bytes(group)
        if left is not None:
            available = min(available, left)
    return max(0, available)


def memory_limit_bytes(proc_self: Path = PROC_SELF, meminfo: Path = _MEMINFO) -> int | None:
    """Returns the most memory that this process could ever have: the machine's, or a control group's limit.

    None where the system does not say.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
        meminfo: The file `/proc/meminfo`, or one like it.
    """
    limits = [_limit_bytes(group) for group in groups_of("memory", proc_self)]
    limits.append(_told("MemTotal", meminfo) or _physical_bytes())
    return min((limit for limit in limits if limit is not None), default=None)


def shared_memory(folder: str | os.PathLike[str] = "/dev/shm") -> SharedMemory | None:
    """Reads how large named shared memory is and how much is free; None where there is no such folder.

    Args:
        folder: Where it is mounted.
    """
    try:
        told = os.statvfs(folder)
    except (OSError, AttributeError):  # Windows has no statvfs.
        return None
    return SharedMemory(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)


def _told(name: str, meminfo: Path) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB$", text_of(meminfo), re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def _physical_bytes() -> int | None:
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    if not hasattr(os, "sysconf") or not all(name in os.sysconf_names for name in names):
        return None
    return os.sysconf(names[0]) * os.sysconf(names[1])


def _limit_bytes(group: Group) -> int | None:
    folder, version = group
    if version == 2:
        # Above memory.high the kernel slows a group down to a crawl: it is a limit as real as
        # memory.max.
        limits = [text_of(folder / "memory.max"), text_of(folder / "memory.high")]
    else:
        # No limit is a number near 2^63 here, which needs no telling apart: it is never the least.
        limits = [text_of(folder / "memory.limit_in_bytes")]
    return min((int(text) for text in limits if text.isdigit()), default=None)


def _left_bytes(group: Group) -> int | None:
    folder, version = group
    if version == 2:
        used, cached = "memory.current", ("inactive_file", "active_file")
    else:
        used, cached = "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
    limit, taken = _limit_bytes(group), text_of(folder / used)
    if limit is None or not taken.isdigit():
        return None
    pairs = (line.split() for line in text_of(folder / "memory.stat").splitlines())
    reclaimable = sum(int(value) for name, value in pairs if name in cached)
    return limit - int(taken) + reclaimable
