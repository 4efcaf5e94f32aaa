"""A store: one copy of a dataset's records in memory that many processes map, written once and never evicted.

    header    4 KiB: the dataset's key, how much of the area is taken, why the store is closed
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
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from fastload.datasets.cache.options import Form
from fastload.shards.checksum import identity_crc, row_mask
from fastload.system.cache_folder import CacheFolder, cache_name
from fastload.system.memory import Room, memory_room, tmpfs_room

if sys.platform != "win32":
    import fcntl

Bytes = NDArray[np.uint8]

_HEADER_BYTES = 4096

# `front` and `back`: bytes taken from either end of the area; `granted`: bytes for which there was room when
# free memory was last read.
_NUMBERS = ("front", "back", "granted", "closed")
_HEADER = np.dtype([*((name, "<i8") for name in _NUMBERS), ("key", "V16")])

_PLACES = ("offset", "tail_offset", "size", "tail_size")
_ENTRY = np.dtype([("state", "<u4"), ("crc", "<u4"), *((name, "<u8") for name in _PLACES)])

# The states of a record.
_EMPTY, _CLAIMED, _READY, _BAD = range(4)

# Why a store takes no more records; the first is for one that does.
_REASONS = (
    "",
    "the cache has reached its size limit",
    "its file system has no more space",
    "more would leave less memory free than the margin",
)
_OPEN, _FULL, _NO_SPACE, _NO_MEMORY = range(4)

# The step after which free memory is read again, which takes 0.2 ms.
_STEP_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Opening:
    """Parameters with which a store is opened, in this process or, pickled, in another."""

    kind: Literal["ram", "tmpfs"]
    form: Form
    folder: CacheFolder  # where its users register; in a tmpfs, the store lies there too
    dataset: str  # the folder or URL of the originals
    key: str  # 32 hexadecimal digits that identify the dataset's content and the form in which it is stored
    count: int  # of records
    fixed_bytes: int  # of a record's columns of fixed size
    capacity_bytes: int  # of the area of a new store; an existing one has its own
    room: Room = memory_room

    @property
    def name(self) -> str:
        """The name in the folder."""
        return cache_name(self.dataset, self.key)

    @property
    def area_offset(self) -> int:
        """Offset of the area, a multiple of the page size."""
        before = _HEADER_BYTES + self.count * (_ENTRY.itemsize + self.fixed_bytes)
        return -(-before // mmap.PAGESIZE) * mmap.PAGESIZE

    def create(self) -> int:
        """Return a descriptor of a new, empty store; raise OSError if there is no room for its index."""
        if self.kind == "ram":
            descriptor = os.memfd_create("fastload-cache")
        else:
            with tempfile.TemporaryFile(dir=self.folder.path, buffering=0) as file:
                descriptor = os.dup(file.fileno())
        try:
            os.ftruncate(descriptor, self.area_offset + self.capacity_bytes)
            if self.count:
                os.posix_fallocate(descriptor, 0, self.area_offset)
            header = np.array((0, 0, 0, _OPEN, bytes.fromhex(self.key)), _HEADER)
            os.pwrite(descriptor, header.tobytes(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class Store:
    """A store, mapped by this process, which closes the descriptor in the end.

    `fixed` holds the fixed columns, (records, fixed_bytes), read-only: valid for records that were found.
    Raises OSError if it is of another dataset.
    """

    def __init__(self, descriptor: int, opening: Opening) -> None:
        self.descriptor, self.opening = descriptor, opening
        self.count = opening.count
        size_bytes = os.fstat(descriptor).st_size
        # The process that made it may have had more or less room.
        self.capacity_bytes = size_bytes - opening.area_offset
        memory = mmap.mmap(descriptor, size_bytes)
        if hasattr(mmap, "MADV_DONTDUMP"):
            memory.madvise(mmap.MADV_DONTDUMP)
        self._header = np.frombuffer(memory, _HEADER, 1)[0]
        key = bytes.fromhex(opening.key)
        if self.capacity_bytes < 0 or self._header["key"].tobytes() != key:
            raise OSError(errno.EBADMSG, "it belongs to another dataset")
        # As in shards, a record's checksum is bound to the store and to the record's number.
        self._bound = identity_crc(key)
        self._index = np.frombuffer(memory, _ENTRY, self.count, _HEADER_BYTES)
        self._states = self._index["state"]
        everything = np.frombuffer(memory, np.uint8)
        begin = _HEADER_BYTES + self._index.nbytes
        end = begin + self.count * opening.fixed_bytes
        self._writable_fixed = everything[begin:end].reshape(self.count, opening.fixed_bytes)
        self._writable = everything[opening.area_offset :]
        self.fixed, self._area = self._writable_fixed[:], self._writable[:]
        self.fixed.flags.writeable = self._area.flags.writeable = False
        self._forget_checks()
        _stores.add(self)
        weakref.finalize(self, os.close, descriptor).atexit = False

    def found(self, positions: NDArray[np.int64], always_check: bool = False) -> NDArray[np.bool_]:
        """Return a mask of the records that can be read; those new to this process are checked first."""
        is_ready: NDArray[np.bool_] = self._states[positions] == _READY
        # Comparing booleans: ready, but not seen before.
        wanted = is_ready if always_check else is_ready > self._seen[positions]
        if np.count_nonzero(wanted):
            places = np.flatnonzero(wanted)
            is_ready[places] = [self._is_intact(index) for index in positions[places].tolist()]
        return is_ready

    def has(self, index: int) -> bool:
        """Return True if one record can be read from here; see `found`."""
        if self._states[index] != _READY:
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
        if self._states[index] != _EMPTY or not self.is_open:
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
        self._index[index] = (_CLAIMED, crc, offset, tail_offset, size, tail_size)
        # Last, because it makes the rest visible. On a processor that reorders writes, other processes may
        # see it sooner: then their check of the checksum fails.
        self._states[index] = _READY
        return True

    @property
    def is_open(self) -> bool:
        """True while records are being stored."""
        return not self.why_closed

    @property
    def why_closed(self) -> str:
        """The reason why no more records are stored; "" while they are."""
        closed = int(self._header["closed"])
        return _REASONS[closed] if 0 <= closed < len(_REASONS) else "it is damaged"

    @property
    def ready(self) -> int:
        """The number of records that are stored."""
        return int(np.count_nonzero(self._states == _READY))

    @property
    def used_bytes(self) -> int:
        """The memory that these take."""
        return int(self._header["front"] + self._header["back"])

    def _is_intact(self, index: int) -> bool:
        """Check a record that is ready; mark a damaged one, so that no process uses it again."""
        _, crc, offset, tail_offset, size, tail_size = self._index[index].item()
        is_intact: bool = max(offset + size, tail_offset + tail_size) <= len(self._area)
        if is_intact:
            found = extend(row_mask(self._bound, index), self.data(index))
            found = extend(extend(found, self.fixed[index].tobytes()), self.tail(index).tobytes())
            is_intact = bool(found == crc)
        if is_intact:
            self._seen[index] = True
        else:
            self._states[index] = _BAD
        return is_intact

    def _forget_checks(self) -> None:
        # The records that this process has checked: a byte each. Pages take no memory until they are written.
        self._seen = np.zeros(self.count, bool)

    def _claim(self, index: int, size: int, tail_size: int) -> tuple[int, int] | None:
        """Allocate memory for a record, under the lock; return the offsets of image and tail."""
        if self._states[index] != _EMPTY or not self.is_open:
            return None
        header, capacity = self._header, self.capacity_bytes
        offset = int(header["front"])
        front, back = offset + size, int(header["back"]) + tail_size
        if front + back > capacity:
            header["closed"] = _FULL
        elif front + back > header["granted"]:
            granted = int(header["granted"])
            step = min(max(_STEP_BYTES, front + back - granted), capacity - granted)
            if self.opening.room() < step:
                header["closed"] = _NO_MEMORY
            elif self.opening.kind == "tmpfs" and tmpfs_room(str(self.opening.folder.path)) < step:
                header["closed"] = _NO_SPACE
            else:
                header["granted"] = granted + step
        if not (self.is_open and self._allocate(offset, size) and self._allocate(capacity - back, tail_size)):
            return None
        header["front"], header["back"] = front, back
        self._states[index] = _CLAIMED
        return offset, capacity - back

    def _allocate(self, offset: int, size: int) -> bool:
        """Allocate memory for a part of the area; close the store if there is no space."""
        try:
            if size:
                os.posix_fallocate(self.descriptor, self.opening.area_offset + offset, size)
        except OSError:
            self._header["closed"] = _NO_SPACE
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
