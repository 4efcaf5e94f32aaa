"""Page cache of mapped files: readahead hints and residency (madvise(2), mincore(2))."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MADV_WILLNEED = 3  # asm-generic/mman-common.h


def fetch_ahead(views: Iterable[NDArray[np.uint8]]) -> None:
    """Ask the kernel to read parts of mapped files into the page cache, without waiting; Linux only."""
    libc = _libc()
    if libc is not None:
        for view in views:
            libc.madvise(*_page_range(view), _MADV_WILLNEED)


def is_resident(view: NDArray[np.uint8]) -> bool:
    """Return whether a part of a mapped file is in the page cache; True if that is unknown."""
    libc = _libc()
    address, size_bytes = _page_range(view)
    if libc is None or not size_bytes:
        return True
    pages = ctypes.create_string_buffer(-(-size_bytes // mmap.PAGESIZE))
    if libc.mincore(address, size_bytes, pages):
        return True
    return all(page & 1 for page in pages.raw)


@functools.cache
def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    return libc


def _page_range(view: NDArray[np.uint8]) -> tuple[int, int]:
    """Return the address of a view's first page, and the number of bytes from there to the view's end."""
    begin = int(view.__array_interface__["data"][0])
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    return first, begin + view.size - first
