"""Lock of a staging folder: one packing process holds it, or those that pack parts share it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastload.errors import DestinationError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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
        with _open_locked(folder, destination, is_shared) as file:
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # a leftover must not turn success into failure
                    if not is_shared and os.listdir(folder) == [os.path.basename(file.name)]:
                        os.unlink(file.name)
                        folder.rmdir()
    finally:
        _locked_here.discard(folder)


def _open_locked(folder: Path, destination: Path, is_shared: bool) -> BinaryIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / "lock", "a+b", buffering=0)  # noqa: SIM115 - held until the packing ends
        except FileNotFoundError:
            continue  # the process that held the lock has just removed the folder
        if fcntl is not None:
            try:
                fcntl.lockf(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _CANNOT_LOCK:
                    file.close()
                    raise DestinationError(
                        f"{destination}: another process is packing to it: wait for it to end, or choose "
                        "another destination"
                    ) from error
        # The lock is valid only if its file is still at the path: the previous holder may have removed it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                return file
        file.close()
