"""Registry of stores: a folder in which the processes of one user find stores and register as their users.

    /dev/shm/fastload-1000/         mode 0700, made by fastload
      gate                          locked for microseconds by each process that changes this folder
      <key>.users                   locked, shared, by every process that uses the store; lists their PIDs,
                                    with the descriptor and the inode of a store in memory (`ram`)
      <key>.data                    the store, if it is a file (`tmpfs`)
      <key>.filler                  locked by the process that fills the store

`ram` is anonymous memory (memfd): a process opens it through /proc/<pid>/fd of a process that holds it, and
the kernel frees it with the last of them, however that ends.

The kernel drops a lock when its process ends, however that happens. So if a process can lock a store's users
exclusively, nobody uses the store, and it is removed: by its last user or, if a signal or os._exit ended that
process, by the next process to open a store; for a `tmpfs`, whose data would stay in memory until then, by a
small process that checks once a second. Only files with these names are removed, and only if the folder is
owned by this user and not a link; the folder is removed with the last store.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator

from fastload.errors import OptionError
from fastload.system.cache_lock import CacheLock

STORE_FILE = re.compile(r"([0-9a-f]{32})\.(users|data|filler)")

_GATE = "gate"
_INTERVAL_S = 1.0
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastload.datasets.cache._registry import remove_when_unused; remove_when_unused(*sys.argv[2:])"
)


class StoreFolder:
    """The stores of one user, in a folder that is made with the first store."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextlib.contextmanager
    def gate(self) -> Iterator[None]:
        """Exclude changes of the folder by other processes.

        Raises OptionError if the folder is a link, another user's, or open to others.
        """
        gate = self._lock_gate()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if os.listdir(self.path) == [_GATE]:
                    os.unlink(os.path.join(self.path, _GATE))
                    # A process that opens the folder now makes a new gate, and rmdir fails.
                    os.rmdir(self.path)
            gate.release()

    def file(self, key: str, suffix: str) -> str:
        return os.path.join(self.path, f"{key}.{suffix}")

    def open(self, key: str, suffix: str) -> CacheLock:
        """Open a file of a store for locking, made if it is missing; the caller releases it."""
        return CacheLock(self.file(key, suffix), os.O_RDWR | os.O_CREAT)

    def is_used(self, key: str) -> bool:
        """Return True if any process uses a store; one that is not used is removed."""
        if not os.path.exists(self.file(key, "users")):
            return False
        with self.gate():
            return not self.remove_if_unused(key)

    def remove_if_unused(self, key: str) -> bool:
        """Remove a store if nobody uses it, and return True then; the caller holds the gate."""
        users = CacheLock.on(self.file(key, "users"))
        if users is None:
            return False
        for suffix in ("data", "filler", "users"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.file(key, suffix))
        users.release()
        return True

    def _lock_gate(self) -> CacheLock:
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            try:
                status = os.lstat(self.path)
                if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
                    raise OptionError(
                        f"{self.path}: must be a folder that you own and others cannot open (mode 700): "
                        'remove it, or name another place with fastload.Cache("tmpfs", folder=...)'
                    )
                gate = CacheLock.on(os.path.join(self.path, _GATE), waits=True)
            except FileNotFoundError:
                continue  # its last user has just removed the folder
            assert gate is not None
            return gate


def start_remover(folder: str, key: str) -> int:
    """Start a process that removes a store once nobody uses it, however its users end; return its PID, or 0.

    It imports little, holds no file open, and has its own session, so that signals to the users miss it.
    """
    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    arguments = [sys.executable, "-S", "-c", _PROGRAM, paths, folder, key]
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            arguments, stdin=null, stdout=null, stderr=null, cwd="/", start_new_session=True
        )
    except OSError:
        return 0
    process.returncode = 0  # so that Popen does not warn: the process outlives this one
    return process.pid


def remove_when_unused(folder: str, key: str) -> None:
    """Remove a store as soon as nobody uses it."""
    registry = StoreFolder(folder)
    # A folder that has been replaced or removed is not touched.
    with contextlib.suppress(OSError, OptionError):
        while registry.is_used(key):
            time.sleep(_INTERVAL_S)
