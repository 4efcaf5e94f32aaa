"""Folders and files that only this user can have written (by owner, mode, kind; no links), locked and shared.

On Windows, only the kind is known: whom a folder lets in is decided by its access control list.

In a folder such as /tmp, anybody may make a folder of a name that a program will look for. There, its sticky
bit keeps others from replacing a folder of ours; within ours, its mode does.

A file without a name, such as anonymous memory, is shared by a list of the processes that hold it: a line
each, with the PID, the descriptor, and the file's device and inode. Others open it through /proc/<pid>/fd,
and the kernel frees it with the last of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from fastload.system.file_locks import take_lock

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

# The locks of this process. A forked child closes its duplicates of their descriptors, because they would
# keep caches locked after its parent has released them. So no descriptor is opened or closed during a fork.
_locks: set[CacheLock] = set()
_forking = threading.RLock()


def require_own(path: str | os.PathLike[str], *, is_folder: bool = False) -> None:
    """Raise PermissionError unless a path is a file, or a folder, that only this user may write to.

    A link is neither. Raises FileNotFoundError if there is nothing.
    """
    _require_own(os.lstat(path), path, is_folder)


def require_own_tree(root: Path) -> None:
    """Raise PermissionError unless a folder, and all folders and files in it, are this user's alone."""
    require_own(root, is_folder=True)
    for place, folders, files in os.walk(root, onerror=_raise):
        for name in folders:
            require_own(os.path.join(place, name), is_folder=True)
        for name in files:
            require_own(os.path.join(place, name))


def read_own(path: Path) -> bytes:
    """Return the content of a file that only this user may write to; raise PermissionError for another."""
    with open(open_own(path, os.O_RDONLY), "rb") as file:
        return file.read()


def make_own(path: Path) -> int:
    """Return a descriptor of a new file that only this user may write to, whatever the umask."""
    path.unlink(missing_ok=True)
    return open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Return a descriptor of a file that only this user may write to; raise PermissionError for another.

    A new file has the mode 600. Never waits: opening a pipe would wait for a program at its other end.
    """
    with contextlib.suppress(FileNotFoundError):
        require_own(path)
    # Not on Windows, where a link or a pipe is refused before.
    further = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | further, 0o600)
    try:
        _require_own(os.fstat(descriptor), path, is_folder=False)
    except PermissionError:
        os.close(descriptor)
        raise
    return descriptor


def _require_own(status: os.stat_result, path: str | os.PathLike[str], is_folder: bool) -> None:
    is_kind = stat.S_ISDIR if is_folder else stat.S_ISREG
    if not is_kind(status.st_mode):
        reason = "it is a link" if stat.S_ISLNK(status.st_mode) else "it is of another kind"
    elif sys.platform == "win32":  # access control lists, of which Python shows nothing, decide there
        return
    elif status.st_uid != os.geteuid():
        reason = f"it belongs to another user, {status.st_uid}"
    elif status.st_mode & _WRITABLE_BY_OTHERS:
        reason = f"others may write to it, its mode is {stat.S_IMODE(status.st_mode):o}"
    else:
        return
    raise PermissionError(errno.EACCES, reason, os.fspath(path))


def user_id() -> str:
    """Return this user's number, for names in a folder that all share; "" on Windows, which has none."""
    return "" if sys.platform == "win32" else str(os.getuid())


def _raise(error: OSError) -> None:
    raise error


def add_holder(users: Path, descriptor: int) -> None:
    """Add this process, which holds a file by its descriptor, to a list."""
    status = os.fstat(descriptor)
    with users.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {descriptor} {status.st_dev} {status.st_ino}\n")


def holders(users: Path) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yield the PID of each process in a list that holds the file still, its path there, and its status."""
    for line in users.read_text(encoding="utf-8", errors="replace").splitlines():
        # The process has ended since, perhaps before it wrote all of the line.
        with contextlib.suppress(OSError, ValueError):
            process, number, *identity = map(int, line.split())
            path = f"/proc/{process}/fd/{number}"
            status = os.stat(path)
            # The PID or the descriptor may have been reused.
            if [status.st_dev, status.st_ino] == identity:
                yield process, path, status


def open_held(users: Path) -> int | None:
    """Return a descriptor of the file that the processes in a list hold; None if all have ended."""
    for _, path, wanted in holders(users):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            # Reused between looking at it and opening it.
            if os.path.samestat(os.fstat(descriptor), wanted):
                return descriptor
            os.close(descriptor)
    return None


class CacheLock:
    """A file of this user's that is opened for locking; see `open_own` for what is refused.

    The kernel drops a lock of flock(2) with its process, and no child inherits it. filelock has shared locks
    only as transactions of a SQLite database.
    """

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
        return take_lock(self._descriptor, is_shared=shared, waits=waits)

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
