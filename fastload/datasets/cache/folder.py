"""The folder in which one user's processes find their stores, and tell who uses which.

    /dev/shm/fastload-1000/         0700, made by fastload
      gate                          locked by whoever changes anything here, for microseconds
      <key>.users                   locked, shared, by every process that uses the store
      <key>.data                    the store itself, where it is a file (`tmpfs`)
      <key>.memory                  where it has no name: which processes hold it, by which descriptor (`ram`)
      <key>.filler                  locked by the process that fills it

The kernel drops a lock with the process, however that ends. So whoever can lock a store's users alone knows
that nobody is left, and removes it: the last user when it leaves, or, after a SIGKILL, the next one to
come. Only files of these names are ever removed, in a folder that is this user's own and no link; the
folder goes with the last.
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
"""In which folder stores lie, or are made known, unless another is named."""

_GATE = "gate"
_NAME = re.compile(r"([0-9a-f]{32})\.(users|data|memory|filler)")
# Windows, which has no caches but imports this, has neither flag.
OPENED_SAFELY = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FLAGS = OPENED_SAFELY | os.O_CREAT


def store_folder(parent: str | os.PathLike[str] | None = None, holds_data: bool = True) -> str:
    """The path of this user's folder in another one, /dev/shm by default; it need not exist yet.

    Args:
        parent: The other one.
        holds_data: Whether stores lie there; else any place that all processes know will do.

    Raises:
        OptionError: The other one is no folder that can be written to.
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
    """A user's folder of stores.

    Args:
        path: Of the folder; made when the first store is.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @contextlib.contextmanager
    def gate(self) -> Iterator[None]:
        """Keeps all other processes from changing anything here meanwhile.

        Raises:
            OptionError: The folder is a link, another user's, or open to others.
        """
        gate = self._entered()
        try:
            yield
            self._remove_if_empty()
        finally:
            lock(gate, "LOCK_UN")
            os.close(gate)

    def file(self, key: str, suffix: str) -> str:
        """The path of a store's file."""
        return os.path.join(self.path, f"{key}.{suffix}")

    def open(self, key: str, suffix: str) -> int:
        """Opens a store's file, made where it is missing; the caller closes the descriptor."""
        return os.open(self.file(key, suffix), _FLAGS, 0o600)

    def is_used(self, key: str) -> bool:
        """Whether any process uses a store."""
        try:
            users = os.open(self.file(key, "users"), OPENED_SAFELY)
        except OSError:
            return False
        try:
            # Behind the gate, where alone others lock it for themselves.
            with self.gate():
                return not is_locked_alone(users)
        finally:
            os.close(users)

    def sweep(self) -> None:
        """Removes the stores that nobody uses; behind the gate."""
        keys = {found[1] for name in os.listdir(self.path) if (found := _NAME.fullmatch(name))}
        for key in keys:
            self.remove_if_unused(key)

    def remove_if_unused(self, key: str) -> bool:
        """Removes a store if nobody uses it, and says whether that was so; behind the gate."""
        users = self.open(key, "users")
        try:
            if not is_locked_alone(users):
                return False
            for suffix in ("data", "memory", "filler", "users"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.file(key, suffix))
            return True
        finally:
            os.close(users)

    def _entered(self) -> int:
        """The gate's descriptor, locked."""
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            self._require_own()
            try:
                gate = os.open(os.path.join(self.path, _GATE), _FLAGS, 0o600)
            except FileNotFoundError:
                continue  # the folder was just removed by the last one to leave
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
            # Whoever comes now makes a new gate: the folder is then not empty, and stays.
            with contextlib.suppress(OSError):
                os.rmdir(self.path)


def lock(descriptor: int, *how: str) -> None:
    """Locks a file, or lets go of it, by the names of flock(2)'s constants.

    Raises:
        BlockingIOError: LOCK_NB was among them, and another one has locked it.
    """
    import fcntl  # which Windows lacks

    fcntl.flock(descriptor, functools.reduce(operator.or_, (getattr(fcntl, name) for name in how)))


def is_locked_alone(descriptor: int) -> bool:
    """Locks a file for this descriptor alone, if nobody else has; says whether that was so."""
    try:
        lock(descriptor, "LOCK_EX", "LOCK_NB")
    except BlockingIOError:
        return False
    return True
