"""The control groups (cgroups) of this process, whose files tell the limits that a container sets.

A limit may stand on any group from the process's own up to the mount's root, so every one of them is
given. Versions 1 and 2 are told apart per controller, because machines mix them. References: cgroups(7),
proc(5) and the kernel's cgroup-v2 document.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastload.system.mounts import mounts

PROC_SELF = Path("/proc/self")


class Group(NamedTuple):
    """A control group: its folder, and which version's file names it uses."""

    folder: Path
    version: int


def groups_of(controller: str, proc_self: Path) -> Iterator[Group]:
    """Yields the group that `controller` has this process in, then each group above it.

    Args:
        controller: "cpu" or "memory".
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
    """
    path, version = _path_in_hierarchy(controller, proc_self)
    mount = _mount(controller if version == 1 else "", proc_self) if path else None
    if mount is None:
        return
    root, top = mount
    # A container may see its own group alone, mounted as the top: what lies above the mount is out
    # of reach, as is a group that the mount's root does not hold.
    inside = os.path.relpath(path, root)
    folder = top if inside.split("/")[0] == ".." else top / inside
    yield Group(folder, version)
    while folder != top:
        folder = folder.parent
        yield Group(folder, version)


def text_of(path: Path) -> str:
    """Returns a small file's text, "" where it cannot be read: a limit not told is none."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""


def _path_in_hierarchy(controller: str, proc_self: Path) -> tuple[str, int]:
    """Returns the group's path within its hierarchy ("" for none), and the hierarchy's version."""
    unified = ""
    for line in text_of(proc_self / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path, 1
        if number == "0" and not controllers:
            unified = path
    return unified, 2


def _mount(controller: str, proc_self: Path) -> tuple[str, Path] | None:
    """Returns the root and the mount point of a hierarchy, version 2's for the controller ""."""
    wanted = "cgroup" if controller else "cgroup2"
    for mount in mounts(proc_self):
        if mount.file_system == wanted and (not controller or controller in mount.options.split(",")):
            return mount.root, Path(mount.point)
    return None
