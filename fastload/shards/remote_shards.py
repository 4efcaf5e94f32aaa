"""Remote shards, read from complete local copies or by range requests.

A shard is copied once half of its records have been requested, or if a copy of it exists, is being fetched,
or was announced by a thread that reads ahead. Until then, and if there is no room for a copy, only its
structure and the requested records are fetched. From servers that ignore ranges, shards are always copied.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import shlex
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError, RemoteError
from fastload.shards.container import ShardEntry, ShardReader
from fastload.shards.copies import POLL_S, Copies
from fastload.shards.manifest import Manifest
from fastload.shards.remote import RemoteFolder
from fastload.shards.schema import Column
from fastload.shards.shard import open_within_limit
from fastload.system.cpus import local_ranks

if TYPE_CHECKING:
    from fastload.shards.ranged import RangedReader  # imports h5py, which shards in LMDB do not need

_COPIED_SHARE = 0.5

# In place of a process that will fetch a shard: its thread has ended with an error.
_FAILED = -1
_MOST_MESSAGE_BYTES = 4096

_instances: weakref.WeakSet[RemoteShards] = weakref.WeakSet()


class RemoteShards:
    """The shards of one remote dataset; `opened` holds those that are open, by number.

    A forked child opens copies anew, to hold locks of its own.
    """

    def __init__(
        self, remote: RemoteFolder, manifest: Manifest, copies: Copies, opened: dict[int, ShardReader]
    ) -> None:
        self.opened = opened
        _instances.add(self)
        self.copies = copies
        self._remote = remote
        self._manifest = manifest
        # Shared with forked processes, which request records of the same shards.
        memory = np.frombuffer(mmap.mmap(-1, 24 * max(1, len(manifest.shards))), np.int64)
        # By shard: records; the process that will fetch it, _FAILED, or 0; True if the epoch has passed it.
        self._requested, self._announced, self._is_passed = np.split(memory, 3)
        self._failure = mmap.mmap(-1, _MOST_MESSAGE_BYTES)
        self._has_no_room: set[int] = set()

    def is_outdated(self, number: int, shard: ShardReader | None, count: int) -> bool:
        """Count requested records of a shard; return True if it is read by ranges, but now from a copy."""
        self._requested[number] += count
        self._is_passed[number] = False
        if shard is None or not _is_ranged(shard):
            return False
        needs_copy = number not in self._has_no_room and self._needs_copy(number)
        return needs_copy or self.copies.is_complete(self._manifest.shards[number])

    def hold(self, shard: ShardReader, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Fetch those of some rows that a shard read by ranges does not hold, and return them."""
        return np.array(shard.hold(rows.tolist()) if _is_ranged(shard) else [], np.int64)

    def fetch_again(self, shard: ShardReader, row: int) -> bool:
        """Fetch a row of a shard read by ranges again; return False for a shard read from a copy."""
        if not _is_ranged(shard):
            return False
        shard.fetch_again(row)
        return True

    def open(self, number: int, close: Callable[[int], None], columns: Sequence[Column]) -> ShardReader:
        """Open a shard from its copy, or by ranges.

        Raises:
            DamageError: The remote shard is not the one that the manifest lists.
            RemoteError: It cannot be fetched.
        """
        entry, container = self._manifest.shards[number], self._manifest.container
        needs_copy = self._wait_for_thread(number, close) or self._needs_copy(number)
        has_copy = self.copies.is_complete(entry) or self.copies.is_being_fetched(entry)
        if needs_copy or has_copy or not self._has_ranges(entry):
            for is_second in (False, True):
                copy = self.copies.get(entry)
                # Not where ranges will do: a full shuffle would fetch a complete shard for a few records.
                if copy is None and not self._has_ranges(entry):
                    for other in [other for other, shard in self.opened.items() if not shard.is_ranged]:
                        close(other)  # so that its copy can be removed
                    copy = self.copies.get(entry)
                if copy is None:
                    break
                path, lock = copy
                try:
                    shard = open_within_limit(close, number, container, path, columns, entry)
                except BaseException as error:
                    lock.release()
                    if is_second or not isinstance(error, DamageError):
                        raise
                    self.copies.remove(entry)  # damaged on this disk
                else:
                    weakref.finalize(shard, lock.release)
                    return shard
            self._has_no_room.add(number)
        if not self._has_ranges(entry):
            raise self.copies.no_room(entry)
        from fastload.shards.ranged import RangedReader

        try:
            return RangedReader(self._remote, columns, entry)
        except DamageError:  # perhaps only on the way
            return RangedReader(self._remote, columns, entry)

    @property
    def advice(self) -> str:
        """The end of a message about a damaged record."""
        folder = shlex.quote(str(self.copies.parent))
        return f", 'fastload cache clear {self._remote} --folder {folder}' removes the copies on this machine"

    def announce(self, numbers: Sequence[int]) -> None:
        """Make all processes that open these shards wait until a thread of this one has fetched them."""
        self._announced[numbers] = os.getpid()

    def fail(self, reason: str) -> None:
        """Raise RemoteError in all processes that wait for shards that this one has announced."""
        self._failure[:] = reason.encode()[:_MOST_MESSAGE_BYTES].ljust(_MOST_MESSAGE_BYTES, b"\0")
        self._announced[self._announced == os.getpid()] = _FAILED

    def mark_passed(self, numbers: Sequence[int]) -> None:
        """Make each process close these shards, which the epoch has passed, when it opens another."""
        self._is_passed[numbers] = True

    def withdraw(self, numbers: Sequence[int] | None = None) -> None:
        """Withdraw this process's announcements, of some shards or of all."""
        mine = self._announced == os.getpid()
        self._announced[mine if numbers is None else numbers] = 0

    def begin_epoch(self) -> None:
        """Try again to make room for copies."""
        self._has_no_room.clear()

    def _wait_for_thread(self, number: int, close: Callable[[int], None]) -> bool:
        """Wait until a thread of this or the parent process has fetched a shard that it has announced.

        Shards that the epoch has passed are closed, so that there is room.

        Returns:
            True if the shard was announced.

        Raises:
            RemoteError: The thread could not fetch it.
        """
        parent = multiprocessing.parent_process()
        was_announced = False
        self._close_passed(close)
        while process := int(self._announced[number]):
            if process == _FAILED and was_announced:
                raise RemoteError(self._failure[:].rstrip(b"\0").decode(errors="replace"))
            if process != os.getpid() and not (parent and parent.pid == process and parent.is_alive()):
                break
            was_announced = True
            if self.copies.is_complete(self._manifest.shards[number]):
                break
            time.sleep(POLL_S)
            self._close_passed(close)
        return was_announced

    def _close_passed(self, close: Callable[[int], None]) -> None:
        for number in [number for number in self.opened if self._is_passed[number]]:
            close(number)

    def _has_ranges(self, entry: ShardEntry) -> bool:
        return self._manifest.container == "hdf5" and not self._remote.ignores_ranges(entry)

    def _needs_copy(self, number: int) -> bool:
        return is_worth_a_copy(self._manifest.shards[number], int(self._requested[number]))


def is_worth_a_copy(entry: ShardEntry, count: int) -> bool:
    """Return True if a shard is copied once so many of its records are requested.

    The ranks of this machine share its copies, and each requests about as many records.
    """
    return count * local_ranks() >= _COPIED_SHARE * entry.records


def _is_ranged(shard: ShardReader) -> TypeGuard[RangedReader]:
    return shard.is_ranged


def _forget_after_fork() -> None:
    # Before 2025.5, fsspec does not do so itself, and would wait for a thread of the parent.
    if (asyn := sys.modules.get("fsspec.asyn")) is not None:
        asyn.reset_lock()
    for shards in list(_instances):
        for number in [number for number, shard in shards.opened.items() if not shard.is_ranged]:
            del shards.opened[number]


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_after_fork)
