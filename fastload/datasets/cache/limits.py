"""How much memory a cache may take, and when it has to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from fastload.system.memory import available_memory_bytes, memory_limit_bytes

# Left free whatever is cached: what a training grows by after its first batches (a handful of workers of
# some 150 MB each, batches on their way), and what the kernel needs to go on without stalling.
_LEAST_MARGIN_BYTES = 1 << 30
_MARGIN_SHARE = 0.1

# Of a tmpfs' size, left to others: whoever writes to a full one by a mapping is killed (SIGBUS).
_TMPFS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """What must stay free.

    Attributes:
        margin_bytes: Of memory; None: a tenth of all that this process could ever have, at least 1 GiB.
        available: Tells the memory that can be taken: the least of what the machine and its control groups
            leave, in bytes; None where the system does not say.
    """

    margin_bytes: int | None = None
    available: Callable[[], int | None] = field(default=available_memory_bytes)

    def margin(self) -> int:
        """What must stay free of the memory, in bytes."""
        if self.margin_bytes is not None:
            return self.margin_bytes
        return max(_LEAST_MARGIN_BYTES, int((memory_limit_bytes() or 0) * _MARGIN_SHARE))

    def room(self) -> int:
        """The memory that may be taken, in bytes; 0 where the system does not say."""
        return max(0, (self.available() or 0) - self.margin())


def tmpfs_room(folder: str) -> int:
    """What may be taken of the file system that a folder lies in, in bytes; 0 where there is none."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    kept = int(status.f_blocks * status.f_frsize * _TMPFS_SHARE)
    return max(0, status.f_bavail * status.f_frsize - kept)
