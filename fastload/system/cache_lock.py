"""Locks on files of caches, by flock(2): the kernel drops them with their process; no child inherits them."""

from __future__ import annotations

import os
import threading

# The locks of this process. A forked child closes its duplicates of their descriptors, because they would
# keep caches locked after its parent has released them. So no descriptor is opened or closed during a fork.
_locks: set[CacheLock] = set()
_forking = threading.RLock()


class CacheLock:
    """A lock that this process holds, on a file that is opened for it."""

    def __init__(self, path: str | os.PathLike[str], flags: int) -> None:
        with _forking:
            self._descriptor = os.open(path, flags, 0o600)
            _locks.add(self)

    def fileno(self) -> int:
        """Return the descriptor, which a started process may inherit."""
        return self._descriptor

    def release(self) -> None:
        """Release the lock, unless this process was forked from the one that holds it."""
        with _forking:
            if self in _locks:
                _locks.remove(self)
                os.close(self._descriptor)


def _close_after_fork() -> None:
    for lock in list(_locks):
        lock.release()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_after_fork
    )
