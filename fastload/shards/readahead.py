"""Reading ahead: hints to the kernel of which parts of mapped files will be read soon."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_MADV_WILLNEED = 3  # asm-generic/mman-common.h


def fetch_ahead(indices: Sequence[int], stretch: Callable[[int], NDArray[np.uint8]]) -> None:
    """Has the kernel fetch stretches of mapped files into the page cache, and does not wait (madvise(2)).

    Two of them are looked at first (mincore(2)): where both are there already, nothing is done, because a
    hint costs microseconds and there may be hundreds in a batch. Elsewhere than on Linux nothing is done.

    Args:
        indices: Of the stretches.
        stretch: Gives one by its index, a view of a mapped file.
    """
    libc = _libc()
    if libc is None or not len(indices):
        return
    if all(_is_resident(libc, _pages(stretch(index))) for index in (indices[0], indices[-1])):
        return
    for index in indices:
        libc.madvise(*_pages(stretch(index)), _MADV_WILLNEED)


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


def _is_resident(libc: ctypes.CDLL, place: tuple[int, int]) -> bool:
    if not place[1]:
        return True
    pages = ctypes.create_string_buffer(-(-place[1] // mmap.PAGESIZE))
    if libc.mincore(*place, pages):
        return False
    return all(page & 1 for page in pages.raw)
