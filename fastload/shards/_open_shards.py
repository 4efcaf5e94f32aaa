"""Limit on the shards that this process keeps open, over all datasets."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fastload.errors import AccessError
from fastload.shards.container import ShardReader
from fastload.shards.files import TOO_MANY_OPEN

_FALLBACK_OPEN_SHARDS = 256  # if the limit of descriptors is unknown
# The kernel allows 65,530 mappings.
_MOST_OPEN_SHARDS = 32_000


class ShardOwner(Protocol):
    """Owner of open shards, which it drops on request."""

    def close_shard(self, number: int) -> None:
        """Drop a shard if it is open."""


_OpenShards = deque[tuple[weakref.ref[ShardOwner], int]]

# Keyed by whether each shard takes a descriptor, oldest first.
_open: dict[bool, _OpenShards] = {True: deque(), False: deque()}


def max_open_shards(container: str) -> int:
    """Return how many shards of a container may be open: half of the descriptors, if each takes one."""
    if not _takes_descriptor(container):
        return _MOST_OPEN_SHARDS
    try:
        import resource
    except ImportError:  # Windows, whose limit of 512 is not known to Python
        return _FALLBACK_OPEN_SHARDS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 2, 1) if soft != resource.RLIM_INFINITY else _MOST_OPEN_SHARDS


def open_within_limit(
    owner: ShardOwner, number: int, container: str, open_shard: Callable[[], ShardReader]
) -> ShardReader:
    """Open a shard, closing the oldest ones while there are too many."""
    shards = _open[_takes_descriptor(container)]
    while len(shards) >= max_open_shards(container):
        _close_oldest(shards)
    while True:
        try:
            shard = open_shard()
        except AccessError as error:
            cause = error.__cause__
            is_full = isinstance(cause, OSError) and cause.errno in TOO_MANY_OPEN
            if not (is_full and _close_oldest(_open[True])):
                raise
        else:
            shards.append((weakref.ref(owner), number))
            return shard


def _takes_descriptor(container: str) -> bool:
    # From Python 3.13 on a mapping needs no descriptor, and HDF5 shards are only mapped.
    return container != "hdf5" or sys.version_info < (3, 13)


def _close_oldest(shards: _OpenShards) -> bool:
    """Close the shard that was opened first, and return whether there was one."""
    try:
        reference, number = shards.popleft()
    except IndexError:
        return False
    if (owner := reference()) is not None:
        owner.close_shard(number)
    return True
