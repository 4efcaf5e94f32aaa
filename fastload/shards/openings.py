"""The shards that this process has open: as many as it may have files, whichever dataset they are of."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from fastload.errors import AccessError
from fastload.shards.files import TOO_MANY_OPEN

T = TypeVar("T")

# Where nothing says how many descriptors a process may have (Windows): well below its 512.
_FALLBACK_OPEN_SHARDS = 256
# The kernel allows 65,530 mappings.
_MOST_OPEN_SHARDS = 32_000


class Holder(Protocol):
    """What has shards open."""

    def let_go(self, number: int) -> None:
        """Lets go of a shard, if it is open."""


# By whether each takes a descriptor, oldest first.
_open: dict[bool, deque[tuple[weakref.ref[Holder], int]]] = {True: deque(), False: deque()}


def most_open(container: str) -> int:
    """How many shards of a container a process may keep open: half of its descriptors, if each takes one."""
    if not _takes_descriptor(container):
        return _MOST_OPEN_SHARDS
    try:
        import resource
    except ImportError:
        return _FALLBACK_OPEN_SHARDS  # Windows
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 2, 1) if soft != resource.RLIM_INFINITY else _MOST_OPEN_SHARDS


def opened(holder: Holder, number: int, container: str, open_it: Callable[[], T]) -> T:
    """Opens a shard, and closes the one that was opened first where there are too many.

    Args:
        holder: Who has it open.
        number: Of the shard.
        container: Of the shard.
        open_it: Opens it.

    Raises:
        AccessError: Too many files are open, and none of them is a shard that could be closed.
    """
    shards = _open[_takes_descriptor(container)]
    while len(shards) >= most_open(container):
        _close_oldest()
    while True:
        try:
            shard = open_it()
        except AccessError as error:
            cause = error.__cause__
            is_full = isinstance(cause, OSError) and cause.errno in TOO_MANY_OPEN
            if not (is_full and _close_oldest()):
                raise
        else:
            shards.append((weakref.ref(holder), number))
            return shard


def _takes_descriptor(container: str) -> bool:
    # From 3.13 on Python's mappings need none, and HDF5 shards are no more than mapped.
    return container != "hdf5" or sys.version_info < (3, 13)


def _close_oldest() -> bool:
    """Closes the shard that was opened first, of those that take a descriptor; says whether there was one."""
    try:
        reference, number = _open[True].popleft()
    except IndexError:
        return False
    if (holder := reference()) is not None:
        holder.let_go(number)
    return True
