"""How many files this process may have open, and has."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The limits of a process's file descriptors. `sys.maxsize` means that there is none.

    Attributes:
        soft: How many it may have: opening one more fails.
        hard: How far it may raise that by itself.
        used: How many it has now; 0 where the system does not tell.
    """

    soft: int
    hard: int
    used: int


def open_files() -> OpenFiles | None:
    """Reads how many files this process may have open, and has; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource  # Not on Windows.

    soft, hard = (
        sys.maxsize if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    try:
        used = len(os.listdir(folder)) - 1  # Without the one that lists.
    except OSError:
        used = 0
    return OpenFiles(soft, hard, used)
