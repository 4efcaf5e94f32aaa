"""Uninitialised arrays and tensors in memory that is reused once nothing refers to it.

New pages cost more than the work on them: of the 1.0 ms that 6 MB of normalised thumbnails take in new
memory, the kernel spends 0.7 ms clearing pages; and the C library returns large blocks to the kernel as soon
as they are freed. Where a library allocates by itself, `keep_freed_memory` makes the C library keep them:
decoding a photo of 960×720 then takes 3.2 ms instead of 5.5.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.system.memory import keep_freed_memory

# Blocks of each thread: a batch needs three, and those of earlier batches may still be in use.
_BLOCKS = 8

# Smaller allocations are served from the C library's own free lists at no extra cost.
_SMALLEST_BYTES = 1 << 16


def reusable_array(shape: Sequence[int], dtype: Any = np.uint8) -> NDArray[Any]:
    """Return an uninitialised array, if possible in the memory of an earlier array of this thread."""
    size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if size_bytes < _SMALLEST_BYTES:
        return np.empty(shape, dtype)
    array: NDArray[Any] = _block(size_bytes).view(dtype).reshape(shape)
    return array


def reusable_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialised contiguous CPU tensor; see `reusable_array`."""
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes < _SMALLEST_BYTES:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    return torch.from_numpy(_block(size_bytes)).view(dtype).view(tuple(shape))


class _Blocks(threading.local):
    def __init__(self) -> None:
        self.blocks: deque[NDArray[np.uint8]] = deque(maxlen=_BLOCKS)


_of_thread = _Blocks()


def _block(size_bytes: int) -> NDArray[np.uint8]:
    """Return a block of bytes to which nothing else refers."""
    blocks = _of_thread.blocks
    # Powers of two, so that images of similar sizes reuse each other's memory; untouched pages cost nothing.
    rounded = 1 << (size_bytes - 1).bit_length()
    for index in range(len(blocks)):
        # Every array, tensor or view of a block holds a reference to it, whichever thread has it.
        if blocks[index].size == rounded and getrefcount(blocks[index]) == _UNUSED_COUNT:
            return blocks[index][:size_bytes]
    keep_freed_memory()
    # torch aligns to a cache line: rows that straddle two lines are copied at half the speed.
    blocks.append(torch.empty(rounded, dtype=torch.uint8, device="cpu").numpy())
    return blocks[-1][:size_bytes]


def _count_unused() -> int:
    """Return the reference count of an object that only a deque holds, which depends on Python's version."""
    blocks = deque([object()])
    return getrefcount(blocks[0])


_UNUSED_COUNT = _count_unused()
