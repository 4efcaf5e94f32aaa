"""The file systems that are mounted here, as `/proc/self/mountinfo` lists them (proc(5))."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """One mounted file system.

    Attributes:
        number: The device's number, "major:minor", as the files beneath have it; major 0 where none is one.
        root: Which folder of the file system is mounted.
        point: Where it is mounted.
        file_system: Its type: "ext4", "cgroup2", "fuse.sshfs".
        source: What is mounted: a device, "server:/folder", or any word.
        options: The file system's own options, parted by commas.
    """

    number: str
    root: str
    point: str
    file_system: str
    source: str
    options: str


def mounts(proc_self: Path = Path("/proc/self")) -> list[Mount]:
    """Lists what is mounted, in the order of mounting; nothing where the system does not tell.

    Args:
        proc_self: The folder `/proc/self`, or one like it.
    """
    try:
        text = (proc_self / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        place, _, rest = line.partition(" - ")
        number, root, point = place.split(" ")[2:5]
        file_system, _, rest = rest.partition(" ")
        source, _, options = rest.partition(" ")
        found.append(Mount(number, _plain(root), _plain(point), file_system, _plain(source), _plain(options)))
    return found


def _plain(text: str) -> str:
    """Resolves the octal escapes that stand for spaces, tabs, line ends and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
