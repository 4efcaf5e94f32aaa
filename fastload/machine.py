"""Readings of this machine: the CPUs and the memory that this process may use.

Containers limit both with control groups (cgroups), which neither `os.cpu_count()` nor the CPU
affinity nor `/proc/meminfo` shows. A limit may stand on any group from the process's own up to the
mount's root, so every one of them is read, and the tightest counts. Versions 1 and 2 are told apart
per controller, because machines mix them. References: cgroups(7), proc(5) and the kernel's
cgroup-v2 document.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC_SELF = Path("/proc/self")
_MEMINFO = Path("/proc/meminfo")


class _Group(NamedTuple):
    """A control group: its folder, and which version's file names it uses."""

    folder: Path
    version: int


def usable_cpus(proc_self: Path = _PROC_SELF) -> int:
    """Returns how many CPUs this process can keep busy, at least 1.

    That is the number of CPUs in its affinity mask, or its cgroup quota if that is less. A fraction
    of a CPU counts as one: 1.5 CPUs keep two workers busier than one.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = cpu_quota(proc_self)
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def cpu_quota(proc_self: Path = _PROC_SELF) -> float | None:
    """Returns the CPUs' worth of time that control groups allow, None where there is no limit.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
    """
    quotas = []
    for folder, version in _groups("cpu", proc_self):
        if version == 2:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
        else:
            quota = _text(folder / "cpu.cfs_quota_us")
            period = _text(folder / "cpu.cfs_period_us")
        # No limit is "max" in version 2 and -1 in version 1; the topmost group has no such file.
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def available_memory_bytes(proc_self: Path = _PROC_SELF, meminfo: Path = _MEMINFO) -> int | None:
    """Returns the memory that can be taken without swapping, None where the system does not say.

    That is Linux's `MemAvailable`, or what a control group's limit leaves if that is less. Files in
    the page cache count as available in both, since the kernel drops them when memory is asked for;
    what lies in tmpfs or shared memory does not.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
        meminfo: The file `/proc/meminfo`, or one like it.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(meminfo), re.MULTILINE)
    if found is None:
        return None
    available = int(found[1]) * 1024
    for group in _groups("memory", proc_self):
        left = _memory_left_bytes(group)
        if left is not None:
            available = min(available, left)
    return max(0, available)


def _memory_left_bytes(group: _Group) -> int | None:
    folder, version = group
    if version == 2:
        # Above memory.high the kernel slows a group down to a crawl: it is a limit as real as
        # memory.max.
        limits = [_text(folder / "memory.max"), _text(folder / "memory.high")]
        used = _text(folder / "memory.current")
        cached = ("inactive_file", "active_file")
    else:
        # No limit is a number near 2^63 here, which needs no telling apart: it is never the least.
        limits = [_text(folder / "memory.limit_in_bytes")]
        used = _text(folder / "memory.usage_in_bytes")
        cached = ("total_inactive_file", "total_active_file")
    limit = min((int(text) for text in limits if text.isdigit()), default=None)
    if limit is None or not used.isdigit():
        return None
    pairs = (line.split() for line in _text(folder / "memory.stat").splitlines())
    reclaimable = sum(int(value) for name, value in pairs if name in cached)
    return limit - int(used) + reclaimable


def _groups(controller: str, proc_self: Path) -> Iterator[_Group]:
    """Yields the group that `controller` has this process in, then each group above it."""
    path, version = _path_in_hierarchy(controller, proc_self)
    mount = _mount(controller if version == 1 else "", proc_self) if path else None
    if mount is None:
        return
    root, top = mount
    # A container may see its own group alone, mounted as the top: what lies above the mount is out
    # of reach, as is a group that the mount's root does not hold.
    inside = os.path.relpath(path, root)
    folder = top if inside.split("/")[0] == ".." else top / inside
    yield _Group(folder, version)
    while folder != top:
        folder = folder.parent
        yield _Group(folder, version)


def _path_in_hierarchy(controller: str, proc_self: Path) -> tuple[str, int]:
    """Returns the group's path within its hierarchy ("" for none), and the hierarchy's version."""
    unified = ""
    for line in _text(proc_self / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path, 1
        if number == "0" and not controllers:
            unified = path
    return unified, 2


def _mount(controller: str, proc_self: Path) -> tuple[str, Path] | None:
    """Returns the root and the mount point of a hierarchy, version 2's for the controller ""."""
    wanted = "cgroup" if controller else "cgroup2"
    for line in _text(proc_self / "mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind == wanted and (not controller or controller in options.split(",")):
            root, point = fields.split(" ")[3:5]
            return _unescape(root), Path(_unescape(point))
    return None


def _unescape(path: str) -> str:
    """Resolves the octal escapes that mountinfo has for spaces, tabs and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def _text(path: Path) -> str:
    """Returns a small file's text, "" where it cannot be read: a limit not told is none."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""
