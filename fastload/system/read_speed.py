"""Measurement of how fast files are read from the disk, within limits of time and bytes."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from fastload.errors import OptionError
from fastload.system.disks import disk_of
from fastload.system.page_cache import can_drop, drop, resident_share

_MOST_RANGES = 4096
_MOST_SHARDS = 32

# Each random record has its own window, because the kernel caches pages in runs of up to this size.
_WINDOW_BYTES = 2 << 20

# The number of files whose size is read even if time is short.
_FEWEST_FILES = 16

# Threads that read at once: about as many as a loader has workers.
_READERS = 8

# Bytes read before the time is checked again: at 100 KB/s, all threads together take ten seconds for them.
_CHUNK_BYTES = 128 << 10

# Pages being written to the disk are dropped again after a pause.
_TRIES = 5
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class DiskReading:
    """The result of reading a sample of files in random order."""

    bytes_per_s: float  # by 8 threads
    is_cold: bool  # False if pages could not be dropped: the speed may then be that of a cache
    bytes_read: int


class ReadRange(NamedTuple):
    """A part of a file, or a complete one."""

    path: str
    offset: int
    size: int


def measure_reading(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None = None,
    *,
    most_s: float = 2.0,
    most_bytes: int = 256 << 20,
    clock: Callable[[], float] = time.perf_counter,
) -> DiskReading:
    """Measure how fast a random sample of files is read from the disk.

    With `record_bytes`, files of more than twice that size are shards, of which records of that size are
    read; all other files are read completely, including opening and closing. Pages are dropped from the
    page cache before they are read, and mincore(2) checks that they are gone; pages that stay (dirty, or
    mapped by others) are skipped. Caches outside this machine's memory (in the disk, the host or a file
    server) stay warm. Raises OptionError if no file can be read.
    """
    begin_s = clock()
    ranges = choose_ranges(paths, record_bytes, lambda: clock() >= begin_s + 0.15 * most_s)
    if not ranges:
        first = f", but {os.fspath(paths[0])} is not one" if paths else ", got no path"
        raise OptionError(f"measuring needs at least one file that is not empty and can be read{first}")
    ranges = _within(ranges, most_bytes)
    disk = disk_of(ranges[0].path)
    cold: list[ReadRange] = []
    # Files in memory have no disk, and ZFS has its own cache.
    for _ in range(_TRIES if can_drop() and disk.kind != "memory" and disk.file_system != "zfs" else 0):
        for each in ranges:
            if cold and clock() >= begin_s + 0.3 * most_s:
                break
            if _is_dropped(each):
                cold.append(each)
        if cold:
            break
        time.sleep(_PAUSE_S)
    bytes_per_s, bytes_read = _read_by_several(cold or ranges, begin_s + most_s, clock)
    return DiskReading(bytes_per_s, bool(cold), bytes_read)


def choose_ranges(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None,
    is_late: Callable[[], bool] = lambda: False,
) -> list[ReadRange]:
    """Draw up to 4,096 ranges of files in random order; the same files give the same ranges.

    Files that are empty or cannot be read are left out. Reading sizes ends when `is_late` returns True.
    """
    rng = random.Random(0)
    ranges: list[ReadRange] = []
    shards: list[tuple[str, int]] = []
    for number, index in enumerate(rng.sample(range(len(paths)), min(len(paths), _MOST_RANGES))):
        if number >= _FEWEST_FILES and is_late():
            break
        path = os.fspath(paths[index])
        size = os.path.getsize(path) if os.path.isfile(path) and os.access(path, os.R_OK) else 0
        if record_bytes and size > 2 * record_bytes:
            shards.append((path, size))
        elif size:
            ranges.append(ReadRange(path, 0, size))
    shards = rng.sample(shards, min(len(shards), _MOST_SHARDS))
    for path, size in shards:
        ranges += _records(path, size, record_bytes or size, _MOST_RANGES // len(shards), rng)
    rng.shuffle(ranges)
    return ranges


def _records(path: str, size: int, record_bytes: int, most: int, rng: random.Random) -> list[ReadRange]:
    """Draw records at random offsets of a shard, at most one in each window."""
    window = max(record_bytes, _WINDOW_BYTES)
    if size // window < 64:  # too few windows: use smaller ones
        window = record_bytes
    windows = range(size // window)
    places = rng.sample(windows, min(len(windows), most))
    offsets = [place * window + rng.randrange(window - record_bytes + 1) for place in places]
    return [ReadRange(path, offset, record_bytes) for offset in offsets]


def _within(ranges: Sequence[ReadRange], most_bytes: int) -> list[ReadRange]:
    """Return the first ranges that have so many bytes together; the last one may be shortened."""
    taken = []
    for each in ranges:
        if most_bytes <= 0:
            break
        taken.append(each._replace(size=min(each.size, most_bytes)))
        most_bytes -= each.size
    return taken


def _read_by_several(
    ranges: Sequence[ReadRange], end_s: float, clock: Callable[[], float]
) -> tuple[float, int]:
    """Read ranges as the workers of a loader do, until the time is up; return bytes per second, and bytes."""
    begin_s = clock()

    def read(each: ReadRange) -> int:
        done = 0
        # What is read first counts even if time is short.
        with contextlib.suppress(OSError), _opened(each.path) as file:
            while done < each.size and ((each is ranges[0] and not done) or clock() < end_s):
                got = len(os.pread(file, min(_CHUNK_BYTES, each.size - done), each.offset + done))
                done += got
                if not got:
                    break
        return done

    with ThreadPoolExecutor(_READERS) as pool:
        size_bytes = sum(pool.map(read, ranges))
    seconds = clock() - begin_s
    return size_bytes / seconds if seconds > 0 else 0.0, size_bytes


def _is_dropped(each: ReadRange) -> bool:
    """Drop a range from the page cache; return True if it has gone, or if that is not known."""
    with contextlib.suppress(OSError), _opened(each.path) as file:
        drop(file, each.offset, each.offset + each.size)
        return not resident_share(file, each.offset, each.offset + each.size)
    return False


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel's read-ahead would fetch bytes beyond the range.
        if sys.platform != "win32" and can_drop():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        yield descriptor
    finally:
        os.close(descriptor)
