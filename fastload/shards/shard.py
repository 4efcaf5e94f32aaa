"""Readers and writers of shards by the container's name, and the limit on open shards.

The limit applies to the process, over all datasets. h5py and lmdb are imported on first use: a dataset needs
only one of them.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from fastload.errors import AccessError
from fastload.shards.container import TOO_MANY_OPEN, ShardEntry, ShardReader, ShardWriter
from fastload.shards.schema import Column
from fastload.system.proc import descriptor_limit, raise_descriptor_limit

# On Windows: half of the C library's 512 files, a limit that Python cannot read.
_FALLBACK_OPEN_SHARDS = 256
# Half of the 65,530 mappings that Linux allows (vm.max_map_count).
_MOST_OPEN_SHARDS = 32_000

# A weak reference to the method of each open shard's reader that closes it, and the shard's number; oldest
# first.
_open: deque[tuple[weakref.WeakMethod[Callable[[int], None]], int]] = deque()


def writer_for(container: str) -> ShardWriter:
    """Return the writer of the container `hdf5` or `lmdb`."""
    if container == "hdf5":
        from fastload.shards import hdf5

        return hdf5.WRITER
    from fastload.shards import lmdb

    return lmdb.WRITER


def open_shard(container: str, path: Path, columns: Sequence[Column], entry: ShardEntry) -> ShardReader:
    """Open a shard that must hold these columns; raise AccessError or DamageError if it cannot be read."""
    if container == "hdf5":
        from fastload.shards.hdf5 import Hdf5Reader

        return Hdf5Reader(path, columns, entry)
    from fastload.shards.lmdb import LmdbReader

    return LmdbReader(path, columns, entry)


def open_within_limit(
    close: Callable[[int], None],
    number: int,
    container: str,
    path: Path,
    columns: Sequence[Column],
    entry: ShardEntry,
) -> ShardReader:
    """Open a shard, which `close(number)` closes; at the limit, first close the oldest one of any reader."""
    while not can_all_be_open(container, len(_open) + 1):
        _close_oldest()
    while True:
        try:
            shard = open_shard(container, path, columns, entry)
        except AccessError as error:
            cause = error.__cause__
            is_full = isinstance(cause, OSError) and cause.errno in TOO_MANY_OPEN
            if not (is_full and _close_oldest()):
                raise
        else:
            _open.append((weakref.WeakMethod(close), number))
            return shard


def can_all_be_open(container: str, count: int) -> bool:
    """Return True if so many shards can be open at once; the soft limit on descriptors is raised for them."""
    if count > max_open_shards(container):
        raise_descriptor_limit(2 * _MOST_OPEN_SHARDS)
    return count <= max_open_shards(container)


def max_open_shards(container: str) -> int:
    """Return how many shards of a container may be open: half of the descriptors, if each takes one."""
    limit = sys.maxsize if container == "hdf5" else descriptor_limit()  # HDF5 shards are only mapped
    return _FALLBACK_OPEN_SHARDS if limit is None else max(1, min(limit // 2, _MOST_OPEN_SHARDS))


def _close_oldest() -> bool:
    """Close the shard that was opened first, and return True if there was one."""
    try:
        reference, number = _open.popleft()
    except IndexError:
        return False
    if (close := reference()) is not None:
        close(number)
    return True
