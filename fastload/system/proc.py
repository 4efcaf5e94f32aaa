"""Mounted file systems, cgroups and open files of this process, from /proc/self (proc(5), cgroups(7)).

psutil does not read cgroups, omits the root of a mount, which is needed to find them, and does not read the
limit of open files on macOS.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC_SELF = Path("/proc/self")


class Mount(NamedTuple):
    """A mounted file system."""

    root: str  # the folder of the file system that is mounted
    point: str  # the folder where it is mounted
    file_system: str  # its type: "ext4", "cgroup2", "fuse.sshfs"
    options: str  # the file system's own, separated by commas


class Cgroup(NamedTuple):
    """The folder of a cgroup, and the version (1 or 2) of its file names."""

    folder: Path
    version: int


def mounts(proc_self: Path = PROC_SELF) -> list[Mount]:
    """Return the mounted file systems in the order of mounting; [] on systems without mountinfo."""
    found = []
    for line in read_text(proc_self / "mountinfo").splitlines():
        place, _, rest = line.partition(" - ")
        root, point = place.split(" ")[3:5]
        file_system, _, options = rest.split(" ", 2)
        found.append(Mount(*map(_unescaped, (root, point, file_system, options))))
    return found


def cgroups_of(controller: str, proc_self: Path) -> Iterator[Cgroup]:
    """Yield this process's cgroup of a controller ("cpu", "memory"), then its ancestors from the bottom up.

    Each of them may set a limit. A machine may mix the two versions of cgroups, one for each controller.
    """
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


def descriptor_limit() -> int | None:
    """Return the soft limit on file descriptors, `sys.maxsize` for none; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # does not exist on Windows

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


# OPEN_MAX, above which setrlimit fails on macOS, whatever the hard limit (its manual page).
_MOST_ON_MACOS = 10_240


def raise_descriptor_limit(wanted: int) -> None:
    """Raise the soft limit on file descriptors to `wanted`, as far as the hard limit allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if sys.platform == "darwin":
        allowed = min(allowed, _MOST_ON_MACOS)
    if resource.RLIM_INFINITY != soft < allowed:
        with contextlib.suppress(OSError, ValueError):  # where a sandbox forbids it
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def free_descriptors() -> int | None:
    """Return how many more files this process may open; None on Windows."""
    if (limit := descriptor_limit()) is None:
        return None
    try:
        # Listing takes one itself.
        used = len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")) - 1
    except OSError:
        used = 0
    return limit - used


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


def _unescaped(text: str) -> str:
    """Decode the octal escapes of spaces, tabs, newlines and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
