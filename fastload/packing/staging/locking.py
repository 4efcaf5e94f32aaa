"""Lock of a staging folder: one packing process holds it, or those that pack parts share it."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastload.errors import DestinationError
from fastload.system.file_locks import take_lock

if sys.platform != "win32":
    import fcntl

_LOCK = "lock"

# On some cluster file systems (Lustre mounted without "flock"), no file can be locked.
_CANNOT_LOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})

# fcntl's locks only exclude other processes; this set prevents a second packing within the same process.
_locked_here: set[Path] = set()
_locking = threading.Lock()


@contextlib.contextmanager
def locked(folder: Path, destination: Path, *, is_shared: bool) -> Iterator[None]:
    """Make a staging folder, and hold its lock; afterwards, remove the folder if it is empty and not shared.

    filelock is not used because forked workers would inherit its flock, and may outlive a killed run. Raises
    DestinationError if another run holds the lock.
    """
    with _locking:
        if folder in _locked_here:
            raise DestinationError(f"{destination}: this process is packing to it already")
        _locked_here.add(folder)
    try:
        with _open_locked(folder, destination, is_shared):
            try:
                yield
            finally:
                if not is_shared:
                    _remove(folder)
    finally:
        if not is_shared and sys.platform == "win32":  # which removes no open file
            _remove(folder)
        _locked_here.discard(folder)


def _open_locked(folder: Path, destination: Path, is_shared: bool) -> BinaryIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / _LOCK, "a+b", buffering=0)  # noqa: SIM115 - held until the packing ends
        except FileNotFoundError:
            continue  # the process that held the lock has just removed the folder
        if not _take(file, is_shared):
            file.close()
            raise DestinationError(
                f"{destination}: another process is packing to it: wait for it to end, or choose another "
                "destination"
            )
        # The lock is valid only if its file is still at the path: the previous holder may have removed it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                return file
        file.close()


def _take(file: BinaryIO, is_shared: bool) -> bool:
    """Lock a file; return False if another process holds its lock."""
    if sys.platform == "win32":
        return take_lock(file.fileno(), is_shared=is_shared)
    try:
        fcntl.lockf(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _CANNOT_LOCK
    return True


def _remove(folder: Path) -> None:
    """Remove a staging folder in which only the lock is left."""
    with contextlib.suppress(OSError):  # a leftover must not turn success into failure
        if os.listdir(folder) == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()
