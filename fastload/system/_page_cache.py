"""Dropping parts of files from the page cache, and checking that they are gone.

mincore(2) is called through libc, because neither Python nor psutil offers it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import numpy as np

# The largest run of pages that the kernel keeps as one on x86-64 (a huge page): it is never dropped in part.
_RUN_BYTES = 2 << 20


def can_drop() -> bool:
    """Return True if pages can be dropped (posix_fadvise(2)): not on macOS and Windows."""
    return hasattr(os, "posix_fadvise")


def drop(descriptor: int, begin: int, end: int) -> None:
    """Ask the kernel to drop a file's bytes from `begin` to `end`, and the huge pages that they touch.

    Dirty pages stay, but start being written, so that a later call finds them clean. Pages that a process
    has mapped and touched stay as well.
    """
    if sys.platform != "win32" and can_drop():
        begin = begin // _RUN_BYTES * _RUN_BYTES
        end = -(-end // _RUN_BYTES) * _RUN_BYTES
        os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)


def resident_share(descriptor: int, begin: int, end: int) -> float | None:
    """Return the share (0 to 1) of a file's bytes that are in the page cache; None if it is not known."""
    if sys.platform != "linux" or end <= begin:
        return None
    # Since Linux 5.2, mincore tells only of files that the caller owns or may write.
    is_own = os.fstat(descriptor).st_uid == os.geteuid()
    if not is_own and not os.access(f"/proc/self/fd/{descriptor}", os.W_OK):
        return None
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        memory = mmap.mmap(descriptor, end - first, access=mmap.ACCESS_READ, offset=first)
    except (OSError, ValueError):  # it cannot be mapped, or has become shorter
        return None
    with memory:
        mapped = np.frombuffer(memory, np.uint8)
        pages = np.zeros(-(-mapped.size // mmap.PAGESIZE), np.uint8)
        address, size = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(mapped.size)
        has_failed = ctypes.CDLL(None).mincore(address, size, ctypes.c_void_p(pages.ctypes.data))
        del mapped  # an array of a mapping keeps it from being closed
    return None if has_failed else float((pages & 1).mean())
