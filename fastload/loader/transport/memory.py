"""Shared memory: one sparse file without a name, with a section for each worker.

It is anonymous memory that is handed over by descriptor (Linux's memfd), so the size of /dev/shm is no
limit and nothing is left behind, however the processes end. Its size is address space alone: a page
takes memory once it is written to.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import sys
import weakref
from collections import deque
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.loader.transport import forks
from fastload.loader.transport.ledger import FIELDS

# Address space for each worker. 64 GiB leave room for 2,000 workers in x86-64's 128 TiB, and hold
# 400 float32 batches of 256 images of 224x224; where a limit forbids so much (ulimit -v), less is taken.
_SECTION_BYTES = 1 << 36
_SMALLEST_SECTION_BYTES = 1 << 28

# Of what a limit on address space leaves: the rest is the training's own.
_SHARE_OF_LIMIT = 0.25

# Python names it from 3.13 on; 0x4000 is its value on Linux, for every architecture that torch has.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)

_tokens = itertools.count()
_arenas: weakref.WeakValueDictionary[int, Arena] = weakref.WeakValueDictionary()


class _Loan(weakref.ref[NDArray[np.uint8]]):
    """A held slot: its bytes, its flag, and the number of the last fork before it was held."""

    __slots__ = ("flag", "forks_before")
    flag: int
    forks_before: int


class Arena:
    """The shared memory of one iteration's workers, as the training process or a worker sees it.

    It may be pickled to a process that is being started, as multiprocessing pickles a queue.

    Args:
        descriptor: The memory file, which the arena closes. It is made as large as it needs to be.
        sections: The number of workers.
        section_bytes: The size of each worker's section.
        keeps_pages: Whether pages stay in memory once they have been used, because a device knows them.

    Attributes:
        memory: The whole of it. The section of worker `i` begins at `i * section_bytes`; after the last
            section come the workers' ledgers.
        section_bytes: The size of each section.
        token: What a worker names it by.
    """

    def __init__(self, descriptor: int, sections: int, section_bytes: int, keeps_pages: bool) -> None:
        self.sections = sections
        self.section_bytes = section_bytes
        self.keeps_pages = keeps_pages
        self.token = next(_tokens)
        self._owner = os.getpid()
        self._held: dict[int, _Loan] = {}
        self._returned: deque[_Loan] = deque()
        self._descriptor = descriptor
        try:
            self.memory = _mapped(descriptor, sections * section_bytes + _ledger_bytes(sections))
        except (OSError, ValueError):
            os.close(descriptor)
            raise

    @classmethod
    def create(cls, sections: int, keeps_pages: bool = False) -> Arena | None:
        """Makes the memory for so many workers; None where this system has none of the kind."""
        if not hasattr(os, "memfd_create"):
            return None
        section_bytes = _SECTION_BYTES
        room = _address_space_left()
        while room is not None and sections * section_bytes > room * _SHARE_OF_LIMIT:
            section_bytes //= 2
        while section_bytes >= _SMALLEST_SECTION_BYTES:
            with contextlib.suppress(OSError, ValueError):
                arena = cls(os.memfd_create("fastload"), sections, section_bytes, keeps_pages)
                _arenas[arena.token] = arena
                weakref.finalize(arena, forks.settle).atexit = False
                return arena
            section_bytes //= 2
        return None

    @staticmethod
    def named(token: int) -> Arena:
        """The arena that this process made under a token."""
        arena = _arenas.get(token)
        if arena is None:
            raise RuntimeError("a batch can be received only by the loader whose worker made it")
        return arena

    def close_descriptor(self) -> None:
        """Gives back the descriptor, once every worker has been started."""
        os.close(self._descriptor)

    @property
    def ledgers(self) -> NDArray[np.float64]:
        """What the workers' batches cost: (workers, FIELDS), see `Ledger`."""
        count, start = self.sections * FIELDS, self.sections * self.section_bytes
        return np.frombuffer(self.memory, np.float64, count, start).reshape(self.sections, FIELDS)

    def hold(self, flag: int, offset: int, size: int) -> NDArray[np.uint8]:
        """The bytes of a taken slot, which may be freed once the last view of them has died.

        That is done when the next slot is held, not by a finalizer: a Ctrl-C that arrives while Python code
        is run there is printed and swallowed. A dying array calls C code alone, which handles no signal.

        Args:
            flag: Where the slot's flag lies in the memory.
            offset: Where its bytes begin.
            size: How many there are.
        """
        self._free_returned()
        array: NDArray[np.uint8] = np.frombuffer(self.memory, np.uint8, size, offset)
        loan = _Loan(array, self._returned.append)
        loan.flag, loan.forks_before = flag, forks.count()
        self._held[flag] = loan
        return array

    def contains(self, address: int) -> bool:
        """Whether an address lies in this memory."""
        start = np.frombuffer(self.memory, np.uint8, 1).ctypes.data
        return start <= address < start + self.sections * self.section_bytes

    def is_held(self) -> bool:
        """Whether this process holds any slot."""
        self._free_returned()
        return bool(self._held)

    def free(self, flag: int) -> None:
        """Marks a slot as free for its worker."""
        self._held.pop(flag, None)
        self.memory[flag] = 0

    def _free_returned(self) -> None:
        while self._returned:
            try:
                loan = self._returned.popleft()
            except IndexError:
                break  # another thread was here as well
            # A forked child lets go of the same arrays, but the slots are its parent's.
            if os.getpid() == self._owner:
                forks.when_unseen(loan.forks_before, weakref.WeakMethod(self.free), loan.flag)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "descriptor": DupFd(self._descriptor),
            "sections": self.sections,
            "section_bytes": self.section_bytes,
            "keeps_pages": self.keeps_pages,
            "token": self.token,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        token = state.pop("token")
        Arena.__init__(self, **{**state, "descriptor": state["descriptor"].detach()})
        self.close_descriptor()
        self.token = token


def holds_any() -> bool:
    """Whether this process holds a slot of any arena."""
    return any(arena.is_held() for arena in list(_arenas.values()))


def _address_space_left() -> int | None:
    """The address space that this process may still take, in bytes; None where that is not limited."""
    import resource  # which Windows lacks

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    with open("/proc/self/statm") as statm:
        taken = int(statm.read().split()[0]) * mmap.PAGESIZE
    return max(0, limit - taken)


def _ledger_bytes(sections: int) -> int:
    needed = sections * FIELDS * np.dtype(np.float64).itemsize
    return -(-needed // mmap.PAGESIZE) * mmap.PAGESIZE


def _mapped(descriptor: int, size: int) -> mmap.mmap:
    flags = mmap.MAP_SHARED | _MAP_NORESERVE
    os.ftruncate(descriptor, size)
    if sys.version_info >= (3, 13):
        # Earlier ones keep a descriptor open for as long as the mapping lives.
        memory = mmap.mmap(descriptor, size, flags=flags, trackfd=False)
    else:
        memory = mmap.mmap(descriptor, size, flags=flags)
    # A crash's core dump would otherwise walk through all of the address space.
    memory.madvise(mmap.MADV_DONTDUMP)
    return memory


forks.watch(holds_any)
