"""The byte ranges that a disk measurement reads: small files, and records at random places in shards."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

# Without a known record size, files up to this size count as one record, larger ones as shards of records of
# 128 KiB: the largest photos of cameras are smaller, packed shards are larger.
_LARGEST_RECORD = 16 << 20
_RECORD_BYTES = 128 << 10

_MOST_RANGES = 4096
_MOST_SHARDS = 32  # each stays open while it is measured

# Each random record has a window of its own, because the kernel caches pages in runs of up to this size.
_WINDOW_BYTES = 2 << 20

# Files whose size is read even if time is short.
_FEWEST_FILES = 16


class ReadRange(NamedTuple):
    """A part of a file; `is_whole` for a small file, which is opened and closed for each reading."""

    path: str
    offset: int
    size: int
    is_whole: bool = False


def choose_ranges(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None,
    seed: int,
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[list[ReadRange], list[str]]:
    """Draw up to 4,096 ranges in random order, the same for the same files and seed.

    Files of more than twice `record_bytes` are shards of such records. `is_late` ends the reading of sizes.
    Returns the ranges, and a sentence for each file that was left out.
    """
    rng = random.Random(seed)
    largest = _LARGEST_RECORD if record_bytes is None else 2 * record_bytes
    unread: list[str] = []
    ranges: list[ReadRange] = []
    shards: list[tuple[str, int]] = []
    for number, index in enumerate(rng.sample(range(len(paths)), min(len(paths), _MOST_RANGES))):
        if number >= _FEWEST_FILES and is_late():
            break
        path = os.fspath(paths[index])
        size = _size(path, unread)
        if size > largest:
            shards.append((path, size))
        elif size:
            ranges.append(ReadRange(path, 0, size, is_whole=True))
    shards = rng.sample(shards, min(len(shards), _MOST_SHARDS))
    for path, size in shards:
        ranges += _records(path, size, record_bytes or _RECORD_BYTES, _MOST_RANGES // len(shards), rng)
    rng.shuffle(ranges)
    return ranges, unread


def _size(path: str, unread: list[str]) -> int:
    """Return the size of a readable file; 0 for anything else, with the reason added to `unread`."""
    try:
        status = os.stat(path)
    except OSError as error:
        unread.append(f"{path}: {error.strerror}")
        return 0
    if not stat.S_ISREG(status.st_mode):
        unread.append(f"{path}: is not a file")
    elif not os.access(path, os.R_OK):
        unread.append(f"{path}: may not be read")
    elif not status.st_size:
        unread.append(f"{path}: is empty")
    else:
        return status.st_size
    return 0


def _records(path: str, size: int, record_bytes: int, most: int, rng: random.Random) -> list[ReadRange]:
    """Draw records at random places of a shard, at most one in each window."""
    window = max(record_bytes, _WINDOW_BYTES)
    if size // window < 64:  # too few windows: use smaller ones
        window = record_bytes
    windows = range(size // window)
    places = rng.sample(windows, min(len(windows), most))
    offsets = [place * window + rng.randrange(window - record_bytes + 1) for place in places]
    return [ReadRange(path, offset, record_bytes) for offset in offsets]
