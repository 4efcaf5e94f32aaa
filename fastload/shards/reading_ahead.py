"""Reading ahead: a thread that fetches the shards of a remote dataset in the order of an epoch.

The thread holds the copies that it fetched until the epoch has passed them, so that a small cache does not
lose shards before they are read; if there is no room for another, it waits. Workers wait for the shards that
it has announced. It ends when it has fetched all that are wanted, or at the first error, which is then raised
in the processes that wait for the shard or read it.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fastload.errors import FastloadError, RemoteError
from fastload.shards.container import ShardEntry
from fastload.shards.records import RecordReader
from fastload.shards.remote_shards import RemoteShards, is_worth_a_copy
from fastload.system.own_files import CacheLock

# Short against the time in which a shard is read.
_POLL_S = 0.02


@dataclass(slots=True)
class _Wanted:
    """A shard: how many of its records are wanted, and the first and the last batch that need it."""

    entry: ShardEntry
    number: int
    first: int
    last: int
    records: int = 0
    is_soon: bool = False  # all batches that make it worth a copy are loaded at once


# Shards that were fetched, with the locks of their copies.
_Held = list[tuple[_Wanted, CacheLock]]


class ReadingAhead:
    """The shards that an epoch of a remote dataset needs.

    `position` returns the number of batches handed out so far; `in_flight` batches are loaded at once. The
    thread ends with the last reference to this object, at the latest.
    """

    def __init__(self, reader: RecordReader, position: Callable[[], int], in_flight: int) -> None:
        assert reader.remote is not None
        self._reader = reader
        self._position = position
        self._in_flight = in_flight
        self._most_bytes = reader.remote.copies.most_bytes
        self._wanted: dict[int, _Wanted] = {}
        self._bytes = 0  # of the wanted shards
        self._fetching = _Fetching(reader.remote, position)
        weakref.finalize(self, self._fetching.stop)

    @property
    def is_full(self) -> bool:
        """True as long as the wanted shards are larger than all copies may be."""
        if self._most_bytes is None:
            return False
        if self._bytes > self._most_bytes:
            position = self._position()
            for wanted in [each for each in self._wanted.values() if each.last < position]:
                self._bytes -= self._wanted.pop(wanted.number).entry.size_bytes
        return self._bytes > self._most_bytes

    def want(self, batch: int, indices: Sequence[int]) -> None:
        """Add the records of a later batch; called in the order of the epoch.

        A shard is fetched once it is worth a copy.
        """
        numbers = self._reader.shards_of(np.asarray(indices, np.int64).reshape(-1))
        for number, count in Counter(numbers.tolist()).items():
            wanted = self._wanted.get(number)
            if wanted is None:
                entry = self._reader.manifest.shards[number]
                wanted = self._wanted[number] = _Wanted(entry, number, batch, batch)
                self._bytes += entry.size_bytes
            wanted.last = batch
            was_enough = is_worth_a_copy(wanted.entry, wanted.records)
            wanted.records += count
            if not was_enough and is_worth_a_copy(wanted.entry, wanted.records):
                # All of these batches are then loaded while the training uses an earlier one.
                wanted.is_soon = batch - wanted.first <= self._in_flight
                self._fetching.add(wanted)


class _Fetching:
    """The thread, which holds no reference to its ReadingAhead, so that this can be freed."""

    def __init__(self, shards: RemoteShards, position: Callable[[], int]) -> None:
        self._shards = shards
        self._copies = shards.copies.stoppable()
        self._position = position
        self._lock = threading.Lock()
        self._queue: deque[_Wanted] = deque()
        self._thread: threading.Thread | None = None
        self._has_ended = threading.Event()  # after an error, or to stop
        self._passed: list[int] = []  # shards that no later batch needs

    def add(self, wanted: _Wanted) -> None:
        """Fetch a shard after those that were added before."""
        with self._lock:
            if self._has_ended.is_set():
                return
            self._queue.append(wanted)
            if wanted.is_soon or self._thread is None:
                self._shards.announce([wanted.number])
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fastload reading ahead", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._has_ended.set()
        self._copies.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        held: _Held = []
        try:
            while not self._has_ended.is_set():
                with self._lock:
                    if not self._queue and not held:
                        self._thread = None
                        return
                    wanted = self._queue.popleft() if self._queue else None
                if wanted is not None:
                    held = self._fetched(wanted, held)
                elif not self._has_ended.wait(_POLL_S):
                    held = self._released(held)
        except (FastloadError, OSError, ReferenceError) as error:
            # A process that reads the shard itself meets any other error at once.
            if type(error) is RemoteError and not self._has_ended.is_set():
                self._shards.fail(str(error))
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._has_ended.set()
                    self._shards.withdraw()
            for _, lock in held:
                lock.release()

    def _fetched(self, wanted: _Wanted, held: _Held) -> _Held:
        """Fetch a shard; return the copies that are then held."""
        with self._lock:
            self._shards.announce([wanted.number, *(each.number for each in self._queue if each.is_soon)])
        while wanted.last >= self._position() and not self._has_ended.is_set():
            is_needed = wanted.first <= self._position()
            if (copy := self._copies.get(wanted.entry, waits=is_needed)) is not None:
                held.append((wanted, copy[1]))
                break
            if not is_needed and self._copies.is_being_fetched(wanted.entry):
                break  # another process will have fetched it by then: go on with the next shard
            with self._lock:
                # The next batch reads these by ranges: if it waited, the epoch would never make room.
                needed = [each for each in (wanted, *self._queue) if each.first <= self._position()]
                self._shards.withdraw([each.number for each in needed])
            self._has_ended.wait(_POLL_S)
            held = self._released(held)
            self._shards.mark_passed(self._passed)
        self._shards.withdraw([wanted.number])
        return self._released(held)

    def _released(self, held: _Held) -> _Held:
        """Release the copies that no later batch needs; return the others."""
        position = self._position()
        for wanted, lock in held:
            if wanted.last < position:
                self._passed.append(wanted.number)
                lock.release()
        return [each for each in held if each[0].last >= position]
