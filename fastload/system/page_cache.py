"""Page cache of files: prefetching, residency and dropping (madvise(2), mincore(2), posix_fadvise(2)).

Neither Python nor psutil offers mincore, so it is called through libc.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MADV_WILLNEED = 3  # asm-generic/mman-common.h

# The size of a huge page on x86-64, which the kernel never drops in part.
_RUN_BYTES = 2 << 20


def fetch_ahead(views: Iterable[NDArray[np.uint8]]) -> None:
    """Ask the kernel to read parts of mapped files into the page cache, without waiting; Linux only."""
    libc = _libc()
    if libc is not None:
        for view in views:
            libc.madvise(*_page_range(view), _MADV_WILLNEED)


def is_resident(view: NDArray[np.uint8]) -> bool:
    """Return True if a part of a mapped file is in the page cache, or if that is unknown."""
    pages = _resident_pages(view)
    return pages is None or bool(pages.all())


def can_drop() -> bool:
    """Return True if pages can be dropped: not on macOS and Windows."""
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
    # Since Linux 5.2, mincore reports only on files that the caller owns or may write.
    is_own = os.fstat(descriptor).st_uid == os.geteuid()
    if not is_own and not os.access(f"/proc/self/fd/{descriptor}", os.W_OK):
        return None
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        memory = mmap.mmap(descriptor, end - first, access=mmap.ACCESS_READ, offset=first)
    except (OSError, ValueError):  # it cannot be mapped, or has become shorter
        return None
    pages = _resident_pages(np.frombuffer(memory, np.uint8))
    memory.close()
    return None if pages is None else float(pages.mean())


@functools.cache
def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return libc


def _page_range(view: NDArray[np.uint8]) -> tuple[int, int]:
    """Return the address of a view's first page, and the number of bytes from there to the view's end."""
    begin = int(view.__array_interface__["data"][0])
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    return first, begin + view.size - first


def _resident_pages(view: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
    """Return which pages of a mapped file are in the page cache; None if that is unknown."""
    libc = _libc()
    address, size_bytes = _page_range(view)
    pages = np.zeros(-(-size_bytes // mmap.PAGESIZE), np.uint8)
    if libc is None or libc.mincore(address, size_bytes, pages.ctypes.data):
        return None
    return (pages & 1).astype(bool)
