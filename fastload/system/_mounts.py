"""Mounted file systems, as listed in `/proc/self/mountinfo` (proc(5)).

Not by psutil, which omits the mounted root (needed for cgroups) and the device's number (for disks).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """One mounted file system."""

    number: str  # of the device, "major:minor"; major 0 for file systems without a device
    root: str  # the folder of the file system that is mounted
    point: str  # the folder where it is mounted
    file_system: str  # its type: "ext4", "cgroup2", "fuse.sshfs"
    source: str  # a device, "server:/folder", or any word
    options: str  # the file system's own, separated by commas


def mounts(proc_self: Path = Path("/proc/self")) -> list[Mount]:
    """Return what is mounted, in the order of mounting; [] on systems without mountinfo."""
    try:
        text = (proc_self / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        place, _, rest = line.partition(" - ")
        fields = [*place.split(" ")[2:5], *rest.split(" ", 2)]
        found.append(Mount(*map(_unescaped, fields)))
    return found


def _unescaped(text: str) -> str:
    """Decode the octal escapes of spaces, tabs, newlines and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
