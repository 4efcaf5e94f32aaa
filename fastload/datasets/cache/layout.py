"""Memory layout of a store: header, index, fixed columns, area."""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass

import numpy as np

HEADER_BYTES = 4096

# `front` and `back`: bytes taken from either end of the area; `granted`: bytes for which there was room when
# free memory was last read.
_NUMBERS = ("count", "fixed_bytes", "capacity_bytes", "front", "back", "granted", "closed")
HEADER = np.dtype([*((name, "<i8") for name in _NUMBERS), ("key", "V16")])

_PLACES = ("offset", "tail_offset", "size", "tail_size")
ENTRY = np.dtype([("state", "<u4"), ("crc", "<u4"), *((name, "<u8") for name in _PLACES)])


class RecordState:
    """The states of a record."""

    EMPTY, CLAIMED, READY, BAD = range(4)


class Closed:
    """Reasons why a store takes no more records; with OPEN it still does."""

    OPEN, FULL, NO_SPACE, NO_MEMORY = range(4)


REASONS = {
    Closed.OPEN: "",
    Closed.FULL: "the cache has reached its size limit",
    Closed.NO_SPACE: "its file system has no more space",
    Closed.NO_MEMORY: "more would leave less memory free than the margin",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of records, the bytes that each has in fixed columns, and the bytes of the area."""

    count: int
    fixed_bytes: int
    capacity_bytes: int

    @property
    def area_offset(self) -> int:
        """Offset of the area, a multiple of the page size."""
        before = HEADER_BYTES + self.count * (ENTRY.itemsize + self.fixed_bytes)
        return -(-before // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def size_bytes(self) -> int:
        """Size of the store."""
        return self.area_offset + self.capacity_bytes


def prepare(descriptor: int, layout: Layout, key: bytes) -> None:
    """Make an empty store in an empty file; raise OSError if there is no room for its index."""
    os.ftruncate(descriptor, layout.size_bytes)
    if layout.count:
        os.posix_fallocate(descriptor, 0, layout.area_offset)
    sizes = layout.count, layout.fixed_bytes, layout.capacity_bytes
    os.pwrite(descriptor, np.array((*sizes, 0, 0, 0, Closed.OPEN, key), HEADER).tobytes(), 0)


def layout_of(descriptor: int) -> Layout:
    """Return the layout in a store's header; raise OSError if the header is damaged."""
    data = os.pread(descriptor, HEADER.itemsize, 0)
    if len(data) == HEADER.itemsize:
        *numbers, _ = np.frombuffer(data, HEADER)[0].item()
        count, fixed_bytes, capacity_bytes, front, back, _, closed = numbers
        layout = Layout(count, fixed_bytes, capacity_bytes)
        is_sound = min(numbers) >= 0 and max(numbers) < 1 << 62 and closed in REASONS
        is_sound = is_sound and front + back <= capacity_bytes
        if is_sound and layout.size_bytes == os.fstat(descriptor).st_size:
            return layout
    raise OSError(errno.EBADMSG, "its header is damaged")
