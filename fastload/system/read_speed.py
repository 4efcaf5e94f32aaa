"""How fast files are read, from their disk and from the page cache: measured, within bounds."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from fastload.errors import OptionError
from fastload.system.disks import Disk, disk_of
from fastload.system.page_cache import can_drop
from fastload.system.read_phase import Budget, Found, Reader
from fastload.system.read_ranges import Stretch, choose

# Threads that read at once in `cold_parallel`: about as many as a loader has workers.
_READERS = 8

# A page is what a disk is asked for at least.
_PAGE_BYTES = 4096
_LATENCIES = 16

# Of so many stretches, the largest show how fast larger pieces come.
_LARGEST_OF = 64

# No single read may take longer than this share of the whole time, as far as can be foreseen.
_ONE_READ = 1 / 8
_LARGEST_CHUNK = 1 << 20

_FEWEST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast something was read; 0 for both where nothing was.

    Attributes:
        bytes_per_s: Bytes in a second.
        records_per_s: Records in a second.
    """

    bytes_per_s: float
    records_per_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a sample of files gave.

    Attributes:
        record_bytes: The mean size of the records read at random: of whole files, or of parts of large ones.
        cold_random: One reader, in random order, from the disk: a first epoch's reading without workers.
        cold_parallel: The same by 8 threads at once: what more workers could get from this disk. By fewer
            where there are fewer than 64 records, or where 8 reads at once would take too long.
        cold_sequential: One reader, in order: small files in the order given, large files from some place on.
        warm_random: One reader, from the page cache: a later epoch's reading, if memory holds all.
        latency_s: The median time of reading one page from the disk.
        is_cold: Whether pages could be dropped first; if not, the cold figures are of whatever cache it is.
        note: What to know of these figures, in sentences; "" for nothing.
        seconds: How long measuring took.
        bytes_read: How much was read for it.
    """

    record_bytes: int
    cold_random: Speed
    cold_parallel: Speed
    cold_sequential: Speed
    warm_random: Speed
    latency_s: float
    is_cold: bool
    note: str
    seconds: float
    bytes_read: int


def measure_reading(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None = None,
    *,
    most_s: float = 2.0,
    most_bytes: int = 256 << 20,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Reading:
    """Measures how fast files are read: a sample of them, whole, or records at random places in large ones.

    Before each cold read its pages are dropped from the page cache, and mincore(2) asked whether they went;
    what stays (not yet written, mapped by others) is passed over. Names and inodes stay cached, and so does
    whatever lies beyond this machine's memory: in the disk, in the host of a virtual one, in a file server.
    Nothing is written. Small files are timed with their opening and closing, large ones without. What
    Python's `open` adds to the system's is left out: 4 to 6 µs a file where measured, seen in warm ones only.

    Args:
        paths: Files. A random sample of at most 4,096 is looked at, so a long list costs nothing.
        record_bytes: How large a record in large files (shards) is; None: files up to 16 MiB are records,
            larger ones are read in parts of 128 KiB.
        most_s: The most seconds to take. A read that has begun ends; reads are kept small on slow disks, so
            that this adds little.
        most_bytes: The most bytes to read, at least 64 KiB. The kernel may read ahead a little more.
        seed: Of the choice: the same files and seed give the same sample.
        clock: What tells the seconds.

    Raises:
        OptionError: No file can be read, or a bound is too small.
    """
    if not most_s > 0:
        raise OptionError(f"most_s must be greater than 0, got {most_s}")
    if most_bytes < _FEWEST_BYTES:
        raise OptionError(f"most_bytes must be at least {_FEWEST_BYTES}, got {most_bytes}")
    if record_bytes is not None and record_bytes < 1:
        raise OptionError(f"record_bytes must be at least 1, got {record_bytes}")
    budget = Budget(most_s, most_bytes, clock)
    look_until_s = budget.until_s(0.15)
    chosen = choose(paths, record_bytes, seed, lambda: clock() >= look_until_s)
    if not chosen.random:
        why = chosen.unread[0] if chosen.unread else "no path was given"
        raise OptionError(f"measuring needs at least one file that can be read: {why}")
    disk = disk_of(chosen.random[0].path)
    notes = [_why_never_cold(disk)]
    with Reader(budget, is_cold=not notes[0], max_readers=_READERS) as reader:
        reader.try_cold(chosen.random[:_LATENCIES])
        latency_s, rate = _probe(reader, chosen.random[::-1], budget, most_s)
        one_bytes, each_bytes = _chunk_bytes(rate, most_s), _chunk_bytes(rate / _READERS, most_s)
        # The two phases read different files where there are enough: a disk may have a cache of its own.
        is_split = len(chosen.random) >= 128
        half, other = (
            (chosen.random[::2], chosen.random[1::2]) if is_split else (chosen.random, chosen.random)
        )
        # Fewer where 8 reads, one after the other, took too long, or starting threads longer than reading.
        in_time = int(most_s / 4 / (latency_s + (each_bytes - _PAGE_BYTES) / rate + 1e-9))
        readers = max(1, min(_READERS, in_time, len(other) // 8))
        single = reader.read(half, share_s=0.4, share_bytes=0.25, chunk_bytes=one_bytes)
        warm = reader.read_again(single, share_s=0.15, share_bytes=0.2, chunk_bytes=_LARGEST_CHUNK)
        parallel = reader.read(other, share_s=0.65, share_bytes=0.65, chunk_bytes=each_bytes, readers=readers)
        # On a slow disk, what the kernel reads ahead would go on for seconds after the end.
        is_ahead = one_bytes >= _LARGEST_CHUNK // 2
        ordered = reader.read(
            chosen.in_order, share_s=1.0, share_bytes=1.0, chunk_bytes=one_bytes, is_ahead=is_ahead
        )
    if not notes[0] and not reader.is_cold:
        notes.append(
            "Pages of these files stayed in the page cache when asked to leave it: they are in use, or not "
            "yet written to the disk. What should be cold was read from there, at least in part."
        )
    if reader.is_cold and reader.is_untold:
        notes.append(
            "The files belong to others, of whose pages the kernel does not tell whether they were dropped."
        )
    unread = [*chosen.unread, *dict.fromkeys(reader.failures)]
    if unread:
        notes.append(
            f"Left out: {len(unread):,} of {chosen.looked_at:,} files looked at; the first is {unread[0]}."
        )
    size = single.record_bytes
    return Reading(
        record_bytes=round(size),
        cold_random=_speed(single, size),
        cold_parallel=_speed(parallel, size),
        cold_sequential=_speed(ordered, size),
        warm_random=_speed(warm, size),
        latency_s=latency_s,
        is_cold=reader.is_cold,
        note=" ".join(filter(None, notes)),
        seconds=clock() - budget.begin_s,
        bytes_read=budget.bytes_read,
    )


def _why_never_cold(disk: Disk) -> str:
    """Why nothing on a disk can be dropped from memory, a sentence; "" where it can."""
    if not can_drop():
        return "This system cannot drop files from its page cache: what was read may have come from there."
    if disk.kind == "memory":
        return f"The files lie in memory ({disk.file_system}): there is no disk to read them from."
    if disk.file_system == "zfs":
        return (
            "ZFS keeps a cache of its own, which cannot be dropped: what was read may have come from there."
        )
    return ""


def _probe(reader: Reader, stretches: list[Stretch], budget: Budget, most_s: float) -> tuple[float, float]:
    """Reads single pages, then ever larger pieces while they come fast enough.

    Returns:
        The median time of a page, and the bytes a second that come once that time is over.
    """
    until_s = budget.until_s(0.1)
    times: list[float] = []
    for stretch in stretches:
        taken_s = reader.time_one(stretch.page(), _PAGE_BYTES)
        if taken_s is not None:
            times.append(taken_s)
        if len(times) == _LATENCIES or (budget.clock() >= until_s and times):
            break
    if not times:
        return 0.0, float(_PAGE_BYTES)
    latency_s = max(statistics.median(times), 1e-9)
    rate, size, expected_s = _PAGE_BYTES / latency_s, 4 * _PAGE_BYTES, 4 * latency_s
    largest = sorted(stretches[:_LARGEST_OF], key=attrgetter("size"), reverse=True)
    for stretch in largest:
        size = min(size, stretch.size)
        if size <= _PAGE_BYTES or expected_s > most_s / 4 or size > budget.bytes_of(0.1):
            break
        taken_s = reader.time_one(stretch, size)
        if taken_s is None:
            continue
        # One reading may have been lucky: no more than four times what it says.
        lucky = 4 * size / max(taken_s, 1e-9)
        rate = min(lucky, (size - _PAGE_BYTES) / max(taken_s - latency_s, 1e-9))
        if size in (stretch.size, _LARGEST_CHUNK):
            break
        expected_s = taken_s + 3 * size / rate
        size *= 4
    return latency_s, rate


def _chunk_bytes(rate: float, most_s: float) -> int:
    """How much can be read at a speed before the clock must be looked at again: pages, at most 1 MiB."""
    bytes_in_time = int(rate * most_s * _ONE_READ) // _PAGE_BYTES * _PAGE_BYTES
    return max(_PAGE_BYTES, min(_LARGEST_CHUNK, bytes_in_time))


def _speed(found: Found, record_bytes: float) -> Speed:
    if not found.bytes or found.seconds <= 0:
        return Speed(0.0, 0.0)
    bytes_per_s = found.bytes / found.seconds
    return Speed(bytes_per_s, bytes_per_s / record_bytes)
