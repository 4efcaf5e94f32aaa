"""The number of files that this process has open, and its limits.

Not by psutil: it counts the descriptor with which it lists, and reads no limits on macOS.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """File descriptors: the soft and the hard limit (`sys.maxsize` for none), and how many are in use."""

    soft: int
    hard: int
    used: int


def open_files() -> OpenFiles | None:
    """Return the limits and the number of open files of this process; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # does not exist on Windows

    soft, hard = (
        sys.maxsize if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    try:
        used = len(os.listdir(folder)) - 1  # without the descriptor that lists
    except OSError:
        used = 0
    return OpenFiles(soft, hard, used)
