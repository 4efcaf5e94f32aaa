"""Allocation of slots in a worker's section of the shared memory.

    section:  flags (one byte per slot: 0 free, 1 taken) │ run of slots │ run of slots │ …

A slot's size is a power of two: rounding up costs nothing, because a page takes memory only once it is
written. Slots of one size are allocated in runs, each twice as long as the one before. The lowest free slot
is taken first: its pages are the most likely to be in the CPU's cache.

Only the worker sets a flag, and only the training process clears it.
"""

from __future__ import annotations

import mmap
import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.loader.transport.memory import Arena

# Slots per section, more than any training holds at the same time; further tensors are sent in torch's way.
_FLAG_BYTES = 65_536
_FREE, _TAKEN = b"\0", 1

# One page, the smallest unit that can be returned to the system.
_SMALLEST_SLOT_BYTES = 4096
_FIRST_RUN = 4

# After this many takes, the memory of slots that were not used since the last trim is returned to the system.
_TAKES_BETWEEN_TRIMS = 128


class Slot(NamedTuple):
    """Offsets of a slot's flag and of its bytes in the shared memory."""

    flag: int
    offset: int


class _SizeClass:
    """The slots of one size."""

    def __init__(self, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        # The first slot and the length of each run.
        self.runs: list[tuple[Slot, int]] = []
        # Slots that may have pages, and the highest flag taken since the last trim.
        self.touched: set[Slot] = set()
        self.highest = -1


class Slots:
    """The slots of the worker with number `section`."""

    def __init__(self, arena: Arena, section: int) -> None:
        self._memory = arena.memory
        self._keeps_pages = arena.keeps_pages
        start = section * arena.section_bytes
        self._next_flag, self._last_flag = start, start + _FLAG_BYTES
        self._next_offset, self._end = start + _FLAG_BYTES, start + arena.section_bytes
        self._size_classes: dict[int, _SizeClass] = {}
        self._takes = 0
        # Slots that this worker itself still refers to must not be overwritten either.
        self._lent: dict[int, weakref.ref[NDArray[np.uint8]]] = {}

    def take(self, size: int) -> tuple[Slot, NDArray[np.uint8]] | None:
        """Return a free slot and its first `size` bytes; None if there is no slot.

        Until `hand_over`, the slot counts as taken as long as the array or a view of it exists.
        """
        slot_bytes = 1 << max(size - 1, _SMALLEST_SLOT_BYTES - 1).bit_length()
        size_class = self._size_classes.get(slot_bytes)
        if size_class is None:
            size_class = self._size_classes[slot_bytes] = _SizeClass(slot_bytes)
        slot = self._free_slot(size_class) or self._first_of_new_run(size_class)
        if slot is None:
            return None
        array: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8, size, slot.offset)
        self._lent[slot.flag] = weakref.ref(array)
        self._note_take(size_class, slot)
        return slot, array

    def hand_over(self, slot: Slot) -> None:
        """Mark a slot as taken until the training process frees it."""
        self._memory[slot.flag] = _TAKEN

    def _free_slot(self, size_class: _SizeClass) -> Slot | None:
        for first, length in size_class.runs:
            flag = self._memory.find(_FREE, first.flag, first.flag + length)
            while flag >= 0 and self._is_lent(flag):
                flag = self._memory.find(_FREE, flag + 1, first.flag + length)
            if flag >= 0:
                return Slot(flag, first.offset + (flag - first.flag) * size_class.slot_bytes)
        return None

    def _is_lent(self, flag: int) -> bool:
        reference = self._lent.get(flag)
        return reference is not None and reference() is not None

    def _first_of_new_run(self, size_class: _SizeClass) -> Slot | None:
        wanted = 2 * size_class.runs[-1][1] if size_class.runs else _FIRST_RUN
        room = (self._end - self._next_offset) // size_class.slot_bytes
        length = min(wanted, self._last_flag - self._next_flag, room)
        if length < 1:
            return None
        first = Slot(self._next_flag, self._next_offset)
        size_class.runs.append((first, length))
        self._next_flag += length
        self._next_offset += length * size_class.slot_bytes
        return first

    def _note_take(self, size_class: _SizeClass, slot: Slot) -> None:
        size_class.touched.add(slot)
        size_class.highest = max(size_class.highest, slot.flag)
        self._takes += 1
        if self._takes % _TAKES_BETWEEN_TRIMS == 0 and not self._keeps_pages:
            for each in self._size_classes.values():
                self._trim(each)

    def _trim(self, size_class: _SizeClass) -> None:
        """Return the memory of slots that have not been used since the last trim."""
        for slot in [slot for slot in size_class.touched if slot.flag > size_class.highest]:
            if self._memory[slot.flag] != _TAKEN and not self._is_lent(slot.flag):
                self._memory.madvise(mmap.MADV_REMOVE, slot.offset, size_class.slot_bytes)
                size_class.touched.discard(slot)
        size_class.highest = -1
