"""Memory that a cache may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fastload.system.memory import available_memory_bytes, memory_limit_bytes, shared_memory

# Returns the memory that a cache may take now, in bytes.
Room: TypeAlias = Callable[[], int]

# The share of memory, or of a tmpfs, that stays free for others, and the least memory that does: training
# takes more memory after its first batches (several workers of about 150 MB each, batches in flight), and the
# kernel stalls without free memory.
_FREE_SHARE = 0.1
_LEAST_MARGIN_BYTES = 1 << 30


def margin_of(total_bytes: int, least_bytes: int = _LEAST_MARGIN_BYTES) -> int:
    """Return how many of the total bytes must stay free: a tenth, or `least_bytes` if that is more."""
    return max(least_bytes, int(total_bytes * _FREE_SHARE))


def memory_margin() -> int:
    """Return how many bytes of this process's memory limit must stay free."""
    return margin_of(memory_limit_bytes())


def memory_room(available: Callable[[], int] = available_memory_bytes) -> int:
    """Return the memory that a cache may take now, in bytes."""
    return max(0, available() - memory_margin())


def tmpfs_room(folder: str) -> int:
    """Return how many bytes of a folder's file system a cache may take; 0 if there is no such folder."""
    usage = shared_memory(folder)
    return 0 if usage is None else max(0, usage.free_bytes - margin_of(usage.total_bytes, 0))
