"""Limit of this process's file descriptors, which psutil does not read on macOS, and how many are free."""

from __future__ import annotations

import sys

import psutil


def descriptor_limit() -> int | None:
    """Return the soft limit on file descriptors, `sys.maxsize` for none; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # does not exist on Windows

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def free_descriptors() -> int | None:
    """Return how many more files this process may open; None on Windows."""
    limit = descriptor_limit()
    return None if limit is None else limit - psutil.Process().num_fds()
