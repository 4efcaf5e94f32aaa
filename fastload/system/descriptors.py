"""Limit of this process's file descriptors, which psutil does not read on macOS, and how many are free."""

from __future__ import annotations

import os
import sys


def descriptor_limit() -> int | None:
    """Return the soft limit on file descriptors, `sys.maxsize` for none; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # does not exist on Windows

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


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
