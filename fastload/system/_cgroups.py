"""The cgroups of this process, whose files hold the limits that a container sets.

Read by hand, because psutil does not read them. A limit may be set on any cgroup between the process's own
and the root of the mount, so all of them are returned. Versions 1 and 2 are told apart for each controller,
because machines mix them. References: cgroups(7), proc(5), the kernel's cgroup-v2 document.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastload.system._mounts import mounts

PROC_SELF = Path("/proc/self")


class Cgroup(NamedTuple):
    """The folder of a cgroup, and the version (1 or 2) of its file names."""

    folder: Path
    version: int


def cgroups_of(controller: str, proc_self: Path) -> Iterator[Cgroup]:
    """Yield the cgroup in which a controller ("cpu", "memory") has this process, then each one above it."""
    path, version = _path_in_hierarchy(controller, proc_self)
    wanted = "cgroup" if version == 1 else "cgroup2"
    for mount in mounts(proc_self) if path else ():
        if mount.file_system == wanted and (version == 2 or controller in mount.options.split(",")):
            # A container may see only its own cgroup, mounted as the top: cgroups above it cannot be read.
            top, relative = Path(mount.point), os.path.relpath(path, mount.root)
            folder = top if relative.split("/")[0] == ".." else top / relative
            yield Cgroup(folder, version)
            while folder != top:
                folder = folder.parent
                yield Cgroup(folder, version)
            return


def read_text(path: Path) -> str:
    """Return the text of a small file, "" if it cannot be read: a missing limit is no limit."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""


def _path_in_hierarchy(controller: str, proc_self: Path) -> tuple[str, int]:
    """Return the path of the cgroup within its hierarchy ("" for none), and the hierarchy's version."""
    unified = ""
    for line in read_text(proc_self / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path, 1
        if number == "0" and not controllers:
            unified = path
    return unified, 2
