"""Shared memory: one sparse, anonymous file with a section for each worker, divided into slots.

    section:  flags (one byte per slot: 0 free, 1 taken) │ run of slots │ run of slots │ …

The file is a Linux memfd, passed to workers by descriptor, so it is not limited by the size of /dev/shm and
vanishes with its processes, however these end. A page takes memory only once it is written.

A slot's size is a power of two: rounding up costs nothing, because a page takes memory only once it is
written. Slots of one size are allocated in runs, each twice as long as the one before. The lowest free slot
is taken first: its pages are the most likely to be in the CPU's cache.

Only the worker sets a flag, and only the training process clears it.

A forked child shares the memory of every batch that its parent held. If the parent drops such a batch, its
slot must not be freed, or a worker would overwrite the child's batch. So a fork while batches are held
creates a pipe, whose writing end the child and its own children inherit. Once the reading end reports a
hang-up, all of them have ended (or run another program).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import multiprocessing
import os
import sys
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from fastload.loader.clock import STAT_COUNT

# Address space for each worker. 64 GiB allow 2,000 workers in x86-64's 128 TiB, and hold 400 float32 batches
# of 256 images of 224x224; under a limit on address space (ulimit -v), less is used.
_SECTION_BYTES = 1 << 36
_SMALLEST_SECTION_BYTES = 1 << 28

# The share of the remaining address space that may be used under such a limit; the training needs the rest.
_SHARE_OF_LIMIT = 0.25

# In Python's mmap module from 3.13 on; 0x4000 on Linux, on every architecture that torch supports.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)

# Slots per section, more than any training holds at the same time; further tensors are sent in torch's way.
_FLAG_BYTES = 65_536
_FREE, _TAKEN = b"\0", 1

# One page, the smallest unit that can be returned to the system.
_SMALLEST_SLOT_BYTES = 4096
_FIRST_RUN = 4

# After this many takes, the memory of slots that were not used since the last trim is returned to the system.
_TAKES_BETWEEN_TRIMS = 128

_tokens = itertools.count()
_arenas: weakref.WeakValueDictionary[int, Arena] = weakref.WeakValueDictionary()

# The fork in progress: several threads may fork at the same time.
_forking = threading.local()

# The writing ends that this process has inherited: they stay open to show its parents that it is alive.
_inherited: list[Connection] = []


class Loan(weakref.ref[NDArray[np.uint8]]):
    """A weak reference to a held slot's bytes, with its flag, and a pipe of each fork that shared them.

    A pipe is None if no descriptor was left for one: the forked processes then never count as ended.
    """

    __slots__ = ("flag", "seen_by")
    flag: int
    seen_by: list[Connection | None]

    def is_seen(self) -> bool:
        """Return whether forked processes may still see the slot."""
        return not all(pipe is not None and pipe.poll() for pipe in self.seen_by)


class Arena:
    """The shared memory of one iterator's workers, mapped in the training process or in a worker.

    It can be pickled only for a process that is being started, like multiprocessing's queues.

    Attributes:
        memory: The mapping. The section of worker `i` begins at `i * section_bytes`; the worker stats follow
            the last section.
        keeps_pages: True if pages stay allocated after use, because they are page-locked for a device.
        token: The number by which workers refer to it.
    """

    def __init__(self, descriptor: int, sections: int, section_bytes: int, keeps_pages: bool) -> None:
        self.sections = sections
        self.section_bytes = section_bytes
        self.keeps_pages = keeps_pages
        self.token = next(_tokens)
        self._held: dict[int, Loan] = {}
        self._returned: deque[Loan] = deque()
        self._descriptor = descriptor
        try:
            stats_bytes = sections * STAT_COUNT * np.dtype(np.float64).itemsize
            pages = -(-stats_bytes // mmap.PAGESIZE)
            self.memory = _mapped(descriptor, sections * section_bytes + pages * mmap.PAGESIZE)
        except (OSError, ValueError):
            os.close(descriptor)
            raise

    @classmethod
    def create(cls, sections: int, keeps_pages: bool = False) -> Arena | None:
        """Return memory for that many workers; None without memfd, or if the address space is too limited."""
        if not hasattr(os, "memfd_create"):
            return None
        room = _address_space_left()
        section_bytes = _SECTION_BYTES
        while section_bytes >= _SMALLEST_SECTION_BYTES:
            if sections * section_bytes <= room * _SHARE_OF_LIMIT:
                with contextlib.suppress(OSError, ValueError):
                    arena = cls(os.memfd_create("fastload"), sections, section_bytes, keeps_pages)
                    _arenas[arena.token] = arena
                    return arena
            section_bytes //= 2
        return None

    @staticmethod
    def named(token: int) -> Arena:
        """Return the arena that this process created with a token."""
        arena = _arenas.get(token)
        if arena is None:
            raise RuntimeError("a batch can be received only by the loader whose worker made it")
        return arena

    def close_descriptor(self) -> None:
        """Close the descriptor that workers inherit, once all of them have been started."""
        os.close(self._descriptor)

    @property
    def worker_stats(self) -> NDArray[np.float64]:
        """Return the sums of the workers' recorders: (workers, STAT_COUNT)."""
        count, start = self.sections * STAT_COUNT, self.sections * self.section_bytes
        return np.frombuffer(self.memory, np.float64, count, start).reshape(-1, STAT_COUNT)

    def hold(self, flag: int, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the `size` bytes of a taken slot, which is freed after the last view of them is gone.

        It is freed when another slot is held, not in a finalizer: a Ctrl-C that arrives while a finalizer
        runs Python code is printed and lost. The weak reference's callback is C code, which runs no signal
        handlers.
        """
        self._free_returned()
        array: NDArray[np.uint8] = np.frombuffer(self.memory, np.uint8, size, offset)
        loan = Loan(array, self._returned.append)
        loan.flag, loan.seen_by = flag, []
        self._held[flag] = loan
        return array

    def contains(self, address: int) -> bool:
        """Return True if an address lies in this memory."""
        start = np.frombuffer(self.memory, np.uint8, 1).ctypes.data
        return start <= address < start + self.sections * self.section_bytes

    def _free_returned(self) -> None:
        """Free slots that are no longer held, unless forked processes may still see them."""
        for _ in range(len(self._returned)):
            try:
                loan = self._returned.popleft()
            except IndexError:
                break  # another thread took it
            if loan.is_seen():
                self._returned.append(loan)
            else:
                del self._held[loan.flag]
                self.memory[loan.flag] = 0

    def __reduce__(self) -> tuple[object, ...]:
        settings = self.sections, self.section_bytes, self.keeps_pages
        return Arena._received, (reduction.DupFd(self._descriptor), self.token, *settings)

    @classmethod
    def _received(cls, descriptor: Any, token: int, sections: int, section_bytes: int, keeps: bool) -> Arena:
        arena = cls(descriptor.detach(), sections, section_bytes, keeps)
        arena.close_descriptor()
        arena.token = token
        return arena


class Slot(NamedTuple):
    """Offsets of a slot's flag and of its bytes in the shared memory."""

    flag: int
    offset: int


@dataclass(slots=True)
class _SizeClass:
    """The slots of one size."""

    slot_bytes: int
    # The first slot and the length of each run.
    runs: list[tuple[Slot, int]] = field(default_factory=list)
    # Slots that may have pages, and the highest flag taken since the last trim.
    touched: set[Slot] = field(default_factory=set)
    highest: int = -1


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


def _loans() -> list[Loan]:
    """Return the loans of all slots that are held."""
    held = [loan for arena in list(_arenas.values()) for loan in list(arena._held.values())]
    return [loan for loan in held if loan() is not None]


def _before_fork() -> None:
    _forking.is_watched, _forking.pipe = bool(_loans()), None
    if _forking.is_watched:
        with contextlib.suppress(OSError):  # no descriptors left
            _forking.pipe = multiprocessing.Pipe(duplex=False)


def _after_fork_in_parent() -> None:
    if _forking.is_watched:
        reading, writing = _forking.pipe or (None, None)
        if writing is not None:
            writing.close()
        for loan in _loans():
            loan.seen_by.append(reading)
    _forking.pipe = None


def _after_fork_in_child() -> None:
    if _forking.pipe is not None:
        reading, writing = _forking.pipe
        reading.close()
        _inherited.append(writing)
    for arena in list(_arenas.values()):  # slots that are held now belong to the parent
        arena._held.clear()
        arena._returned.clear()


def _address_space_left() -> float:
    import resource  # not on Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    return float(limit - psutil.Process().memory_info().vms)


def _mapped(descriptor: int, size: int) -> mmap.mmap:
    flags = mmap.MAP_SHARED | _MAP_NORESERVE
    os.ftruncate(descriptor, size)
    if sys.version_info >= (3, 13):
        # Earlier releases keep a descriptor open as long as the mapping exists.
        memory = mmap.mmap(descriptor, size, flags=flags, trackfd=False)
    else:
        memory = mmap.mmap(descriptor, size, flags=flags)
    # Without this, a core dump would include all of the address space.
    memory.madvise(mmap.MADV_DONTDUMP)
    return memory


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
