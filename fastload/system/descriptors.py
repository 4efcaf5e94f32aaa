"""Open files of this process, and their limit (psutil knows no limit on macOS)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """File descriptors: the soft limit (`sys.maxsize` for none), and how many are in use."""

    soft: int
    used: int


def descriptor_limit() -> int | None:
    """Return the soft limit on file descriptors of this process, `sys.maxsize` for none; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # does not exist on Windows

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def open_files() -> OpenFiles | None:
    """Return the limit and the number of open files of this process; None on Windows."""
    if (soft := descriptor_limit()) is None:
        return None
    try:
        used = len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")) - 1
    except OSError:
        used = 0
    return OpenFiles(soft, used)
