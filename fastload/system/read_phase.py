"""A phase of a measurement: stretches of files are read, cold or warm, until its time or bytes are spent."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

from fastload.system.page_cache import can_drop, drop, resident_share
from fastload.system.read_ranges import Stretch

# Of a stretch that was dropped, so much may still be cached: a page that another process has mapped.
_MOST_RESIDENT = 1 / 16

# How often, and after how long, pages are dropped again that were being written to the disk.
_TRIES = 5
_PAUSE_S = 0.02

# Batches grow from 2 stretches a reader to this many: what is dropped but not read was dropped in vain.
_LARGEST_BATCH = 64

# Small samples are read again until their time is spent, but not for ever.
_PASSES = 32


class Budget:
    """The seconds and the bytes that a measurement may still take.

    Args:
        most_s: All seconds, from now on.
        most_bytes: All bytes.
        clock: What tells the seconds.
    """

    def __init__(self, most_s: float, most_bytes: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.begin_s = clock()
        self.end_s = self.begin_s + most_s
        self.most_bytes = most_bytes
        self.bytes_read = 0

    def until_s(self, share: float) -> float:
        """When a share of the time that is left will be over."""
        now_s = self.clock()
        return now_s + max(0.0, self.end_s - now_s) * share

    def bytes_of(self, share: float) -> int:
        """A share of the bytes that are left."""
        return int((self.most_bytes - self.bytes_read) * share)


@dataclass(frozen=True, slots=True)
class Found:
    """What a phase read.

    Attributes:
        parts: The stretches, and how many bytes of each were read.
        seconds: How long reading took, without dropping.
    """

    parts: list[tuple[Stretch, int]]
    seconds: float

    @property
    def bytes(self) -> int:
        """All bytes read."""
        return sum(size for _, size in self.parts)

    @property
    def record_bytes(self) -> float:
        """The mean size of the stretches, whether read to their end or not."""
        return sum(part.size for part, _ in self.parts) / max(1, len(self.parts))


class Reader:
    """Reads stretches within a budget; closes what it opened when it is left.

    Args:
        budget: What may be spent.
        is_cold: Whether to drop pages before reading them.
        max_readers: How many threads may read at once.

    Attributes:
        is_cold: Whether all that had to be cold was.
        is_untold: Whether the kernel did not tell of some stretch whether it was dropped.
        failures: Why files could not be read, a sentence for each.
    """

    def __init__(self, budget: Budget, is_cold: bool, max_readers: int) -> None:
        self.is_cold = is_cold
        self.is_untold = False
        self.failures: list[str] = []
        self._budget = budget
        self._open: dict[tuple[str, bool], int] = {}
        self._threads = ThreadPoolExecutor(max_readers)  # Starts none before it must.

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def try_cold(self, stretches: Iterable[Stretch]) -> bool:
        """Whether any of some stretches leaves the page cache; waits a moment for what is being written."""
        tried = list(stretches)
        for _ in range(_TRIES if self.is_cold else 0):
            ready = [self._is_ready(stretch, False) for stretch in tried]
            if any(ready):
                return True
            time.sleep(_PAUSE_S)
        self.is_cold = False
        return False

    def time_one(self, stretch: Stretch, size: int) -> float | None:
        """Reads the first bytes of a stretch at once; returns the seconds, None if it cannot be cold."""
        if not self._is_ready(stretch, False):
            return None
        found = self._run([(stretch, size)], 1, size, self._budget.end_s, False)
        return found.seconds if found.bytes else None

    def read(
        self,
        stretches: Iterable[Stretch],
        *,
        share_s: float,
        share_bytes: float,
        chunk_bytes: int,
        readers: int = 1,
        is_ahead: bool = False,
    ) -> Found:
        """Reads stretches from the disk, by batches that are dropped first and then read against the clock.

        Args:
            stretches: What to read, in this order; those that do not leave the page cache are passed over.
            share_s: How much of the time that is left this may take.
            share_bytes: How much of the bytes that are left.
            chunk_bytes: How much is read between two looks at the clock.
            readers: How many threads read at once.
            is_ahead: Whether the kernel may read ahead, as it does of files read in order.
        """
        until_s, left = self._budget.until_s(share_s), self._budget.bytes_of(share_bytes)
        waiting = deque((stretch, True) for stretch in stretches)
        passed_over: list[Stretch] = []
        parts: list[tuple[Stretch, int]] = []
        seconds, length = 0.0, 2 * readers
        while waiting and left > 0 and (not parts or self._budget.clock() < until_s):
            batch: list[tuple[Stretch, int]] = []
            while (
                waiting and len(batch) < length and left > 0 and (not batch or self._budget.clock() < until_s)
            ):
                stretch, is_first = waiting.popleft()
                if self._is_ready(stretch, is_ahead):
                    batch.append((stretch, min(stretch.size, left)))
                    left -= batch[-1][1]
                elif is_first:
                    waiting.append((stretch, False))  # It was being written, perhaps: once more, at the end.
                else:
                    passed_over.append(stretch)
                if not batch and self._budget.clock() >= until_s:
                    passed_over += [stretch for stretch, _ in waiting]
                    waiting.clear()
            found = self._run(batch, readers, chunk_bytes, until_s, is_ahead)
            parts += found.parts
            seconds += found.seconds
            length = min(2 * length, _LARGEST_BATCH * readers)
        if not any(size for _, size in parts) and passed_over and left > 0:
            self.is_cold = False
            batch = [
                (stretch, min(stretch.size, left // (2 * readers))) for stretch in passed_over[: 2 * readers]
            ]
            return self._run(batch, readers, chunk_bytes, until_s, is_ahead)
        return Found(parts, seconds)

    def read_again(self, found: Found, *, share_s: float, share_bytes: float, chunk_bytes: int) -> Found:
        """Reads what was just read once more, and again, from the page cache.

        Args:
            found: What was read.
            share_s: How much of the time that is left this may take.
            share_bytes: How much of the bytes that are left.
            chunk_bytes: How much is read between two looks at the clock.
        """
        until_s, left = self._budget.until_s(share_s), self._budget.bytes_of(share_bytes)
        parts: list[tuple[Stretch, int]] = []
        seconds = 0.0
        for _ in range(_PASSES):
            batch = []
            for stretch, size in found.parts:
                if 0 < size <= left:
                    batch.append((stretch, size))
                    left -= size
            again = self._run(batch, 1, chunk_bytes, until_s, False)
            parts += again.parts
            seconds += again.seconds
            if not batch or self._budget.clock() >= until_s:
                break
        return Found(parts, seconds)

    def _run(
        self, batch: list[tuple[Stretch, int]], readers: int, chunk_bytes: int, until_s: float, is_ahead: bool
    ) -> Found:
        """Reads a batch against the clock; after `until_s` nothing is begun, except the first.

        With one reader, this thread reads.
        """
        clock, waiting = self._budget.clock, deque(batch)
        parts: list[tuple[Stretch, int]] = []

        def work(_: int = 0) -> None:
            while not parts or clock() < until_s:
                try:
                    stretch, size = waiting.popleft()
                except IndexError:
                    return
                parts.append((stretch, self._read(stretch, size, chunk_bytes, until_s, is_ahead)))

        if readers == 1:
            begin_s = clock()
            work()
            seconds = clock() - begin_s
        else:
            begin_s = clock()
            list(self._threads.map(work, range(readers)))
            seconds = clock() - begin_s
        found = Found(parts, seconds)
        self._budget.bytes_read += found.bytes
        return found

    def _read(self, stretch: Stretch, size: int, chunk_bytes: int, until_s: float, is_ahead: bool) -> int:
        """Reads a stretch as a loader does; returns how many bytes it got before the time was over."""
        done = 0
        try:
            descriptor = self._descriptor(stretch, is_ahead)
            try:
                while done < size:
                    got = len(os.pread(descriptor, min(chunk_bytes, size - done), stretch.offset + done))
                    done += got
                    if not got or self._budget.clock() >= until_s:
                        break
            finally:
                if stretch.is_whole:
                    os.close(descriptor)
        except OSError as error:
            self.failures.append(f"{stretch.path}: {error.strerror}")
        return done

    def _is_ready(self, stretch: Stretch, is_ahead: bool) -> bool:
        """Drops a stretch from the page cache; says whether it may be read: whether it went."""
        try:
            descriptor = self._descriptor(stretch, is_ahead)
        except OSError as error:
            self.failures.append(f"{stretch.path}: {error.strerror}")
            return False
        try:
            if not self.is_cold:
                return True
            end = stretch.offset + stretch.size
            drop(descriptor, stretch.offset, end)
            share = resident_share(descriptor, stretch.offset, end)
            self.is_untold |= share is None
            return share is None or share <= _MOST_RESIDENT
        finally:
            if stretch.is_whole:
                os.close(descriptor)

    def _descriptor(self, stretch: Stretch, is_ahead: bool) -> int:
        """Opens a file, for this one time if it is read whole; otherwise it stays open."""
        key = (stretch.path, is_ahead)
        if not stretch.is_whole and key in self._open:
            return self._open[key]
        descriptor = os.open(stretch.path, os.O_RDONLY | os.O_CLOEXEC)
        # Reading ahead of a record at a random place would fetch what no one asked for.
        if sys.platform != "win32" and can_drop() and not is_ahead:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if not stretch.is_whole:
            self._open[key] = descriptor
        return descriptor
