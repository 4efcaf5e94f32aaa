"""How a store lies in memory: its header, its index, and where the rest begins."""

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
NUMBERS = (
    "count",
    "fixed_bytes",
    "capacity",
    "front",
    "back",
    "backed_front",
    "backed_back",
    "closed",
    "margin",
)
COUNT, FIXED, CAPACITY, FRONT, BACK, BACKED_FRONT, BACKED_BACK, CLOSED, MARGIN = range(len(NUMBERS))
KEY = slice(8 * len(NUMBERS), 8 * len(NUMBERS) + 16)
ENTRY = np.dtype(
    [
        ("state", "u1"), ("orientation", "u1"), ("", "u2"), ("crc", "<u4"), ("offset", "<u8"),
        ("tail_offset", "<u8"), ("size", "<u4"), ("tail_size", "<u4"),
    ]
)  # fmt: skip
UNPACK = struct.Struct("<BBHIQQII").unpack_from
PACK = struct.Struct("<BHIQQII").pack_into  # all but the state
LARGEST_PART_BYTES = (1 << 32) - 1

EMPTY, CLAIMED, READY, BAD = range(4)

# What a store was closed for.
OPEN, FULL, NO_SPACE, NO_MEMORY, FILLED = range(5)
REASONS = {
    OPEN: "",
    FULL: "it is as large as it may become",
    NO_SPACE: "there is no more space where it lies",
    NO_MEMORY: "more would leave less memory free than the margin",
    FILLED: "",
}

_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


@dataclass(frozen=True, slots=True)
class Layout:
    """How large a store is.

    Attributes:
        count: The number of the dataset's records.
        fixed_bytes: What each has in columns of one size.
        capacity_bytes: Of the area.
    """

    count: int
    fixed_bytes: int
    capacity_bytes: int

    @property
    def area_offset(self) -> int:
        """Where the area begins."""
        before = HEADER_BYTES + self.count * (ENTRY.itemsize + self.fixed_bytes)
        return -(-before // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def size_bytes(self) -> int:
        """Of all."""
        return self.area_offset + self.capacity_bytes


def prepare(descriptor: int, layout: Layout, margin_bytes: int, key: bytes) -> None:
    """Makes an empty store of an empty file.

    Args:
        descriptor: The file.
        layout: Of the store.
        margin_bytes: What must stay free of the memory.
        key: 16 bytes that stand for what is kept in it.

    Raises:
        OSError: There is no room for its index.
    """
    os.ftruncate(descriptor, layout.size_bytes)
    if layout.count:
        os.posix_fallocate(descriptor, 0, layout.area_offset)
    header = np.zeros(len(NUMBERS), np.int64)
    header[[COUNT, FIXED, CAPACITY, MARGIN]] = (
        layout.count, layout.fixed_bytes, layout.capacity_bytes, margin_bytes
    )  # fmt: skip
    os.pwrite(descriptor, header.tobytes() + key, 0)


def layout_of(descriptor: int) -> Layout:
    """How large the store in a file is, as its header says.

    Raises:
        OSError: That is not how large the file is, or its other numbers cannot be.
    """
    header = os.pread(descriptor, 8 * len(NUMBERS), 0)
    if len(header) == 8 * len(NUMBERS):
        numbers = np.frombuffer(header, np.int64).tolist()
        layout = Layout(numbers[COUNT], numbers[FIXED], numbers[CAPACITY])
        is_sound = min(numbers) >= 0 and max(numbers) < 1 << 62 and numbers[CLOSED] in REASONS
        is_sound = is_sound and numbers[FRONT] + numbers[BACK] <= layout.capacity_bytes
        if is_sound and layout.size_bytes == os.fstat(descriptor).st_size:
            return layout
    raise OSError(errno.EBADMSG, "its header is damaged")


def mapped(descriptor: int, size: int) -> mmap.mmap:
    """Maps a store, which takes address space alone."""
    options: dict[str, Any] = {"flags": mmap.MAP_SHARED | (_MAP_NORESERVE if sys.platform == "linux" else 0)}
    if sys.version_info >= (3, 13):
        options["trackfd"] = False
    memory = mmap.mmap(descriptor, size, **options)
    if hasattr(mmap, "MADV_DONTDUMP"):
        memory.madvise(mmap.MADV_DONTDUMP)
    return memory
