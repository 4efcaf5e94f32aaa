"""The page cache: dropping a stretch of a file from it, and asking whether it went."""

from __future__ import annotations

import functools
import mmap
import os
import sys
from typing import Any

# asm-generic/mman-common.h.
_PROT_READ = 1
_MAP_SHARED = 1

# The largest run of pages that the kernel keeps as one on x86-64 (a huge page): none is dropped in part.
_RUN_BYTES = 2 << 20


def can_drop() -> bool:
    """Whether this system can be told to drop pages (posix_fadvise(2)): macOS and Windows cannot."""
    return hasattr(os, "posix_fadvise")


def drop(descriptor: int, begin: int, end: int) -> None:
    """Asks the kernel to drop the pages of a file's stretch, and those that it may keep as one with them.

    Dirty pages stay: of those it begins the writing alone, so that a later call finds them clean. Pages that
    any process has mapped and touched stay as well.

    Args:
        descriptor: The open file.
        begin: The stretch's first byte.
        end: The byte after its last.
    """
    if sys.platform != "win32" and can_drop():
        begin = begin // _RUN_BYTES * _RUN_BYTES
        end = -(-end // _RUN_BYTES) * _RUN_BYTES
        os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)


def resident_share(descriptor: int, begin: int, end: int) -> float | None:
    """Returns how much of a file's stretch lies in the page cache, 0 to 1; None where that is not told.

    mincore(2) tells. Since Linux 5.2 it does so only of files that the caller owns or could write; of others
    it says that everything is there.

    Args:
        descriptor: The open file, open for reading.
        begin: The stretch's first byte.
        end: The byte after its last.
    """
    libc = _libc()
    if libc is None or end <= begin or not _is_told(descriptor):
        return None
    import ctypes

    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    size = end - first
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    # Mapped by hand: Python's own mapping gives its address only through NumPy or if it is writable.
    address = libc.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, first)
    if address == ctypes.c_void_p(-1).value:
        return None
    try:
        if libc.mincore(address, size, pages):
            return None
    finally:
        libc.munmap(address, size)
    return sum(page & 1 for page in pages.raw) / len(pages.raw)


def _is_told(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    told = os.fstat(descriptor)
    return told.st_uid == os.geteuid() or os.access(f"/proc/self/fd/{descriptor}", os.W_OK)


@functools.cache
def _libc() -> Any:
    if sys.platform != "linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    return libc
