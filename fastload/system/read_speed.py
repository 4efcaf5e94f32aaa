"""Measurement of how fast files are read from the disk, within limits of time and bytes."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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

# Bytes read before the time is checked again.
_CHUNK_BYTES = 1 << 20

# Pages being written to the disk are dropped again after a pause.
_TRIES = 5
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class DiskReading:
    """The result of reading a sample of files in random order."""

    bytes_per_s: float  # by up to 8 threads
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
    disk = disk_of(ranges[0].path)
    # Files in memory have no disk, and ZFS has its own cache.
    is_cold = can_drop() and disk.kind != "memory" and disk.file_system != "zfs"
    limits = _Limits(begin_s + most_s, most_bytes, clock)
    for _ in range(_TRIES if is_cold else 0):
        speed = _read_by_several(ranges, limits, most_s, is_cold=True)
        if limits.bytes_read:
            return DiskReading(speed, True, limits.bytes_read)
        time.sleep(_PAUSE_S)
    return DiskReading(_read_by_several(ranges, limits, most_s, is_cold=False), False, limits.bytes_read)


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


@dataclass(slots=True)
class _Limits:
    """The end of the time, and the bytes that may be read; `clock` returns the time."""

    end_s: float
    most_bytes: int
    clock: Callable[[], float]
    bytes_read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size_bytes: int) -> int:
        """Return how many of so many bytes may be read, which are then read."""
        with self._lock:
            taken = min(size_bytes, self.most_bytes - self.bytes_read)
            self.bytes_read += taken
            return taken


def _read_by_several(ranges: Sequence[ReadRange], limits: _Limits, most_s: float, is_cold: bool) -> float:
    """Return the bytes per second of several readers; with `is_cold`, of ranges that have left the cache."""
    waiting = deque(ranges)
    first_bytes, first_s = _read_some(waiting, limits, is_cold, most=1)
    # Fewer readers if 8 reads, one after the other, would take too long.
    readers = max(1, min(_READERS, int(most_s / 4 / max(first_s, 1e-9)), len(waiting)))
    with ThreadPoolExecutor(readers) as pool:
        found = list(pool.map(lambda _: _read_some(waiting, limits, is_cold), range(readers)))
    # They read at the same time.
    several_per_s = sum(size_bytes / seconds for size_bytes, seconds in found if seconds > 0)
    return max(several_per_s, first_bytes / first_s if first_s > 0 else 0.0)


def _read_some(
    waiting: deque[ReadRange], limits: _Limits, is_cold: bool, most: int = _MOST_RANGES
) -> tuple[int, float]:
    """Read ranges as a loader does until none is waiting; return the bytes, and the seconds of reading."""
    size_bytes, seconds, clock = 0, 0.0, limits.clock
    while most and (not limits.bytes_read or clock() < limits.end_s):
        try:
            each = waiting.popleft()
        except IndexError:  # another reader has taken the last one
            break
        with contextlib.suppress(OSError):
            if is_cold and not _is_dropped(each):
                continue
            if not (wanted := limits.take(each.size)):
                break
            most -= 1
            begin_s = clock()
            with _opened(each.path) as file:
                done = 0
                while done < wanted:
                    got = len(os.pread(file, min(_CHUNK_BYTES, wanted - done), each.offset + done))
                    done += got
                    if not got or clock() >= limits.end_s:
                        break
            seconds += clock() - begin_s
            size_bytes += done
    return size_bytes, seconds


def _is_dropped(each: ReadRange) -> bool:
    """Drop a range from the page cache; return True if it has gone, or if that is not known."""
    with _opened(each.path) as file:
        drop(file, each.offset, each.offset + each.size)
        return not resident_share(file, each.offset, each.offset + each.size)


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
