"""Lock of a staging folder, held by the packing process and described for others.

Not filelock: its flock passes to forked workers, which may outlive a killed packing, and it empties the file
that says who holds the lock.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import BinaryIO

from fastload.errors import DestinationError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# fcntl's locks hold between processes; within one process, this set does.
_locked_here: set[Path] = set()
_locking = threading.Lock()


class StagingLock:
    """The lock of one staging folder, which is made for it; the destination is named in errors."""

    def __init__(self, folder: Path, destination: Path) -> None:
        self._folder = folder
        self._path = folder / "lock"
        self._destination = destination
        self._file: BinaryIO

    def acquire(self) -> None:
        """Take the lock and note this process in it; raise DestinationError if another packing holds it."""
        with _locking:
            if self._folder in _locked_here:
                raise DestinationError(f"{self._destination}: this process is packing to it already")
            _locked_here.add(self._folder)
        try:
            self._file = self._open_locked()
        except BaseException:
            _locked_here.discard(self._folder)
            raise
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # on a full disk, others just learn less about the holder
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}".encode())

    def release(self) -> None:
        """Release the lock; remove the folder if nothing else is in it."""
        try:
            if os.listdir(self._folder) == [self._path.name]:
                self._path.unlink()
                self._folder.rmdir()
        except OSError:
            pass  # a leftover is no reason to fail after success
        finally:
            self._file.close()
            _locked_here.discard(self._folder)

    def _open_locked(self) -> BinaryIO:
        while True:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                file = open(self._path, "a+b", buffering=0)  # noqa: SIM115 - held until the packing ends
            except FileNotFoundError:
                continue  # the process that held the lock has just removed the folder
            if fcntl is not None:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    file.seek(0)
                    holder = file.read().decode(errors="replace") or "another process"
                    file.close()
                    raise DestinationError(
                        f"{self._destination}: {holder} is packing to it: wait for it to end, or choose "
                        "another destination"
                    ) from error
            # The lock counts only if its file is still at the path: the previous holder may have removed it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
                    return file
            file.close()
