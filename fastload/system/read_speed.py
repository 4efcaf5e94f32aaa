"""Disk speed: how fast files are read, cold and warm, measured within bounds of time and bytes."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from fastload.errors import OptionError
from fastload.system._page_cache import can_drop, drop, resident_share
from fastload.system._read_ranges import ReadRange, choose_ranges
from fastload.system.disks import Disk, disk_of

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
    """The result of measuring a sample of files, read in random order."""

    record_bytes: int  # the mean
    cold_random: ReadSpeed  # one reader, from the disk: a first epoch without workers
    cold_parallel: ReadSpeed  # up to 8 threads, from the disk: more workers
    warm_random: ReadSpeed  # one reader, from the page cache: a later epoch, if memory holds all files
    latency_s: float  # the median of reading one page from the disk
    is_cold: bool  # False if pages could not be dropped: then the cold figures come from some cache
    note: str  # remarks, in sentences; "" for none
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
    size of the records in shards; None: files above 16 MiB are read in parts of 128 KiB. Raises OptionError
    if no file can be read, or a bound is too small.
    """
    for name, value, least in (("most_bytes", most_bytes, _FEWEST_BYTES), ("record_bytes", record_bytes, 1)):
        if value is not None and value < least:
            raise OptionError(f"{name} must be at least {least}, got {value}")
    if not most_s > 0:
        raise OptionError(f"most_s must be greater than 0, got {most_s}")
    begin_s = clock()
    ranges, unread = choose_ranges(paths, record_bytes, seed, lambda: clock() >= begin_s + 0.15 * most_s)
    if not ranges:
        reason = unread[0] if unread else "no path was given"
        raise OptionError(f"measuring needs at least one file that can be read: {reason}")
    note = _why_never_cold(disk_of(ranges[0].path))
    # The two cold phases read different files if there are enough: the disk may have a cache of its own.
    first, second = (ranges[::2], ranges[1::2]) if len(ranges) >= 128 else (ranges, ranges)
    pages = [each._replace(size=min(_PAGE_BYTES, each.size)) for each in ranges[: -_LATENCIES - 1 : -1]]
    with _Reader(begin_s + most_s, most_bytes, clock, is_cold=not note) as reader:
        reader.wait_until_clean(ranges[:_LATENCIES])
        latencies = reader.read([[page] for page in pages], share=0.1).seconds
        single = reader.read_cold(first, share=0.45)
        warm = reader.read([single.parts] * _WARM_PASSES, share=0.2, is_warm=True)
        # Fewer readers if 8 reads, one after the other, would take too long.
        record_s = sum(single.seconds) / max(1, len(single.parts))
        readers = max(1, min(_READERS, int(most_s / 4 / max(record_s, 1e-9)), len(second) // 8))
        parallel = reader.read_cold(second, share=1.0, readers=readers)
    if not note and not reader.is_cold:
        note = (
            "These files could not be dropped from the page cache, because they are in use or not yet "
            "written to the disk: some of the cold figures come from there."
        )
    unread += dict.fromkeys(reader.failures)
    if unread:
        note = f"{note} {len(unread):,} of the files could not be read; the first is {unread[0]}.".strip()
    mean_bytes = statistics.fmean(each.size for each in ranges)
    return DiskReading(
        record_bytes=round(mean_bytes),
        cold_random=single.speed(mean_bytes),
        cold_parallel=parallel.speed(mean_bytes),
        warm_random=warm.speed(mean_bytes),
        latency_s=statistics.median(latencies) if latencies else 0.0,
        is_cold=reader.is_cold,
        note=note,
        bytes_read=reader.bytes_read,
    )


def _why_never_cold(disk: Disk) -> str:
    """Return why nothing on a disk can be dropped from memory, as a sentence; "" if it can."""
    if not can_drop():
        return "This system cannot drop files from its page cache: the cold figures may come from there."
    if disk.kind == "memory":
        return f"The files are in memory ({disk.file_system}): there is no disk to read them from."
    if disk.file_system == "zfs":
        return "ZFS has a cache of its own, which cannot be dropped: the cold figures may come from there."
    return ""


class _Timed(NamedTuple):
    """The ranges that were read, with the bytes read of each as their size, and the seconds of each batch."""

    parts: list[ReadRange]
    seconds: list[float]

    def speed(self, record_bytes: float) -> ReadSpeed:
        seconds = sum(self.seconds)
        bytes_per_s = sum(part.size for part in self.parts) / seconds if seconds > 0 else 0.0
        return ReadSpeed(bytes_per_s, bytes_per_s / record_bytes)


class _Reader(contextlib.ExitStack):
    """Reads ranges of files until the time or the bytes are spent."""

    def __init__(self, end_s: float, most_bytes: int, clock: Callable[[], float], is_cold: bool) -> None:
        super().__init__()
        self.is_cold = is_cold
        self.bytes_read = 0
        self.failures: list[str] = []
        self._end_s, self._most_bytes, self._clock = end_s, most_bytes, clock
        self._descriptors: dict[str, int] = {}
        # The threads end before the files are closed; none is started before it is needed.
        self._files = self.enter_context(contextlib.ExitStack())
        self._threads = self.enter_context(ThreadPoolExecutor(_READERS))

    def wait_until_clean(self, ranges: list[ReadRange]) -> None:
        """Wait a moment for files that are being written; if none leaves the page cache, nothing is cold."""
        for _ in range(_TRIES if self.is_cold else 0):
            if any(self._is_dropped(each) for each in ranges):
                return
            time.sleep(_PAUSE_S)
        self.is_cold = False

    def read_cold(self, ranges: Sequence[ReadRange], share: float, readers: int = 1) -> _Timed:
        """Read ranges from the disk; from the page cache if none of them leaves it."""
        timed = self.read(_growing(ranges, readers), share, readers)
        if not timed.parts and self.is_cold:
            self.is_cold = False
            return self.read(_growing(ranges, readers), share, readers)
        return timed

    def read(
        self, batches: Iterable[Sequence[ReadRange]], share: float, readers: int = 1, is_warm: bool = False
    ) -> _Timed:
        """Read batches with a share of the time and bytes left; from the page cache only if `is_warm`."""
        now_s = self._clock()
        until_s = now_s + max(0.0, self._end_s - now_s) * share
        left = int((self._most_bytes - self.bytes_read) * share)
        timed = _Timed([], [])
        for batch in batches:
            if left <= 0 or (timed.parts and self._clock() >= until_s):
                break
            chosen = []
            for each in batch:
                if left > 0 and (is_warm or self._is_dropped(each)):
                    chosen.append(each._replace(size=min(each.size, left)))
                    left -= each.size
            if chosen:
                self._run(chosen, until_s, readers, timed)
        return timed

    def _run(self, batch: list[ReadRange], until_s: float, readers: int, timed: _Timed) -> None:
        """Time the reading of a batch; after `until_s` nothing but its first range is begun."""
        waiting = deque(batch)
        parts: list[ReadRange] = []

        def work(_: int) -> None:
            with contextlib.suppress(IndexError):  # all are read, or being read
                while not parts or self._clock() < until_s:
                    each = waiting.popleft()
                    parts.append(each._replace(size=self._read(each, until_s)))

        begin_s = self._clock()
        list((self._threads.map if readers > 1 else map)(work, range(readers)))
        timed.seconds.append(self._clock() - begin_s)
        timed.parts.extend(parts)
        self.bytes_read += sum(part.size for part in parts)

    def _read(self, each: ReadRange, until_s: float) -> int:
        """Read a range as a loader does; return how many bytes were read before the time was over."""
        done = 0
        try:
            descriptor = self._opened(each)
            try:
                while done < each.size:
                    got = len(os.pread(descriptor, min(_CHUNK_BYTES, each.size - done), each.offset + done))
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
            return not resident_share(descriptor, each.offset, each.offset + each.size)  # None: not known
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
            self._files.callback(os.close, descriptor)
        return descriptor


def _growing(ranges: Sequence[ReadRange], readers: int) -> Iterator[Sequence[ReadRange]]:
    """Divide ranges into batches, which grow because each is dropped before it is read."""
    done, length = 0, 2 * readers
    while done < len(ranges):
        yield ranges[done : done + length]
        done, length = done + length, min(2 * length, _LARGEST_BATCH * readers)
