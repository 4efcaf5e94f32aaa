"""Locks of opened files, shared or exclusive, which the system drops with their process."""

from __future__ import annotations

import contextlib
import os
import random
import sys

if sys.platform == "win32":
    import msvcrt

    # Windows locks ranges of bytes, which may lie beyond a file's end: a shared lock is that of one byte, an
    # exclusive one that of all.
    _FIRST_BYTE = _BYTES = 1 << 30

    def take_lock(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> bool:
        """Lock a file, without waiting; return False if another process or descriptor holds its lock."""
        os.lseek(descriptor, _FIRST_BYTE + (random.randrange(_BYTES) if is_shared else 0), os.SEEK_SET)
        with contextlib.suppress(OSError):
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1 if is_shared else _BYTES)
            return True
        return False

else:
    import fcntl

    def take_lock(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> bool:
        """Lock a file; unless it `waits`, return False if another process or descriptor holds its lock."""
        kind = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB)
        try:
            fcntl.flock(descriptor, kind)
        except BlockingIOError:
            return False
        return True
