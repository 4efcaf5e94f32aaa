"""Disks: the file system of a path, and how fast files are read, within limits of time and bytes."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from fastload.system.page_cache import can_drop, drop, resident_share
from fastload.system.proc import PROC_SELF, mounts

DiskKind: TypeAlias = Literal["memory", "network", "fuse", "unknown"]

_KINDS: dict[str, DiskKind] = {
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), "memory"),
    **dict.fromkeys(("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs"), "network"),
    **dict.fromkeys(("nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"), "network"),
    **dict.fromkeys(("fuse", "fuseblk"), "fuse"),
}

_MOST_RANGES = 4096

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
class Disk:
    """The type of a file system ("ext4", "overlay", "nfs4", "unknown"), and its kind.

    A local disk is "unknown": only measuring shows how fast it is.
    """

    file_system: str
    kind: DiskKind


def disk_of(path: str | os.PathLike[str], proc_self: Path = PROC_SELF) -> Disk:
    """Return the disk of a path, which need not exist yet."""
    place = os.path.realpath(path)
    above = [each for each in mounts(proc_self) if os.path.commonpath((each.point, place)) == each.point]
    # The longest mount point; of two mounts on one point, the later hides the earlier.
    mount = max(reversed(above), key=lambda each: len(each.point), default=None)
    if mount is None:
        return Disk("unknown", "unknown")
    return Disk(mount.file_system, _KINDS.get(mount.file_system.partition(".")[0], "unknown"))


class ReadRange(NamedTuple):
    """A part of a file, or a complete one."""

    path: str
    offset: int
    size: int


def measure_reading(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None = None,
    *,
    most_s: float = 1.0,
    most_bytes: int = 128 << 20,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the bytes per second at which 8 threads read a random sample of files; 0 if none can be read.

    With `record_bytes`, files of more than twice that size are shards, of which records of that size are
    read; all other files are read completely, including opening and closing. Pages are dropped from the
    page cache before they are read, and mincore(2) checks that they are gone; pages that stay (dirty, or
    mapped by others) are read only if all do. Caches outside this machine's memory (in the disk, the host
    or a file server) stay warm.
    """
    begin_s = clock()
    ranges: list[ReadRange] = []
    for each in random_ranges(paths, record_bytes):
        if most_bytes <= 0 or (len(ranges) >= _FEWEST_FILES and clock() >= begin_s + 0.15 * most_s):
            break
        ranges.append(each._replace(size=min(each.size, most_bytes)))
        most_bytes -= each.size
    return _read_by_several(
        _dropped(ranges, begin_s + 0.3 * most_s, clock) or ranges, begin_s + most_s, clock
    )


def _dropped(ranges: Sequence[ReadRange], end_s: float, clock: Callable[[], float]) -> list[ReadRange]:
    """Drop ranges from the page cache, one at least; return those that have gone."""
    has_disk = bool(ranges) and disk_of(ranges[0].path).kind != "memory"
    for _ in range(_TRIES if has_disk and can_drop() else 0):
        gone: list[ReadRange] = []
        for each in ranges:
            if gone and clock() >= end_s:
                break
            if _is_dropped(each):
                gone.append(each)
        if gone:
            return gone
        time.sleep(_PAUSE_S)
    return []


def random_ranges(
    paths: Sequence[str | os.PathLike[str]], record_bytes: int | None = None
) -> Iterator[ReadRange]:
    """Yield different ranges of files in random order, the same for the same files.

    Files that are empty or cannot be read are left out.
    """
    rng = random.Random(0)
    sizes: dict[str, int] = {}
    drawn = set()
    for _ in range(_MOST_RANGES if paths else 0):
        path = os.fspath(rng.choice(paths))
        if path not in sizes:
            is_readable = os.path.isfile(path) and os.access(path, os.R_OK)
            sizes[path] = os.path.getsize(path) if is_readable else 0
        size = taken = window = sizes[path]
        if record_bytes and size > 2 * record_bytes:
            taken, window = record_bytes, max(record_bytes, _WINDOW_BYTES)
            if size < 64 * window:  # too few windows: use smaller ones
                window = record_bytes
        place = rng.randrange(size // window) if size else 0
        if size and (path, place) not in drawn:
            drawn.add((path, place))
            yield ReadRange(path, place * window + rng.randrange(window - taken + 1), taken)


def _read_by_several(ranges: Sequence[ReadRange], end_s: float, clock: Callable[[], float]) -> float:
    """Read ranges as the workers of a loader do, until the time is up; return bytes per second."""
    begin_s = clock()

    def read(each: ReadRange) -> int:
        done = 0
        # What is read first counts even if time is short.
        with contextlib.suppress(OSError), _opened(each.path) as file:
            os.lseek(file, each.offset, os.SEEK_SET)
            while done < each.size and ((each is ranges[0] and not done) or clock() < end_s):
                got = len(os.read(file, min(_CHUNK_BYTES, each.size - done)))
                done += got
                if not got:
                    break
        return done

    with ThreadPoolExecutor(_READERS) as pool:
        size_bytes = sum(pool.map(read, ranges))
    seconds = clock() - begin_s
    return size_bytes / seconds if seconds > 0 else 0.0


def _is_dropped(each: ReadRange) -> bool:
    """Drop a range from the page cache; return True if it has gone, or if that is not known."""
    with contextlib.suppress(OSError), _opened(each.path) as file:
        drop(file, each.offset, each.offset + each.size)
        return not resident_share(file, each.offset, each.offset + each.size)
    return False


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        # The kernel's read-ahead would fetch bytes beyond the range.
        if sys.platform != "win32" and can_drop():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        yield descriptor
    finally:
        os.close(descriptor)
