"""Reading ahead: hints to the kernel of which parts of mapped files will be read soon."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MADV_WILLNEED = 3  # asm-generic/mman-common.h


def fetch_ahead(stretches: Iterable[NDArray[np.uint8]]) -> None:
    """Has the kernel fetch stretches of mapped files into the page cache, and does not wait (madvise(2)).

    Elsewhere than on Linux nothing is done.

    Args:
        stretches: Views of mapped files.
    """
    libc = _libc()
    if libc is not None:
        for stretch in stretches:
            libc.madvise(*_pages(stretch), _MADV_WILLNEED)


def is_resident(stretch: NDArray[np.uint8]) -> bool:
    """Whether a stretch of a mapped file lies in the page cache (mincore(2)); True where that cannot be told.

    Args:
        stretch: A view of the mapped file.
    """
    libc = _libc()
    address, size_bytes = _pages(stretch)
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


def _pages(stretch: NDArray[np.uint8]) -> tuple[int, int]:
    """The address of the first page of a stretch, and the bytes from there to its end."""
    begin = int(stretch.__array_interface__["data"][0])
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    return first, begin + stretch.size - first
