"""Disk speed: how fast files are read, cold and warm, measured within bounds of time and bytes."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fastload.errors import OptionError
from fastload.system.disks import Disk, disk_of
from fastload.system.page_cache import can_drop, drop, resident_share
from fastload.system.read_ranges import ReadRange, choose_ranges

# Threads that read at once in `cold_parallel`: about as many as a loader has workers.
_READERS = 8

# A disk is asked for at least a page; the median of so many single pages is its latency.
_PAGE_BYTES = 4096
_LATENCIES = 16

# Bytes read between two looks at the clock.
_CHUNK_BYTES = 1 << 20

_FEWEST_BYTES = 64 << 10

# Pages being written to the disk are dropped again after a pause.
_TRIES = 5
_PAUSE_S = 0.02

# Ranges are dropped in batches just before they are read, which grow from 2 a reader to this many.
_LARGEST_BATCH = 64

# A small sample is read from the page cache again and again, but not for ever.
_WARM_PASSES = 32


@dataclass(frozen=True, slots=True)
class ReadSpeed:
    """Bytes and records read in a second; 0 for both if nothing was read."""

    bytes_per_s: float
    records_per_s: float


@dataclass(frozen=True, slots=True)
class DiskReading:
    """The result of measuring a sample of files.

    Attributes:
        record_bytes: Mean size of the records read at random.
        cold_random: One reader, random order, from the disk: a first epoch without workers.
        cold_parallel: The same with up to 8 threads: what more workers could get from this disk.
        warm_random: One reader, from the page cache: a later epoch, if memory holds all files.
        latency_s: Median time of reading one page from the disk.
        is_cold: False if pages could not be dropped: then the cold figures come from some cache.
        note: Remarks on these figures, in sentences; "" for none.
        bytes_read: How much was read.
    """

    record_bytes: int
    cold_random: ReadSpeed
    cold_parallel: ReadSpeed
    warm_random: ReadSpeed
    latency_s: float
    is_cold: bool
    note: str
    bytes_read: int


def measure_reading(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None = None,
    *,
    most_s: float = 2.0,
    most_bytes: int = 256 << 20,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> DiskReading:
    """Measure how fast a random sample of files is read: small files whole, shards record by record.

    Before each cold read its pages are dropped, and mincore(2) checks that they are gone; pages that stay
    (dirty, or mapped by others) are passed over. Caches outside this machine's memory (in the disk, the host
    or a file server) stay warm. Small files are timed with opening and closing them. `record_bytes` is the
    size of the records in shards; None: files above 16 MiB are read in parts of 128 KiB.

    Raises:
        OptionError: No file can be read, or a bound is too small.
    """
    if not most_s > 0:
        raise OptionError(f"most_s must be greater than 0, got {most_s}")
    if most_bytes < _FEWEST_BYTES:
        raise OptionError(f"most_bytes must be at least {_FEWEST_BYTES}, got {most_bytes}")
    if record_bytes is not None and record_bytes < 1:
        raise OptionError(f"record_bytes must be at least 1, got {record_bytes}")
    begin_s = clock()
    ranges, unread = choose_ranges(paths, record_bytes, seed, lambda: clock() >= begin_s + 0.15 * most_s)
    if not ranges:
        reason = unread[0] if unread else "no path was given"
        raise OptionError(f"measuring needs at least one file that can be read: {reason}")
    note = _why_never_cold(disk_of(ranges[0].path))
    # The two cold phases read different files if there are enough: the disk may have a cache of its own.
    first, second = (ranges[::2], ranges[1::2]) if len(ranges) >= 128 else (ranges, ranges)
    reader = _Reader(begin_s + most_s, most_bytes, clock, is_cold=not note)
    try:
        reader.wait_until_clean(ranges[:_LATENCIES])
        latency_s = reader.latency(ranges[::-1])
        single = reader.read_cold(first, share=0.45)
        warm = reader.read_warm(single, share=0.2)
        # Fewer readers if 8 reads, one after the other, would take too long.
        record_s = single.seconds / max(1, len(single.parts))
        readers = max(1, min(_READERS, int(most_s / 4 / max(record_s, 1e-9)), len(second) // 8))
        parallel = reader.read_cold(second, share=1.0, readers=readers)
    finally:
        reader.close()
    if not note and not reader.is_cold:
        note = (
            "These files could not be dropped from the page cache, because they are in use or not yet "
            "written to the disk: some of the cold figures come from there."
        )
    unread += dict.fromkeys(reader.failures)
    if unread:
        note = f"{note} {len(unread):,} of the files could not be read; the first is {unread[0]}.".strip()
    record = sum(each.size for each, _ in single.parts) / max(1, len(single.parts))
    return DiskReading(
        record_bytes=round(record),
        cold_random=single.speed(record),
        cold_parallel=parallel.speed(record),
        warm_random=warm.speed(record),
        latency_s=latency_s,
        is_cold=reader.is_cold,
        note=note,
        bytes_read=reader.bytes_read,
    )


def _why_never_cold(disk: Disk) -> str:
    """Return why nothing on a disk can be dropped from memory, as a sentence; "" if it can."""
    if not can_drop():
        return "This system cannot drop files from its page cache: the cold figures may come from there."
    if disk.kind == "memory":
        return f"The files lie in memory ({disk.file_system}): there is no disk to read them from."
    if disk.file_system == "zfs":
        return "ZFS has a cache of its own, which cannot be dropped: the cold figures may come from there."
    return ""


@dataclass(frozen=True, slots=True)
class _Timed:
    """Ranges with the bytes read of each, and the seconds that reading took."""

    parts: list[tuple[ReadRange, int]]
    seconds: float

    def speed(self, record_bytes: float) -> ReadSpeed:
        read = sum(size for _, size in self.parts)
        bytes_per_s = read / self.seconds if read and self.seconds > 0 else 0.0
        return ReadSpeed(bytes_per_s, bytes_per_s / max(1.0, record_bytes))


class _Reader:
    """Reads ranges of files until the time or the bytes are spent."""

    def __init__(self, end_s: float, most_bytes: int, clock: Callable[[], float], is_cold: bool) -> None:
        self.is_cold = is_cold
        self.bytes_read = 0
        self.failures: list[str] = []
        self._end_s, self._most_bytes, self._clock = end_s, most_bytes, clock
        self._descriptors: dict[str, int] = {}
        self._threads = ThreadPoolExecutor(_READERS)  # starts no thread before one is needed

    def close(self) -> None:
        self._threads.shutdown()
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def wait_until_clean(self, ranges: list[ReadRange]) -> None:
        """Wait a moment for files that are being written; if none leaves the page cache, nothing is cold."""
        for _ in range(_TRIES if self.is_cold else 0):
            if any(self._is_dropped(each) for each in ranges):
                return
            time.sleep(_PAUSE_S)
        self.is_cold = False

    def latency(self, ranges: list[ReadRange]) -> float:
        """Return the median seconds of reading a single page from the disk."""
        until_s, left = self._left(0.1)
        times: list[float] = []
        for each in ranges[: max(1, min(_LATENCIES, left // _PAGE_BYTES))]:
            if self._is_dropped(each):
                times.append(self._run([(each, min(_PAGE_BYTES, each.size))], until_s).seconds)
            if times and self._clock() >= until_s:
                break
        return statistics.median(times) if times else 0.0

    def read_cold(self, ranges: Sequence[ReadRange], share: float, readers: int = 1) -> _Timed:
        """Read ranges with a share of the time and bytes left, dropping them from the page cache first."""
        until_s, left = self._left(share)
        parts: list[tuple[ReadRange, int]] = []
        seconds, done, length = 0.0, 0, 2 * readers
        while done < len(ranges) and left > 0 and (not parts or self._clock() < until_s):
            batch: list[tuple[ReadRange, int]] = []
            for each in ranges[done : done + length]:
                if left > 0 and self._is_dropped(each):
                    batch.append((each, min(each.size, left)))
                    left -= each.size
            timed = self._run(batch, until_s, readers)
            parts += timed.parts
            seconds += timed.seconds
            done, length = done + length, min(2 * length, _LARGEST_BATCH * readers)
        if ranges and not parts and self.is_cold:
            self.is_cold = False
            return self.read_cold(ranges, share, readers)
        return _Timed(parts, seconds)

    def read_warm(self, timed: _Timed, share: float) -> _Timed:
        """Read what was just read again, from the page cache."""
        until_s, left = self._left(share)
        parts: list[tuple[ReadRange, int]] = []
        seconds = 0.0
        for _ in range(_WARM_PASSES):
            batch = []
            for each, size in timed.parts:
                if 0 < size <= left:
                    batch.append((each, size))
                    left -= size
            again = self._run(batch, until_s)
            parts += again.parts
            seconds += again.seconds
            if not batch or self._clock() >= until_s:
                break
        return _Timed(parts, seconds)

    def _left(self, share: float) -> tuple[float, int]:
        """Return when a share of the time left will be over, and a share of the bytes left."""
        now_s = self._clock()
        until_s = now_s + max(0.0, self._end_s - now_s) * share
        return until_s, int((self._most_bytes - self.bytes_read) * share)

    def _run(self, batch: list[tuple[ReadRange, int]], until_s: float, readers: int = 1) -> _Timed:
        """Time the reading of a batch; after `until_s` nothing but its first range is begun."""
        waiting = deque(batch)
        parts: list[tuple[ReadRange, int]] = []

        def work(_: int = 0) -> None:
            while waiting and (not parts or self._clock() < until_s):
                try:
                    each, size = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                parts.append((each, self._read(each, size, until_s)))

        begin_s = self._clock()
        if readers == 1:
            work()
        else:
            list(self._threads.map(work, range(readers)))
        seconds = self._clock() - begin_s
        self.bytes_read += sum(size for _, size in parts)
        return _Timed(parts, seconds)

    def _read(self, each: ReadRange, size: int, until_s: float) -> int:
        """Read a range as a loader does; return how many bytes were read before the time was over."""
        done = 0
        try:
            descriptor = self._opened(each)
            try:
                while done < size:
                    got = len(os.pread(descriptor, min(_CHUNK_BYTES, size - done), each.offset + done))
                    done += got
                    if not got or self._clock() >= until_s:
                        break
            finally:
                if each.is_whole:
                    os.close(descriptor)
        except OSError as error:
            self.failures.append(f"{each.path}: {error.strerror}")
        return done

    def _is_dropped(self, each: ReadRange) -> bool:
        """Drop a range from the page cache; return True if it is gone, or need not be."""
        try:
            descriptor = self._opened(each)
        except OSError as error:
            self.failures.append(f"{each.path}: {error.strerror}")
            return False
        try:
            if not self.is_cold:
                return True
            drop(descriptor, each.offset, each.offset + each.size)
            share = resident_share(descriptor, each.offset, each.offset + each.size)
            return not share  # None: not known
        finally:
            if each.is_whole:
                os.close(descriptor)

    def _opened(self, each: ReadRange) -> int:
        """Return a descriptor of a file: a new one if it is read whole, else one that stays open."""
        if each.path in self._descriptors:
            return self._descriptors[each.path]
        descriptor = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
        # The kernel's read-ahead would fetch bytes that nobody asked for.
        if sys.platform != "win32" and can_drop():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if not each.is_whole:
            self._descriptors[each.path] = descriptor
        return descriptor
