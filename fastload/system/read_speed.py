"""Measurement of how fast files are read from the disk, within limits of time and bytes."""

from __future__ import annotations

import contextlib
import functools
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
_MOST_SHARDS = 32  # each stays open while it is measured

# Each random record has its own window, because the kernel caches pages in runs of up to this size.
_WINDOW_BYTES = 2 << 20

# The number of files whose size is read even if time is short.
_FEWEST_FILES = 16

# Threads that read at once: about as many as a loader has workers.
_READERS = 8

# Ranges that are dropped from the page cache together, just before each reader reads about as many.
_BATCH = 8

# Bytes read before the time is checked again.
_CHUNK_BYTES = 1 << 20

# Pages being written to the disk are dropped again after a pause.
_TRIES = 5
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class DiskReading:
    """The result of reading a sample of files in random order."""

    bytes_per_s: float  # by one reader or by up to 8 threads, whichever was faster
    is_cold: bool  # False if pages could not be dropped: the speed may then be that of a cache
    bytes_read: int


class ReadRange(NamedTuple):
    """A part of a file, or a complete file (`is_whole`), which is opened and closed for each reading."""

    path: str
    offset: int
    size: int
    is_whole: bool = False


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
    # By one reader, then by several; others' files if there are enough: the disk may have its own cache.
    ones, others = (ranges[::2], ranges[1::2]) if len(ranges) >= 128 else (ranges, ranges)
    with _Reader(begin_s + most_s, most_bytes, clock) as reader:
        for _ in range(_TRIES if is_cold else 0):
            count, single_per_s = reader.read(ones, 0.5, 1, is_cold)
            if count:
                break
            time.sleep(_PAUSE_S)
        else:
            is_cold = False
            count, single_per_s = reader.read(ones, 0.5, 1, is_cold)
        # Fewer readers if 8 reads, one after the other, would take too long.
        record_s = ranges[0].size / max(single_per_s, 1e-9)
        readers = max(1, min(_READERS, int(most_s / 4 / max(record_s, 1e-9)), len(others) // 8))
        _, several_per_s = reader.read(others, 1.0, readers, is_cold)
    return DiskReading(max(single_per_s, several_per_s), is_cold, reader.bytes_read)


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
            ranges.append(ReadRange(path, 0, size, is_whole=True))
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


class _Reader(contextlib.ExitStack):
    """Reads ranges of files within limits of time and bytes; leaves out files that cannot be read."""

    def __init__(self, end_s: float, most_bytes: int, clock: Callable[[], float]) -> None:
        super().__init__()
        self.bytes_read = 0
        self._end_s, self._left_bytes, self._clock = end_s, most_bytes, clock
        self._descriptors: dict[str, int] = {}
        # The threads end before the files are closed.
        self._files = self.enter_context(contextlib.ExitStack())
        self._threads = self.enter_context(ThreadPoolExecutor(_READERS))

    def read(
        self, ranges: Sequence[ReadRange], share: float, readers: int, is_cold: bool
    ) -> tuple[int, float]:
        """Return the number of ranges read within a share of the limits, and the bytes per second.

        With `is_cold`, those that stay in the page cache are skipped.
        """
        now_s = self._clock()
        until_s = now_s + max(0.0, self._end_s - now_s) * share
        left = int(self._left_bytes * share)
        count, size_bytes, seconds = 0, 0, 0.0
        # Dropped in small batches just before they are read, by as many readers.
        length = _BATCH * readers
        for first in range(0, len(ranges), length):
            if left <= 0 or (count and self._clock() >= until_s):
                break
            chosen = []
            for each in ranges[first : first + length]:
                if left > 0 and (not is_cold or self._is_dropped(each)):
                    chosen.append(each._replace(size=min(each.size, left)))
                    left -= each.size
            begin_s = self._clock()
            work = functools.partial(self._read, until_s=until_s)
            sizes = list((self._threads.map if readers > 1 else map)(work, chosen))
            seconds += self._clock() - begin_s
            count += sum(size > 0 for size in sizes)
            size_bytes += sum(sizes)
        self.bytes_read += size_bytes
        self._left_bytes -= size_bytes
        return count, size_bytes / seconds if seconds > 0 else 0.0

    def _read(self, each: ReadRange, until_s: float) -> int:
        """Read a range as a loader does; return the number of bytes, fewer than its size after `until_s`."""
        done = 0
        with contextlib.suppress(OSError), self._opened(each) as descriptor:
            while done < each.size:
                got = len(os.pread(descriptor, min(_CHUNK_BYTES, each.size - done), each.offset + done))
                done += got
                if not got or self._clock() >= until_s:
                    break
        return done

    def _is_dropped(self, each: ReadRange) -> bool:
        """Drop a range from the page cache; return True if it has gone, or if that is not known."""
        with contextlib.suppress(OSError), self._opened(each) as descriptor:
            drop(descriptor, each.offset, each.offset + each.size)
            return not resident_share(descriptor, each.offset, each.offset + each.size)
        return False

    @contextlib.contextmanager
    def _opened(self, each: ReadRange) -> Iterator[int]:
        """Yield a descriptor of a file, which is closed after the block if the file is read completely."""
        descriptor = self._descriptors.get(each.path, -1)
        if descriptor < 0:
            descriptor = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
            # The kernel's read-ahead would fetch bytes beyond the range.
            if sys.platform != "win32" and can_drop():
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            if not each.is_whole:
                self._descriptors[each.path] = descriptor
                self._files.callback(os.close, descriptor)
        try:
            yield descriptor
        finally:
            if each.is_whole:
                os.close(descriptor)
