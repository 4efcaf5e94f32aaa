"""A store: one copy of a dataset's records in memory that many processes map, written once and never evicted.

    header    4 KiB: whose it is, sizes, how much of the area is taken, why it was closed
    index     32 bytes a record: state, CRC-32C, where its parts lie
    fixed     the record's columns of one size, one record behind the other
    area      images from the front, one behind the other; what else a record has from the back

Images of one size lie in the area like rows of an array, so whole batches are gathered from it. A record is
claimed under a lock, written, and then marked as ready; a writer killed in between leaves a record that is
never handed out. Memory is taken in steps, each asked of the kernel before anything is written to it:
writing to a mapping of a full tmpfs would kill the process (SIGBUS).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Iterator

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from fastload.datasets.cache.folder import lock
from fastload.datasets.cache.layout import (
    BACK,
    BACKED_BACK,
    BACKED_FRONT,
    BAD,
    CLAIMED,
    CLOSED,
    EMPTY,
    ENTRY,
    FILLED,
    FRONT,
    FULL,
    HEADER_BYTES,
    KEY,
    LARGEST_PART_BYTES,
    MARGIN,
    NO_MEMORY,
    NO_SPACE,
    NUMBERS,
    OPEN,
    PACK,
    READY,
    REASONS,
    UNPACK,
    layout_of,
    mapped,
)
from fastload.datasets.cache.limits import Limits, tmpfs_room
from fastload.shards.checksum import binding, mask

Bytes = NDArray[np.uint8]

# The parts of an index entry that a check looks at.
_CHECKED = ("crc", "offset", "size", "tail_offset", "tail_size")

# Memory is taken in such steps: 16 MiB are made in 4 ms, and the readings of memory that come first take 0.2.
_STEP_BYTES = 16 << 20


class Store:
    """A store as one process sees it.

    Args:
        descriptor: The file, prepared; the store closes it.
        place: By which path the file can be opened once more.
        folder: The folder of a tmpfs, whose free space counts; None for memory without a name.
        limits: What must stay free of the memory.
        key: 16 bytes that stand for what is kept in it.

    Raises:
        OSError: Its header is damaged, or it is that of another store.

    Attributes:
        count: The number of the dataset's records.
        capacity_bytes: What records can take.
    """

    def __init__(self, descriptor: int, place: str, folder: str | None, limits: Limits, key: bytes) -> None:
        self.descriptor = descriptor
        self._place = place
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
        self._bound = binding(key)
        self._header = everything[: 8 * len(NUMBERS)].view(np.int64)
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

    def found(self, positions: NDArray[np.int64], is_checked_always: bool = False) -> NDArray[np.bool_]:
        """Which records can be had from here; what has not been read by this process yet is checked first.

        Args:
            positions: Of the records.
            is_checked_always: Whether what has been read before is checked as well.
        """
        is_ready: NDArray[np.bool_] = self._states[positions] == READY
        seen = self._seen[positions]
        wanted = is_ready if is_checked_always else is_ready & (seen == 0)
        if wanted.any():
            places = np.flatnonzero(wanted)
            is_ready[places] = self._are_whole(positions[places])
        return is_ready

    def has(self, index: int) -> bool:
        """Whether one record can be had from here: see `found`."""
        if self._states[index] != READY:
            return False
        return bool(self._seen[index] == 1 or self._are_whole(np.array([index]))[0])

    def data(self, index: int) -> Bytes:
        """The image of a record that was found, read-only."""
        _, _, _, _, offset, _, size, _ = UNPACK(self._memory, HEADER_BYTES + 32 * index)
        return self._area[offset : offset + size]

    def tail(self, index: int) -> Bytes:
        """What a record that was found has in columns of any size, read-only."""
        entry = UNPACK(self._memory, HEADER_BYTES + 32 * index)
        return self._area[entry[5] : entry[5] + entry[7]]

    def orientation(self, index: int) -> int:
        """The EXIF orientation of a record that was found, where its pixels are kept."""
        return int(self._index["orientation"][index])

    def fixed(self, positions: NDArray[np.int64] | int) -> Bytes:
        """The columns of one size of records that were found: (positions, fixed_bytes)."""
        rows: Bytes = self._fixed[positions]
        return rows

    def stacked(self, positions: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """The images of records that were found, where they lie like rows of an array.

        Returns:
            (any number, size), read-only, and which row is whose; None where sizes differ.
        """
        entries = self._index[positions]
        size = int(entries["size"][0])
        offsets = entries["offset"].astype(np.int64)
        if not size or (entries["size"] != size).any() or (offsets % size).any():
            return None
        # Not beyond what was taken: there may be no memory behind it.
        taken = int(self._header[FRONT]) // size * size
        return self._area[:taken].reshape(-1, size), offsets // size

    def put(
        self, index: int, data: bytes | Bytes, fixed: bytes = b"", tail: bytes = b"", orientation: int = 1
    ) -> bool:
        """Keeps a record, if nobody has and there is room; says whether it was kept.

        Args:
            index: Of the record.
            data: Its image: bytes, or a flat array.
            fixed: Its columns of one size, end to end.
            tail: What else it has.
            orientation: The EXIF orientation of pixels.
        """
        if self._states[index] != EMPTY or not self.is_open:
            return False
        size, tail_size = len(data), len(tail)
        if max(size, tail_size) > LARGEST_PART_BYTES:
            return False
        with self._locked() as is_locked:
            places = self._claim(index, size, tail_size) if is_locked else None
        if places is None:
            return False
        offset, tail_offset = places
        self._writable[offset : offset + size] = np.frombuffer(data, np.uint8)
        self._writable[tail_offset : tail_offset + tail_size] = np.frombuffer(tail, np.uint8)
        self._writable_fixed[index] = np.frombuffer(fixed, np.uint8)
        crc = extend(extend(extend(mask(self._bound, index), data), fixed), tail)
        entry = HEADER_BYTES + 32 * index
        PACK(self._memory, entry + 1, orientation, 0, crc, offset, tail_offset, size, tail_size)
        # Last, because it says that the rest is there. Where a processor lets others see it sooner, the
        # checksum tells.
        self._states[index] = READY
        return True

    def note_filled(self) -> None:
        """Notes that all has been read once: whatever is missing could not be read, or is being written."""
        if not self._header[CLOSED]:
            self._header[CLOSED] = FILLED

    @property
    def is_open(self) -> bool:
        """Whether records are still being kept."""
        return bool(self._header[CLOSED] in (OPEN, FILLED))

    @property
    def is_filled(self) -> bool:
        """Whether there is nothing more to be read ahead."""
        return bool(self._header[CLOSED])

    @property
    def why_closed(self) -> str:
        """Why no more records are kept; empty while they are."""
        return REASONS.get(int(self._header[CLOSED]), "it is damaged")

    @property
    def ready(self) -> int:
        """How many records are kept."""
        return int(np.count_nonzero(self._states == READY))

    @property
    def used_bytes(self) -> int:
        """What the records take."""
        return int(self._header[FRONT] + self._header[BACK])

    def missing(self) -> NDArray[np.int64]:
        """The records that nobody has begun to keep."""
        return np.flatnonzero(self._states == EMPTY)

    def _are_whole(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Checks records that are ready; what is not whole is never used again, by no process."""
        area, end, width = self._area, len(self._area), self.layout.fixed_bytes
        # Taken out for all of them at once: of a small record's check that is the longer part.
        fixed = self._fixed[positions].tobytes()
        columns = (self._index[name][positions].tolist() for name in _CHECKED)
        is_whole = np.zeros(len(positions), np.bool_)
        for place, (index, crc, offset, size, tail, tail_size) in enumerate(
            zip(positions.tolist(), *columns, strict=True)
        ):
            if max(offset + size, tail + tail_size) <= end:
                found = extend(mask(self._bound, index), area[offset : offset + size])
                found = extend(found, fixed[place * width : (place + 1) * width])
                if tail_size:
                    found = extend(found, area[tail : tail + tail_size])
                is_whole[place] = found == crc
        self._seen[positions[is_whole]] = 1
        self._states[positions[~is_whole]] = BAD
        return is_whole

    def _forget_checks(self) -> None:
        # What this process has checked: a byte a record, and no memory for those that it never reads.
        self._seen = np.zeros(self.count, np.uint8)

    def _close_for(self, reason: int) -> None:
        self._header[CLOSED] = reason

    def _claim(self, index: int, size: int, tail_size: int) -> tuple[int, int] | None:
        """Takes room for a record; under the lock."""
        header = self._header
        if self._states[index] != EMPTY or not self.is_open:
            return None
        front, back = int(header[FRONT]) + size, int(header[BACK]) + tail_size
        if front + back > self.capacity_bytes:
            self._close_for(FULL)
            return None
        if not (self._back_front(front) and self._back_back(back)):
            return None
        header[FRONT], header[BACK] = front, back
        self._states[index] = CLAIMED
        return front - size, self.capacity_bytes - back

    def _back_front(self, needed: int) -> bool:
        """Sees to memory behind the area's first bytes."""
        backed = int(self._header[BACKED_FRONT])
        if needed <= backed:
            return True
        step = min(max(_STEP_BYTES, needed - backed), self.capacity_bytes - backed)
        if not self._take(backed, step):
            return False
        self._header[BACKED_FRONT] = backed + step
        return True

    def _back_back(self, needed: int) -> bool:
        """Sees to memory behind the area's last bytes."""
        backed = int(self._header[BACKED_BACK])
        if needed <= backed:
            return True
        step = min(max(_STEP_BYTES >> 4, needed - backed), self.capacity_bytes - backed)
        if not self._take(self.capacity_bytes - backed - step, step):
            return False
        self._header[BACKED_BACK] = backed + step
        return True

    def _take(self, offset: int, size: int) -> bool:
        """Asks the kernel for memory; closes the store where there is none to spare."""
        available = self._limits.available()
        if available is not None and available - size < self._header[MARGIN]:
            self._close_for(NO_MEMORY)
            return False
        if self._folder is not None and tmpfs_room(self._folder) < size:
            self._close_for(NO_SPACE)
            return False
        try:
            os.posix_fallocate(self.descriptor, self.layout.area_offset + offset, size)
        except OSError:
            self._close_for(NO_SPACE)
            return False
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Keeps all other writers away; False where the lock is not to be had."""
        with self._lock:
            if self._lock_file < 0:
                # An opening of this process's own: locks belong to openings, which forked children share.
                try:
                    self._lock_file = os.open(self._place, os.O_RDWR | os.O_CLOEXEC)
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
        """In a forked child: it has checked nothing, and lacks the thread that may have held the lock."""
        self._forget_checks()
        self._lock = threading.Lock()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1


def _close_own(descriptor: int, process: int) -> None:
    if os.getpid() == process:
        os.close(descriptor)


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _in_child() -> None:
    for store in _stores:
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
