"""Memory that a cache may take."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from fastload.system.memory import available_memory_bytes, memory_limit_bytes

# Memory that stays free: a training grows after its first batches (some workers of about 150 MB each, batches
# in flight), and the kernel stalls without free memory.
_LEAST_MARGIN_BYTES = 1 << 30
_MARGIN_SHARE = 0.1

# The share of a tmpfs that stays free for others.
_TMPFS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The memory that must stay free, and a function that returns the memory that is available, in bytes.

    Without `margin_bytes`, a tenth of all memory that this process could have must stay free, at least 1 GiB.
    """

    margin_bytes: int | None = None
    available: Callable[[], int] = available_memory_bytes

    def margin(self) -> int:
        """Return the memory that must stay free, in bytes."""
        return margin_of(memory_limit_bytes()) if self.margin_bytes is None else self.margin_bytes

    def room(self) -> int:
        """Return the memory that a cache may take now, in bytes."""
        return max(0, self.available() - self.margin())


def margin_of(total_bytes: int, least_bytes: int = _LEAST_MARGIN_BYTES) -> int:
    """Return how much of all memory must stay free, in bytes: a tenth, or `least_bytes` if that is more."""
    return max(least_bytes, int(total_bytes * _MARGIN_SHARE))


def tmpfs_room(folder: str) -> int:
    """Return the bytes that a cache may take of a folder's file system; 0 if there is no such folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return 0
    return max(0, usage.free - int(usage.total * _TMPFS_SHARE))
