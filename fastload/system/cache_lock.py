"""Locks on files of caches, by flock(2): the kernel drops them with their process; no child inherits them.

filelock has shared locks only as transactions of a SQLite database.
"""

from __future__ import annotations

import os
import sys
import threading

from fastload.system.own_files import open_own

if sys.platform != "win32":
    import fcntl

# The locks of this process. A forked child closes its duplicates of their descriptors, because they would
# keep caches locked after its parent has released them. So no descriptor is opened or closed during a fork.
_locks: set[CacheLock] = set()
_forking = threading.RLock()


class CacheLock:
    """A file of this user's that is opened for locking; see `open_own` for what is refused."""

    def __init__(self, path: str | os.PathLike[str], flags: int) -> None:
        with _forking:
            self._descriptor = open_own(path, flags)
            _locks.add(self)

    @classmethod
    def on(
        cls, path: str | os.PathLike[str], *, shared: bool = False, is_new: bool = True, waits: bool = False
    ) -> CacheLock | None:
        """Lock a file, which is made unless it exists; return None if another process or call holds its lock.

        Unless `is_new`, raises FileNotFoundError for a file that does not exist.
        """
        flags = (os.O_RDONLY if shared else os.O_RDWR) | (os.O_CREAT if is_new else 0)
        while True:
            lock = cls(path, flags)
            try:
                if not lock.take(shared=shared, waits=waits):
                    lock.release()
                    return None
            except OSError:
                lock.release()
                raise
            if os.fstat(lock.fileno()).st_nlink:
                return lock
            lock.release()  # the file was removed a moment ago

    def take(self, *, shared: bool = False, waits: bool = False) -> bool:
        """Lock the file; unless it `waits`, return False if another process or call holds its lock."""
        try:
            fcntl.flock(self, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

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
