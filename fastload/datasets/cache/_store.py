"""A store: one copy of a dataset's records in memory that many processes map, written once and never evicted.

    header    4 KiB: whose store it is, sizes, how much of the area is taken, why it is closed
    index     32 bytes a record: state, CRC-32C, offsets of its parts
    fixed     the record's columns of fixed size, record by record
    area      images from the front, one after the other; other columns from the back

Images of one size form the rows of an array, so whole batches are gathered from it. A record is claimed under
a lock, written, and then marked as ready: a writer killed in between leaves a record that is never handed
out. Memory is taken in steps, each allocated by the kernel before anything is written to it: writing to a
mapping of a full tmpfs would kill the process (SIGBUS).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import os
import threading
import weakref
from collections.abc import Iterator

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from fastload.datasets.cache._limits import CacheLimits, tmpfs_room
from fastload.datasets.cache.layout import (
    ENTRY,
    HEADER_BYTES,
    KEY,
    LARGEST_PART_BYTES,
    NUMBERS_BYTES,
    PACK,
    REASONS,
    UNPACK,
    Closed,
    Head,
    State,
    layout_of,
    mapped,
)  # fmt: skip
from fastload.shards.checksum import identity_crc, row_mask

Bytes = NDArray[np.uint8]

# The parts of an index entry that a check needs.
_CHECKED = ("crc", "offset", "size", "tail_offset", "tail_size")

# The steps in which memory is taken: 16 MiB are allocated in 4 ms, after readings of free memory of 0.2 ms.
_FRONT_STEP_BYTES = 16 << 20
_BACK_STEP_BYTES = 1 << 20


class Store:
    """A store, mapped by this process.

    `path` opens the file once more, for locking; `folder` is that of a tmpfs, None for `ram`; `key` is 16
    bytes that identify the dataset. Raises OSError if the header is damaged or another dataset's. The store
    closes the descriptor.
    """

    def __init__(
        self, descriptor: int, path: str, folder: str | None, limits: CacheLimits, key: bytes
    ) -> None:
        self.descriptor = descriptor
        self._path = path
        self._folder = folder
        self._limits = limits
        self.layout = layout_of(descriptor)
        self.count = self.layout.count
        self.capacity_bytes = self.layout.capacity_bytes
        self._memory = mapped(descriptor, self.layout.size_bytes)
        everything = np.frombuffer(self._memory, np.uint8)
        if everything[KEY].tobytes() != key:
            raise OSError(errno.EBADMSG, "it is another dataset's")
        # As in shards, a record's checksum is bound to the store and to the record's number.
        self._bound = identity_crc(key)
        self._header = everything[:NUMBERS_BYTES].view(np.int64)
        begin = HEADER_BYTES + self.count * ENTRY.itemsize
        self._index = everything[HEADER_BYTES:begin].view(ENTRY)
        self._states = self._index["state"]
        end = begin + self.count * self.layout.fixed_bytes
        self._writable_fixed = everything[begin:end].reshape(self.count, self.layout.fixed_bytes)
        self._fixed = self._writable_fixed[:]
        self._fixed.flags.writeable = False
        self._writable = everything[self.layout.area_offset :]
        self._area = self._writable[:]
        self._area.flags.writeable = False
        self._forget_checks()
        self._lock_file = -1
        self._lock = threading.Lock()
        _stores.add(self)
        weakref.finalize(self, os.close, descriptor).atexit = False

    def found(self, positions: NDArray[np.int64], always_check: bool = False) -> NDArray[np.bool_]:
        """Return which records can be read from here; checks those that this process reads first."""
        is_ready: NDArray[np.bool_] = self._states[positions] == State.READY
        seen = self._seen[positions]
        wanted = is_ready if always_check else is_ready & (seen == 0)
        if wanted.any():
            places = np.flatnonzero(wanted)
            is_ready[places] = self._are_intact(positions[places])
        return is_ready

    def has(self, index: int) -> bool:
        """Return True if one record can be read from here; see `found`."""
        if self._states[index] != State.READY:
            return False
        return bool(self._seen[index] == 1 or self._are_intact(np.array([index]))[0])

    def data(self, index: int) -> Bytes:
        """Return the image of a record that was found, read-only."""
        _, _, _, _, offset, _, size, _ = UNPACK(self._memory, HEADER_BYTES + 32 * index)
        return self._area[offset : offset + size]

    def tail(self, index: int) -> Bytes:
        """Return the variable columns of a record that was found, read-only."""
        entry = UNPACK(self._memory, HEADER_BYTES + 32 * index)
        return self._area[entry[5] : entry[5] + entry[7]]

    def orientation(self, index: int) -> int:
        """Return the EXIF orientation of a record that was found, if its pixels are stored."""
        return int(self._index["orientation"][index])

    def fixed(self, positions: NDArray[np.int64] | int) -> Bytes:
        """Return the fixed columns of records that were found: (positions, fixed_bytes)."""
        rows: Bytes = self._fixed[positions]
        return rows

    def stack(self, positions: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """Return the images of records that were found as rows of an array, and which row is whose.

        The array is (any number, size), read-only; None if the images differ in size.
        """
        entries = self._index[positions]
        size = int(entries["size"][0])
        offsets = entries["offset"].astype(np.int64)
        if not size or (entries["size"] != size).any() or (offsets % size).any():
            return None
        # Not beyond what was taken: there may be no memory behind it.
        taken = int(self._header[Head.FRONT]) // size * size
        return self._area[:taken].reshape(-1, size), offsets // size

    def put(
        self, index: int, data: bytes | Bytes, fixed: bytes = b"", tail: bytes = b"", orientation: int = 1
    ) -> bool:
        """Store a record; return False if somebody has, or if there is no room."""
        if self._states[index] != State.EMPTY or not self.is_open:
            return False
        size, tail_size = len(data), len(tail)
        if max(size, tail_size) > LARGEST_PART_BYTES:
            return False
        with self._locked() as is_locked:
            offsets = self._claim(index, size, tail_size) if is_locked else None
        if offsets is None:
            return False
        offset, tail_offset = offsets
        self._writable[offset : offset + size] = np.frombuffer(data, np.uint8)
        self._writable[tail_offset : tail_offset + tail_size] = np.frombuffer(tail, np.uint8)
        self._writable_fixed[index] = np.frombuffer(fixed, np.uint8)
        crc = extend(extend(extend(row_mask(self._bound, index), data), fixed), tail)
        entry = HEADER_BYTES + 32 * index
        PACK(self._memory, entry + 1, orientation, 0, crc, offset, tail_offset, size, tail_size)
        # Last, because it makes the rest visible. Where a processor lets others see it sooner, their check of
        # the checksum fails.
        self._states[index] = State.READY
        return True

    def note_filled(self) -> None:
        """Record that everything has been read once: missing records are unreadable, or being written."""
        if not self._header[Head.CLOSED]:
            self._header[Head.CLOSED] = Closed.FILLED

    @property
    def is_open(self) -> bool:
        """True while records are being stored."""
        return bool(self._header[Head.CLOSED] in (Closed.OPEN, Closed.FILLED))

    @property
    def is_filled(self) -> bool:
        """True once there is nothing more to read ahead."""
        return bool(self._header[Head.CLOSED])

    @property
    def why_closed(self) -> str:
        """Why no more records are stored; "" while they are."""
        return REASONS.get(int(self._header[Head.CLOSED]), "it is damaged")

    @property
    def ready(self) -> int:
        """The number of records stored."""
        return int(np.count_nonzero(self._states == State.READY))

    @property
    def used_bytes(self) -> int:
        """The bytes that the records take."""
        return int(self._header[Head.FRONT] + self._header[Head.BACK])

    def missing(self) -> NDArray[np.int64]:
        """Return the records that nobody has begun to store."""
        return np.flatnonzero(self._states == State.EMPTY)

    def _are_intact(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Check records that are ready; a damaged one is never used again, by any process."""
        area, end, width = self._area, len(self._area), self.layout.fixed_bytes
        # Copied for all records at once: for small records that takes longer than the checksum.
        fixed = self._fixed[positions].tobytes()
        columns = (self._index[name][positions].tolist() for name in _CHECKED)
        is_intact = np.zeros(len(positions), np.bool_)
        for place, (index, crc, offset, size, tail, tail_size) in enumerate(
            zip(positions.tolist(), *columns, strict=True)
        ):
            if max(offset + size, tail + tail_size) <= end:
                found = extend(row_mask(self._bound, index), area[offset : offset + size])
                found = extend(found, fixed[place * width : (place + 1) * width])
                if tail_size:
                    found = extend(found, area[tail : tail + tail_size])
                is_intact[place] = found == crc
        self._seen[positions[is_intact]] = 1
        self._states[positions[~is_intact]] = State.BAD
        return is_intact

    def _forget_checks(self) -> None:
        # The records that this process has checked: a byte each, which takes no memory until it is written.
        self._seen = np.zeros(self.count, np.uint8)

    def _claim(self, index: int, size: int, tail_size: int) -> tuple[int, int] | None:
        """Take room for a record, under the lock; return the offsets of image and tail."""
        header = self._header
        if self._states[index] != State.EMPTY or not self.is_open:
            return None
        front, back = int(header[Head.FRONT]) + size, int(header[Head.BACK]) + tail_size
        if front + back > self.capacity_bytes:
            header[Head.CLOSED] = Closed.FULL
            return None
        if not (
            self._allocate(front, Head.BACKED_FRONT, _FRONT_STEP_BYTES)
            and self._allocate(back, Head.BACKED_BACK, _BACK_STEP_BYTES)
        ):
            return None
        header[Head.FRONT], header[Head.BACK] = front, back
        self._states[index] = State.CLAIMED
        return front - size, self.capacity_bytes - back

    def _allocate(self, needed: int, part: int, step_bytes: int) -> bool:
        """Allocate memory for the first (BACKED_FRONT) or last (BACKED_BACK) bytes of the area."""
        header = self._header
        backed = int(header[part])
        if needed <= backed:
            return True
        size = min(max(step_bytes, needed - backed), self.capacity_bytes - backed)
        offset = backed if part == Head.BACKED_FRONT else self.capacity_bytes - backed - size
        if self._limits.available() - size < header[Head.MARGIN]:
            header[Head.CLOSED] = Closed.NO_MEMORY
            return False
        if self._folder is not None and tmpfs_room(self._folder) < size:
            header[Head.CLOSED] = Closed.NO_SPACE
            return False
        try:
            os.posix_fallocate(self.descriptor, self.layout.area_offset + offset, size)
        except OSError:
            header[Head.CLOSED] = Closed.NO_SPACE
            return False
        header[part] = backed + size
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Keep all other writers away; yield False if the file cannot be opened for locking."""
        with self._lock:
            if self._lock_file < 0:
                # Locks belong to openings, which forked children share: each process needs its own.
                try:
                    self._lock_file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                except OSError:
                    yield False
                    return
                weakref.finalize(self, _close_own, self._lock_file, os.getpid()).atexit = False
            lock(self._lock_file, "LOCK_EX")
            try:
                yield True
            finally:
                lock(self._lock_file, "LOCK_UN")

    def _after_fork(self) -> None:
        """Reset a forked child: it has checked nothing, and lacks the thread that may have held the lock."""
        self._forget_checks()
        self._lock = threading.Lock()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1


def lock(descriptor: int, *flags: str) -> None:
    """Lock or unlock a file, by the names of flock(2)'s flags.

    Raises BlockingIOError with LOCK_NB if another process has locked it.
    """
    import fcntl  # does not exist on Windows

    fcntl.flock(descriptor, functools.reduce(operator.or_, (getattr(fcntl, flag) for flag in flags)))


def lock_exclusively(descriptor: int) -> bool:
    """Lock a file exclusively unless somebody else has locked it; return True if it is locked now."""
    try:
        lock(descriptor, "LOCK_EX", "LOCK_NB")
    except BlockingIOError:
        return False
    return True


def _close_own(descriptor: int, process: int) -> None:
    if os.getpid() == process:
        os.close(descriptor)


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _in_child() -> None:
    for store in _stores:
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
