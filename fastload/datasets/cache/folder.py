"""The folder in which the processes of one user find their stores, and record who uses which.

    /dev/shm/fastload-1000/         mode 0700, made by fastload
      gate                          locked, for microseconds, by whoever changes anything here
      <key>.users                   locked, shared, by every process that uses the store
      <key>.data                    the store, if it is a file (`tmpfs`)
      <key>.memory                  the processes and descriptors that hold the store, if it is memory (`ram`)
      <key>.filler                  locked by the process that fills the store

The kernel drops a lock when its process ends, however that happens. So if a process can lock a store's users
exclusively, nobody uses the store, and it is removed: by the last user when it leaves or, after a SIGKILL, by
the next one to come. Only files with these names are ever removed, in a folder that is this user's own and no
link; the folder is removed with the last store.

The locks are flock(2)'s, because filelock has no shared locks.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
import stat
import tempfile
from collections.abc import Iterator

from fastload.errors import OptionError

DEFAULT_PARENT = "/dev/shm"

_GATE = "gate"
_NAME = re.compile(r"([0-9a-f]{32})\.(users|data|memory|filler)")
# Windows, which has no caches but imports this module, has neither flag.
OPENED_SAFELY = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FLAGS = OPENED_SAFELY | os.O_CREAT


def store_folder(parent: str | os.PathLike[str] | None = None, holds_data: bool = True) -> str:
    """Return the path of this user's folder in another one, /dev/shm by default; it need not exist yet.

    Without `holds_data` any writable folder that all processes know will do. Raises OptionError unless the
    parent is a writable folder.
    """
    place = DEFAULT_PARENT if parent is None else os.path.abspath(os.path.expanduser(os.fspath(parent)))
    if parent is None and not holds_data and not os.access(place, os.W_OK | os.X_OK):
        place = tempfile.gettempdir()
    if not os.path.isdir(place) or not os.access(place, os.W_OK | os.X_OK):
        raise OptionError(
            f"{place}: a cache's folder must exist and be writable: name one with "
            'fastload.Cache("tmpfs", folder=...), such as a tmpfs that is mounted for you'
        )
    return os.path.join(place, f"fastload-{os.getuid()}")


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
            self._remove_if_empty()
        finally:
            lock(gate, "LOCK_UN")
            os.close(gate)

    def file(self, key: str, suffix: str) -> str:
        """Return the path of a store's file."""
        return os.path.join(self.path, f"{key}.{suffix}")

    def open(self, key: str, suffix: str) -> int:
        """Open a store's file, made if it is missing; the caller closes the descriptor."""
        return os.open(self.file(key, suffix), _FLAGS, 0o600)

    def is_used(self, key: str) -> bool:
        """Return True if any process uses a store."""
        try:
            users = os.open(self.file(key, "users"), OPENED_SAFELY)
        except OSError:
            return False
        try:
            # Behind the gate, because that is where others lock it exclusively.
            with self.gate():
                return not lock_exclusively(users)
        finally:
            os.close(users)

    def sweep(self) -> None:
        """Remove the stores that nobody uses; behind the gate."""
        for key in {found[1] for name in os.listdir(self.path) if (found := _NAME.fullmatch(name))}:
            self.remove_if_unused(key)

    def remove_if_unused(self, key: str) -> None:
        """Remove a store if nobody uses it; behind the gate."""
        users = self.open(key, "users")
        try:
            if lock_exclusively(users):
                for suffix in ("data", "memory", "filler", "users"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self.file(key, suffix))
        finally:
            os.close(users)

    def _open_gate(self) -> int:
        """Return the descriptor of the locked gate."""
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            self._require_own()
            try:
                gate = os.open(os.path.join(self.path, _GATE), _FLAGS, 0o600)
            except FileNotFoundError:
                continue  # the last process to leave has just removed the folder
            lock(gate, "LOCK_EX")
            if os.fstat(gate).st_nlink:
                return gate
            os.close(gate)

    def _require_own(self) -> None:
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise OptionError(
                f"{self.path}: must be a folder of your own that is closed to others (mode 700), and is not: "
                'remove it, or name another place with fastload.Cache("tmpfs", folder=...)'
            )

    def _remove_if_empty(self) -> None:
        if os.listdir(self.path) == [_GATE]:
            os.unlink(os.path.join(self.path, _GATE))
            # A process that comes now makes a new gate: then the folder is not empty, and stays.
            with contextlib.suppress(OSError):
                os.rmdir(self.path)


def lock(descriptor: int, *flags: str) -> None:
    """Lock or unlock a file, by the names of flock(2)'s flags.

    Raises BlockingIOError with LOCK_NB if another process has locked it.
    """
    import fcntl  # does not exist on Windows

    fcntl.flock(descriptor, functools.reduce(operator.or_, (getattr(fcntl, flag) for flag in flags)))


def lock_exclusively(descriptor: int) -> bool:
    """Lock a file exclusively unless somebody else has locked it; return True if it is locked now."""
    try:
        lock(descriptor, "LOCK_EX", "LOCK_NB")
    except BlockingIOError:
        return False
    return True
