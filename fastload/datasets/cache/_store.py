"""A store: one copy of a dataset's records in memory that many processes map, written once and never evicted.

    header    4 KiB: the dataset's key, sizes, how much of the area is taken, why the store is closed
    index     40 bytes a record: state, CRC-32C, offsets of its parts
    fixed     the record's columns of fixed size, record by record
    area      images from the front, one after the other; other columns from the back

Images of one size form the rows of an array, so whole batches are gathered from it. A record is claimed under
a lock, written, and then marked as ready: a writer killed in between leaves a record that is never handed
out. Memory is allocated before anything is written to it, because writing to a mapping in a full tmpfs kills
the process (SIGBUS).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from fastload.datasets.cache._limits import Room, tmpfs_room
from fastload.datasets.cache.layout import (
    ENTRY,
    HEADER,
    HEADER_BYTES,
    REASONS,
    Closed,
    RecordState,
    layout_of,
)
from fastload.shards.checksum import identity_crc, row_mask

if sys.platform != "win32":
    import fcntl

Bytes = NDArray[np.uint8]

# The step after which free memory is read again, which takes 0.2 ms.
_STEP_BYTES = 16 << 20


class Store:
    """A store, mapped by this process.

    `folder` is the folder in a tmpfs, None for `ram`; `key` is 16 bytes that identify the dataset. Raises
    OSError if the header is damaged or of another dataset. The store closes the descriptor.
    """

    def __init__(self, descriptor: int, folder: str | None, room: Room, key: bytes) -> None:
        self.descriptor = descriptor
        self._folder = folder
        self._room = room
        self.layout = layout = layout_of(descriptor)
        self.count = layout.count
        memory = mmap.mmap(descriptor, layout.size_bytes)
        if hasattr(mmap, "MADV_DONTDUMP"):
            memory.madvise(mmap.MADV_DONTDUMP)
        self._header = np.frombuffer(memory, HEADER, 1)[0]
        if self._header["key"].tobytes() != key:
            raise OSError(errno.EBADMSG, "it belongs to another dataset")
        # As in shards, a record's checksum is bound to the store and to the record's number.
        self._bound = identity_crc(key)
        self._index = np.frombuffer(memory, ENTRY, self.count, HEADER_BYTES)
        self._states = self._index["state"]
        everything = np.frombuffer(memory, np.uint8)
        begin = HEADER_BYTES + self._index.nbytes
        end = begin + self.count * layout.fixed_bytes
        self._writable_fixed = everything[begin:end].reshape(self.count, layout.fixed_bytes)
        self._writable = everything[layout.area_offset :]
        self._fixed, self._area = self._writable_fixed[:], self._writable[:]
        self._fixed.flags.writeable = self._area.flags.writeable = False
        self._forget_checks()
        _stores.add(self)
        weakref.finalize(self, os.close, descriptor).atexit = False

    def found(self, positions: NDArray[np.int64], always_check: bool = False) -> NDArray[np.bool_]:
        """Return a mask of the records that can be read; those new to this process are checked first."""
        is_ready: NDArray[np.bool_] = self._states[positions] == RecordState.READY
        wanted = is_ready if always_check else is_ready & (self._seen[positions] == 0)
        if np.count_nonzero(wanted):
            places = np.flatnonzero(wanted)
            is_ready[places] = [self._is_intact(index) for index in positions[places].tolist()]
        return is_ready

    def has(self, index: int) -> bool:
        """Return True if one record can be read from here; see `found`."""
        if self._states[index] != RecordState.READY:
            return False
        return bool(self._seen[index]) or self._is_intact(index)

    def data(self, index: int) -> Bytes:
        """Return the image of a record that was found, read-only."""
        _, _, offset, _, size, _ = self._index[index].item()
        return self._area[offset : offset + size]

    def tail(self, index: int) -> Bytes:
        """Return the variable columns of a record that was found, read-only."""
        _, _, _, offset, _, size = self._index[index].item()
        return self._area[offset : offset + size]

    def fixed(self, positions: NDArray[np.int64] | int) -> Bytes:
        """Return the fixed columns of records that were found: (positions, fixed_bytes)."""
        rows: Bytes = self._fixed[positions]
        return rows

    def stack(self, positions: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """Return the images of records that were found as rows of an array, and the row of each record.

        The array is (any number, size), read-only; None if the images differ in size.
        """
        entries = self._index[positions]
        size = int(entries["size"][0])
        offsets = entries["offset"].astype(np.int64)
        if not size or (entries["size"] != size).any() or (offsets % size).any():
            return None
        # Only the allocated part: the pages after it may not exist.
        taken = int(self._header["front"]) // size * size
        return self._area[:taken].reshape(-1, size), offsets // size

    def put(self, index: int, data: bytes | Bytes, fixed: bytes = b"", tail: bytes = b"") -> bool:
        """Store a record; return False if it is stored already, or if there is no room."""
        if self._states[index] != RecordState.EMPTY or not self.is_open:
            return False
        size, tail_size = len(data), len(tail)
        with self._locked():
            offsets = self._claim(index, size, tail_size)
        if offsets is None:
            return False
        offset, tail_offset = offsets
        self._writable[offset : offset + size] = np.frombuffer(data, np.uint8)
        self._writable[tail_offset : tail_offset + tail_size] = np.frombuffer(tail, np.uint8)
        self._writable_fixed[index] = np.frombuffer(fixed, np.uint8)
        crc = extend(extend(extend(row_mask(self._bound, index), data), fixed), tail)
        self._index[index] = (RecordState.CLAIMED, crc, offset, tail_offset, size, tail_size)
        # Last, because it makes the rest visible. On a processor that reorders writes, other processes may
        # see it sooner: then their check of the checksum fails.
        self._states[index] = RecordState.READY
        return True

    @property
    def is_open(self) -> bool:
        """True while records are being stored."""
        return not self.why_closed

    @property
    def why_closed(self) -> str:
        """The reason why no more records are stored; "" while they are."""
        return REASONS.get(self._header["closed"], "it is damaged")

    @property
    def ready(self) -> int:
        return int(np.count_nonzero(self._states == RecordState.READY))

    @property
    def used_bytes(self) -> int:
        return int(self._header["front"] + self._header["back"])

    def _is_intact(self, index: int) -> bool:
        """Check a record that is ready; mark a damaged one, so that no process uses it again."""
        _, crc, offset, tail_offset, size, tail_size = self._index[index].item()
        is_intact: bool = max(offset + size, tail_offset + tail_size) <= len(self._area)
        if is_intact:
            found = extend(row_mask(self._bound, index), self.data(index))
            found = extend(extend(found, self._fixed[index].tobytes()), self.tail(index).tobytes())
            is_intact = bool(found == crc)
        if is_intact:
            self._seen[index] = 1
        else:
            self._states[index] = RecordState.BAD
        return is_intact

    def _forget_checks(self) -> None:
        # The records that this process has checked: a byte each. Pages take no memory until they are written.
        self._seen = np.zeros(self.count, np.uint8)

    def _claim(self, index: int, size: int, tail_size: int) -> tuple[int, int] | None:
        """Allocate memory for a record, under the lock; return the offsets of image and tail."""
        if self._states[index] != RecordState.EMPTY or not self.is_open:
            return None
        header, capacity = self._header, self.layout.capacity_bytes
        offset = int(header["front"])
        front, back = offset + size, int(header["back"]) + tail_size
        if front + back > capacity:
            header["closed"] = Closed.FULL
        elif front + back > header["granted"]:
            granted = int(header["granted"])
            step = min(max(_STEP_BYTES, front + back - granted), capacity - granted)
            if self._room() < step:
                header["closed"] = Closed.NO_MEMORY
            elif self._folder is not None and tmpfs_room(self._folder) < step:
                header["closed"] = Closed.NO_SPACE
            else:
                header["granted"] = granted + step
        if not (self.is_open and self._allocate(offset, size) and self._allocate(capacity - back, tail_size)):
            return None
        header["front"], header["back"] = front, back
        self._states[index] = RecordState.CLAIMED
        return offset, capacity - back

    def _allocate(self, offset: int, size: int) -> bool:
        """Allocate memory for a part of the area; close the store if there is no space."""
        try:
            if size:
                os.posix_fallocate(self.descriptor, self.layout.area_offset + offset, size)
        except OSError:
            self._header["closed"] = Closed.NO_SPACE
            return False
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other writers: threads by a mutex, processes by a file lock, which forks do not inherit."""
        with _writing:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_writing = threading.Lock()


def _reset_in_child() -> None:
    """Reset the state of a forked child: no record is checked, and no thread is left to release the lock."""
    global _writing
    _writing = threading.Lock()
    for store in _stores:
        store._forget_checks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
