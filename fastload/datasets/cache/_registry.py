"""Registry of stores: a folder in which the processes of one user find stores and register as their users.

    /dev/shm/fastload-1000/         mode 0700, made by fastload
      gate                          locked for microseconds by a process that changes anything here
      <key>.users                   locked, shared, by every process that uses the store; lists their PIDs,
                                    with the descriptor and the inode of a store in memory (`ram`)
      <key>.data                    the store, if it is a file (`tmpfs`)
      <key>.filler                  locked by the process that fills the store

`ram` is anonymous memory (memfd): a process opens it through /proc/<pid>/fd of a process that holds it, and
the kernel frees it with the last of them, however that ends.

The kernel drops a lock when its process ends, however that happens. So if a process can lock a store's users
exclusively, nobody uses the store, and it is removed: by the last user when it leaves or, if that was ended
by a signal or os._exit, by the next one to come, and for a `tmpfs`, whose data would stay in memory, by a
small process that checks once a second. Only files with these names are removed, and only if the folder is
owned by this user and not a link; the folder is removed with the last store. The locks are those of flock(2):
filelock has shared ones only as transactions of a SQLite database.
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

if sys.platform != "win32":
    import fcntl

STORE_FILE = re.compile(r"([0-9a-f]{32})\.(users|data|filler)")

# Windows, which has no caches but imports this module, has neither flag.
FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_GATE = "gate"
_INTERVAL_S = 1.0
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastload.datasets.cache._registry import remove_when_unused; remove_when_unused(*sys.argv[2:])"
)


def lock_exclusively(descriptor: int) -> bool:
    """Try to lock a file exclusively, without waiting; return True on success."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class StoreFolder:
    """A user's folder of stores, made with the first store."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextlib.contextmanager
    def gate(self) -> Iterator[None]:
        """Keep all other processes from changing the folder.

        Raises OptionError if the folder is a link, another user's, or open to others.
        """
        gate = self._open_gate()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if os.listdir(self.path) == [_GATE]:
                    os.unlink(os.path.join(self.path, _GATE))
                    # A process that comes now makes a new gate: then the folder is not empty, and stays.
                    os.rmdir(self.path)
            os.close(gate)  # which unlocks it

    def file(self, key: str, suffix: str) -> str:
        return os.path.join(self.path, f"{key}.{suffix}")

    def open(self, key: str, suffix: str) -> int:
        """Open a store's file, made if it is missing; the caller closes the descriptor."""
        return os.open(self.file(key, suffix), FLAGS | os.O_CREAT, 0o600)

    def is_used(self, key: str) -> bool:
        """Return True if any process uses a store."""
        if not os.path.exists(self.file(key, "users")):
            return False
        with self.gate():
            self.remove_if_unused(key)
            return os.path.exists(self.file(key, "users"))

    def remove_if_unused(self, key: str) -> None:
        """Remove a store if nobody uses it; the caller holds the gate."""
        users = self.open(key, "users")
        try:
            if lock_exclusively(users):
                for suffix in ("data", "filler", "users"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self.file(key, suffix))
        finally:
            os.close(users)

    def _open_gate(self) -> int:
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
                gate = os.open(os.path.join(self.path, _GATE), FLAGS | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue  # the last process to leave has just removed the folder
            fcntl.flock(gate, fcntl.LOCK_EX)
            if os.fstat(gate).st_nlink:
                return gate
            os.close(gate)


def start_remover(folder: str, key: str) -> int:
    """Start a process that removes a store once nobody uses it, however its users end; return its PID, or 0.

    It imports little, holds no file open, and has a session of its own, so signals to the users miss it.
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
    process.returncode = 0  # not waited for: it outlives this process
    return process.pid


def remove_when_unused(folder: str, key: str) -> None:
    """Remove a store as soon as nobody uses it."""
    place = StoreFolder(folder)
    # A folder that was changed or removed is left alone.
    with contextlib.suppress(OSError, OptionError):
        while place.is_used(key):
            time.sleep(_INTERVAL_S)
