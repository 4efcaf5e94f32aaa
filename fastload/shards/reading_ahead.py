"""Reading ahead: a thread that fetches the shards of a remote dataset in the order of an epoch.

It keeps what it fetched until the epoch has passed it, so that a small cache does not lose shards before
they are read. If there is no room, it waits. It ends by itself once it has fetched all that is wanted, and
at the first error: whoever reads the shard then meets that error too, and raises it.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from fastload.errors import FastloadError
from fastload.shards._copies import Copies, release
from fastload.shards._entries import ShardEntry
from fastload.shards._remote_shards import is_worth_a_copy
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder

# Short against the time in which a shard is read.
_POLL_S = 0.02

# Shards, from the one that is fetched on, of which workers fetch nothing by ranges: their next batches may
# need several that are small. Not all: a full shuffle's first batch may need every shard of the dataset.
_EXPECTED = 4

# A shard and its number, and the first and the last batch of the epoch that need it.
_Wanted = tuple[ShardEntry, int, int, int]


class ReadingAhead:
    """The shards that an epoch of a remote dataset needs; `position` returns the batches handed out so far.

    The thread ends with the last reference to this object, at the latest.
    """

    def __init__(self, reader: RecordReader, position: Callable[[], int]) -> None:
        self._reader = reader
        self._position = position
        self._counts = np.zeros(len(reader.manifest.shards), np.int64)
        # The first and the last batch that need a shard; shards in the order in which they are needed.
        self._batches: dict[int, tuple[int, int]] = {}

    @property
    def is_full(self) -> bool:
        """True once the wanted shards are more than all copies may take."""
        assert self._reader.remote is not None
        most_bytes = self._reader.remote.copies.most_bytes
        wanted = sum(self._reader.manifest.shards[number].size_bytes for number in self._batches)
        return most_bytes is not None and wanted > most_bytes

    def want(self, batch: int, indices: Sequence[int]) -> None:
        """Add the records of a later batch; called in the order of the epoch, before `start`."""
        numbers = self._reader.shards_of(np.asarray(indices, np.int64).reshape(-1))
        self._counts += np.bincount(numbers, minlength=len(self._counts))
        for number in dict.fromkeys(numbers.tolist()):
            first, _ = self._batches.get(number, (batch, batch))
            self._batches[number] = first, batch

    def start(self) -> None:
        """Start to fetch the shards of which enough is wanted."""
        shards = self._reader.manifest.shards
        wanted = [
            (shards[number], number, *batches)
            for number, batches in self._batches.items()
            if is_worth_a_copy(shards[number], int(self._counts[number]))
        ]
        if not wanted or self._reader.remote is None:
            return
        # Requests of its own, which can be stopped.
        remote: RemoteFolder = pickle.loads(pickle.dumps(self._reader.folder))
        copies = self._reader.remote.copies.through(remote)
        stopping = threading.Event()
        options = copies, wanted, self._position, stopping, self._reader.remote.expect
        thread = threading.Thread(target=_fetch, args=options, name="fastload reading ahead", daemon=True)
        thread.start()
        weakref.finalize(self, _stop, thread, remote, stopping)


def _stop(thread: threading.Thread, remote: RemoteFolder, stopping: threading.Event) -> None:
    stopping.set()
    remote.stop()
    thread.join()


def _fetch(
    copies: Copies,
    wanted: list[_Wanted],
    position: Callable[[], int],
    stopping: threading.Event,
    expect: Callable[[int], None],
) -> None:
    held: list[tuple[int, int]] = []  # the last batch that needs a copy, and its lock
    try:
        with contextlib.suppress(FastloadError, OSError, ReferenceError):
            for place, (entry, _, first, last) in enumerate(wanted):
                for _, number, _, _ in wanted[place : place + _EXPECTED]:
                    expect(number)
                copy = None
                while copy is None and last >= position():
                    copy = copies.get(entry, waits=False)
                    if copy is not None:
                        held.append((last, copy.lock))
                    elif copies.is_under_way(entry) and first > position():
                        break  # another process will have fetched it by then: the next one
                    elif stopping.wait(_POLL_S):
                        break
                    held = _released(held, position())
                if stopping.is_set():
                    return
            while held and not stopping.wait(_POLL_S):
                held = _released(held, position())
    finally:
        for _, lock in held:
            release(lock)


def _released(held: list[tuple[int, int]], position: int) -> list[tuple[int, int]]:
    """Release what no later batch needs; return the others."""
    for last, lock in held:
        if last < position:
            release(lock)
    return [each for each in held if each[0] >= position]
