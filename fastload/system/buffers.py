"""Memory that is used again once nobody holds what lay there.

Fresh pages cost more than what is done with them: of the 1.0 ms that 6 MB of normalised thumbnails take in
new memory, 0.7 are the kernel's, which clears the pages; and the C library gives large stretches back to it
as soon as they are freed.
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

# So many stretches are kept for each thread: a batch is made of three, while others are held.
_KEPT = 8

# Below, the C library's own memory is as good.
_SMALLEST_BYTES = 1 << 16


def recycled(shape: Sequence[int], dtype: Any = np.uint8) -> NDArray[Any]:
    """An uninitialised array, in memory of an earlier one of this thread's where there is such.

    Args:
        shape: Of the array.
        dtype: Of the array.
    """
    size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if size_bytes < _SMALLEST_BYTES:
        return np.empty(shape, dtype)
    array: NDArray[Any] = _stretch(size_bytes).view(dtype).reshape(shape)
    return array


def recycled_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised, contiguous tensor on the CPU: see `recycled`."""
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes < _SMALLEST_BYTES:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    return torch.from_numpy(_stretch(size_bytes)).view(dtype).view(tuple(shape))


class _Kept(threading.local):
    def __init__(self) -> None:
        self.stretches: deque[NDArray[np.uint8]] = deque(maxlen=_KEPT)


_kept = _Kept()


def _stretch(size_bytes: int) -> NDArray[np.uint8]:
    """Bytes that nobody else holds."""
    stretches = _kept.stretches
    # Powers of two, so that images of different sizes follow each other; what is not touched takes no memory.
    rounded = 1 << (size_bytes - 1).bit_length()
    for place in range(len(stretches)):
        # Whoever holds an array or a tensor of it, or a view of one, holds a reference besides.
        if stretches[place].size == rounded and getrefcount(stretches[place]) == _UNHELD:
            return stretches[place][:size_bytes]
    # By torch, which begins it with a cache line: what straddles two is copied at half the speed.
    stretches.append(torch.empty(rounded, dtype=torch.uint8, device="cpu").numpy())
    return stretches[-1][:size_bytes]


def _count_unheld() -> int:
    """The references counted of what a deque alone holds; releases of Python differ."""
    stretches = deque([object()])
    return getrefcount(stretches[0])


_UNHELD = _count_unheld()
