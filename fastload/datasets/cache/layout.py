"""The memory layout of a store: header, index, fixed columns, area."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

HEADER_BYTES = 4096


class Head:
    """The places of the header's numbers (int64); the key follows them."""

    COUNT, FIXED, CAPACITY, FRONT, BACK, BACKED_FRONT, BACKED_BACK, CLOSED, MARGIN = range(9)


class State:
    """The states of a record."""

    EMPTY, CLAIMED, READY, BAD = range(4)


class Closed:
    """Why a store takes no more records; while OPEN or FILLED it does."""

    OPEN, FULL, NO_SPACE, NO_MEMORY, FILLED = range(5)


REASONS = {
    Closed.OPEN: "",
    Closed.FULL: "the cache has reached its size limit",
    Closed.NO_SPACE: "its file system has no more space",
    Closed.NO_MEMORY: "more would leave less memory free than the margin",
    Closed.FILLED: "",
}

NUMBERS_BYTES = 8 * 9
KEY = slice(NUMBERS_BYTES, NUMBERS_BYTES + 16)

ENTRY = np.dtype(
    [
        ("state", "u1"), ("orientation", "u1"), ("", "u2"), ("crc", "<u4"), ("offset", "<u8"),
        ("tail_offset", "<u8"), ("size", "<u4"), ("tail_size", "<u4"),
    ]
)  # fmt: skip
UNPACK = struct.Struct("<BBHIQQII").unpack_from
PACK = struct.Struct("<BHIQQII").pack_into  # all but the state
LARGEST_PART_BYTES = (1 << 32) - 1

_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python has its name since 3.13


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


def prepare(descriptor: int, layout: Layout, margin_bytes: int, key: bytes) -> None:
    """Make an empty store in an empty file; raise OSError if there is no room for its index."""
    os.ftruncate(descriptor, layout.size_bytes)
    if layout.count:
        os.posix_fallocate(descriptor, 0, layout.area_offset)
    header = np.zeros(NUMBERS_BYTES // 8, np.int64)
    header[[Head.COUNT, Head.FIXED, Head.CAPACITY, Head.MARGIN]] = (
        layout.count, layout.fixed_bytes, layout.capacity_bytes, margin_bytes
    )  # fmt: skip
    os.pwrite(descriptor, header.tobytes() + key, 0)


def layout_of(descriptor: int) -> Layout:
    """Return the layout in a store's header; raise OSError if the header is damaged."""
    header = os.pread(descriptor, NUMBERS_BYTES, 0)
    if len(header) == NUMBERS_BYTES:
        numbers = np.frombuffer(header, np.int64).tolist()
        layout = Layout(numbers[Head.COUNT], numbers[Head.FIXED], numbers[Head.CAPACITY])
        is_sound = min(numbers) >= 0 and max(numbers) < 1 << 62 and numbers[Head.CLOSED] in REASONS
        is_sound = is_sound and numbers[Head.FRONT] + numbers[Head.BACK] <= layout.capacity_bytes
        if is_sound and layout.size_bytes == os.fstat(descriptor).st_size:
            return layout
    raise OSError(errno.EBADMSG, "its header is damaged")


def mapped(descriptor: int, size: int) -> mmap.mmap:
    """Map a store, without reserving memory for it."""
    options: dict[str, Any] = {"flags": mmap.MAP_SHARED | (_MAP_NORESERVE if sys.platform == "linux" else 0)}
    if sys.version_info >= (3, 13):
        options["trackfd"] = False
    memory = mmap.mmap(descriptor, size, **options)
    if hasattr(mmap, "MADV_DONTDUMP"):
        memory.madvise(mmap.MADV_DONTDUMP)
    return memory
