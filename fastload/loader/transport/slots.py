"""Slots: a worker's section of the shared memory, cut into places of the sizes that are asked for.

    section:  flags (one byte a slot: 0 free, 1 taken) │ run of slots │ run of slots │ …

A slot's size is a power of two, and the slots of one size come in runs, each twice as long as the one
before. Only what is written to takes memory, so rounding up costs none. The lowest free slot is taken
first: its pages are the likeliest to be in the CPU's cache, and as few slots are used as are ever held
at once.

The worker alone sets a flag, the training process alone clears it.
"""

from __future__ import annotations

import mmap
import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.loader.transport.memory import Arena

# So many slots a section may have: more than a training holds. Whoever keeps more tensors than that gets
# the rest torch's way.
_FLAG_BYTES = 65_536
_FREE, _TAKEN = b"\0", 1

# A page is the least that can be given back to the system.
_SMALLEST_SLOT_BYTES = 4096
_FIRST_RUN = 4

# How often, in takes, slots that were free all along give their memory back.
_TAKES_BETWEEN_TRIMS = 128


class Slot(NamedTuple):
    """A place in the shared memory: where its flag lies, and where its bytes begin."""

    flag: int
    offset: int


class _Run(NamedTuple):
    """Slots side by side: the first one's place, and how many there are."""

    first: Slot
    length: int


class _Size:
    """All slots of one size."""

    def __init__(self, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.runs: list[_Run] = []
        # The slots that may have pages, and the highest one taken since the last trim.
        self.touched: set[Slot] = set()
        self.highest = -1


class Slots:
    """The slots of one worker.

    Args:
        arena: The memory.
        section: The worker's number.
    """

    def __init__(self, arena: Arena, section: int) -> None:
        self._memory = arena.memory
        self._keeps_pages = arena.keeps_pages
        start = section * arena.section_bytes
        self._next_flag, self._last_flag = start, start + _FLAG_BYTES
        self._next_offset, self._end = start + _FLAG_BYTES, start + arena.section_bytes
        self._sizes: dict[int, _Size] = {}
        self._takes = 0
        # What this worker itself still refers to must not be written over either.
        self._lent: dict[int, weakref.ref[NDArray[np.uint8]]] = {}

    def take(self, size: int) -> tuple[Slot, NDArray[np.uint8]] | None:
        """A free slot and its first `size` bytes, or None where no such slot can be had.

        Until `hand_over`, it counts as taken for as long as the array, or a view of it, is referred to.
        """
        slot_bytes = 1 << max(size - 1, _SMALLEST_SLOT_BYTES - 1).bit_length()
        sizes = self._sizes.get(slot_bytes)
        if sizes is None:
            sizes = self._sizes[slot_bytes] = _Size(slot_bytes)
        slot = self._free_slot(sizes) or self._first_of_new_run(sizes)
        if slot is None:
            return None
        array: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8, size, slot.offset)
        self._lent[slot.flag] = weakref.ref(array)
        self._note_take(sizes, slot)
        return slot, array

    def hand_over(self, slot: Slot) -> None:
        """Marks a slot as taken until the training process frees it."""
        self._memory[slot.flag] = _TAKEN

    def _free_slot(self, sizes: _Size) -> Slot | None:
        for first, length in sizes.runs:
            flag = self._memory.find(_FREE, first.flag, first.flag + length)
            while flag >= 0 and self._is_lent(flag):
                flag = self._memory.find(_FREE, flag + 1, first.flag + length)
            if flag >= 0:
                return Slot(flag, first.offset + (flag - first.flag) * sizes.slot_bytes)
        return None

    def _is_lent(self, flag: int) -> bool:
        reference = self._lent.get(flag)
        return reference is not None and reference() is not None

    def _first_of_new_run(self, sizes: _Size) -> Slot | None:
        wanted = 2 * sizes.runs[-1].length if sizes.runs else _FIRST_RUN
        room = (self._end - self._next_offset) // sizes.slot_bytes
        length = min(wanted, self._last_flag - self._next_flag, room)
        if length < 1:
            return None
        first = Slot(self._next_flag, self._next_offset)
        sizes.runs.append(_Run(first, length))
        self._next_flag += length
        self._next_offset += length * sizes.slot_bytes
        return first

    def _note_take(self, sizes: _Size, slot: Slot) -> None:
        sizes.touched.add(slot)
        sizes.highest = max(sizes.highest, slot.flag)
        self._takes += 1
        if self._takes % _TAKES_BETWEEN_TRIMS == 0 and not self._keeps_pages:
            for each in self._sizes.values():
                self._trim(each)

    def _trim(self, sizes: _Size) -> None:
        """Gives back the memory of slots that have not been needed since the last trim."""
        for slot in [slot for slot in sizes.touched if slot.flag > sizes.highest]:
            if self._memory[slot.flag] != _TAKEN and not self._is_lent(slot.flag):
                self._memory.madvise(mmap.MADV_REMOVE, slot.offset, sizes.slot_bytes)
                sizes.touched.discard(slot)
        sizes.highest = -1
