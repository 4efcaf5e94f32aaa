"""Files mapped into memory, without a descriptor that stays open.

Python's mmap keeps one for each mapping; from Python 3.13 on, it can be told not to. A process may have 1,024
open files by default, and 65,530 mappings (vm.max_map_count).
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path


def map_file(path: Path) -> memoryview:
    """Return the content of a file, read-only, which stays mapped as long as a view of it is in use."""
    with path.open("rb", buffering=0) as file:
        if sys.platform == "win32":
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if sys.version_info >= (3, 13):
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, trackfd=False))
        return _mapped_by_libc(file.fileno())


def _mapped_by_libc(descriptor: int) -> memoryview:
    import ctypes
    import weakref

    size_bytes = os.fstat(descriptor).st_size
    libc = ctypes.CDLL(None, use_errno=True)
    number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    libc.mmap.argtypes, libc.mmap.restype = (pointer, size, number, number, number, ctypes.c_long), pointer
    libc.munmap.argtypes = (pointer, size)
    address = libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == pointer(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    memory = (ctypes.c_char * size_bytes).from_address(address)
    # Not at exit, when arrays may still be in use.
    weakref.finalize(memory, libc.munmap, address, size_bytes).atexit = False
    return memoryview(memory).cast("B").toreadonly()
