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
exclusively, nobody uses the store, and it is removed: by the last user when it leaves or, after a SIGKILL, by
the next one to come. Only files with these names are removed, and only if the folder is owned by this user
and not a link; the folder is removed with the last store. The locks are those of flock(2), because filelock
has no shared ones.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import re
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fastload.datasets.cache._choose import Form
from fastload.datasets.cache._limits import Room, memory_room
from fastload.datasets.cache._store import Store
from fastload.datasets.cache.layout import Layout, prepare
from fastload.errors import OptionError

if sys.platform != "win32":
    import fcntl

DEFAULT_PARENT = "/dev/shm"

_MEMORY_NAME = "fastload-cache"
_GATE = "gate"
_NAME = re.compile(r"([0-9a-f]{32})\.(users|data|filler)")
# Windows, which has no caches but imports this module, has neither flag.
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

# The stores of this process: two datasets of one folder share one.
_opened: weakref.WeakValueDictionary[tuple[str, str], Store] = weakref.WeakValueDictionary()

# Descriptors of the shared locks that make this process a user, by store; a forked child closes its copies.
_uses: dict[int, int] = {}


def can_cache() -> bool:
    """Return True if this system has what stores need: memfd, posix_fallocate and /proc (Linux)."""
    return hasattr(os, "memfd_create") and hasattr(os, "posix_fallocate") and os.path.isdir("/proc/self/fd")


def store_folder(parent: str | os.PathLike[str] | None = None, holds_data: bool = True) -> str:
    """Return the path of this user's folder in `parent`, by default /dev/shm; it need not exist yet.

    If the folder holds no data and /dev/shm is not writable, the default is the system's temporary folder.
    Raises OptionError unless the parent is a writable folder.
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
        """Return the path of a store's file."""
        return os.path.join(self.path, f"{key}.{suffix}")

    def open(self, key: str, suffix: str) -> int:
        """Open a store's file, made if it is missing; the caller closes the descriptor."""
        return os.open(self.file(key, suffix), _FLAGS | os.O_CREAT, 0o600)

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
                gate = os.open(os.path.join(self.path, _GATE), _FLAGS | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue  # the last process to leave has just removed the folder
            fcntl.flock(gate, fcntl.LOCK_EX)
            if os.fstat(gate).st_nlink:
                return gate
            os.close(gate)


@dataclass(frozen=True, slots=True)
class Opening:
    """Parameters with which a store is opened, in this process or, pickled, in another."""

    kind: Literal["ram", "tmpfs"]
    form: Form
    folder: str  # of the registry, see `store_folder`
    key: str  # 32 hexadecimal digits that identify the dataset's content and the form in which it is stored
    layout: Layout  # of a new store; an existing one has its own
    room: Room = memory_room


def open_store(opening: Opening, is_guest: bool = False) -> Store:
    """Open a store, or make it if no process uses it.

    With `is_guest`, a process started by a user of the store (a worker) does not count as another user.
    Raises OSError if there is no room for a new store or the existing one is damaged, OptionError if the
    folder does not belong to this user alone.
    """
    folder, key = opening.folder, opening.key
    store = _opened.get((folder, key))
    if store is not None:
        return store
    place = StoreFolder(folder)
    with place.gate():
        for other in {found[1] for name in os.listdir(folder) if (found := _NAME.fullmatch(name))}:
            place.remove_if_unused(other)
        users = place.open(key, "users")
        # Never waits: it is locked exclusively only by a process that holds the gate.
        fcntl.flock(users, fcntl.LOCK_SH)
        try:
            descriptor = _open_existing(place, opening, users)
            is_user = descriptor is None or not is_guest or multiprocessing.parent_process() is None
            if descriptor is None:
                descriptor = _create(place, opening)
            store = open_inherited(opening, descriptor)
            if is_user:
                os.lseek(users, 0, os.SEEK_END)
                os.write(users, f"{os.getpid()} {descriptor} {os.fstat(descriptor).st_ino}\n".encode())
        except BaseException:
            os.close(users)
            place.remove_if_unused(key)
            raise
    if is_user:
        _uses[id(store)] = users
        weakref.finalize(store, _leave, folder, key, id(store), os.getpid())
    else:
        os.close(users)
    return store


def open_inherited(opening: Opening, descriptor: int) -> Store:
    """Return the store of an open descriptor, which the store closes; this process is not made a user."""
    folder = opening.folder if opening.kind == "tmpfs" else None
    try:
        store = Store(descriptor, folder, opening.room, bytes.fromhex(opening.key))
    except OSError:
        os.close(descriptor)
        raise
    expected = opening.layout
    if (store.count, store.layout.fixed_bytes) != (expected.count, expected.fixed_bytes):
        raise OSError(errno.EBADMSG, "it belongs to another dataset")
    _opened[opening.folder, opening.key] = store
    return store


def _open_existing(place: StoreFolder, opening: Opening, users: int) -> int | None:
    """Return a descriptor of a store that some process uses."""
    if opening.kind == "tmpfs":
        with contextlib.suppress(FileNotFoundError):
            return os.open(place.file(opening.key, "data"), _FLAGS)
        return None
    for line in os.pread(users, os.fstat(users).st_size, 0).decode().splitlines():
        # The process may have ended since, and its PID or its descriptor may have been reused.
        process, number, inode = map(int, line.split())
        path = f"/proc/{process}/fd/{number}"
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(f"/memfd:{_MEMORY_NAME}") and os.stat(path).st_ino == inode:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return None


def _create(place: StoreFolder, opening: Opening) -> int:
    if opening.kind == "ram":
        descriptor = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
    else:
        descriptor = os.open(place.file(opening.key, "data"), _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        prepare(descriptor, opening.layout, bytes.fromhex(opening.key))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _leave(folder: str, key: str, number: int, process: int) -> None:
    """Stop counting as a user of a store, and remove it if nobody else uses it."""
    if os.getpid() != process:
        return
    users = _uses.pop(number)
    place = StoreFolder(folder)
    # A folder that has been changed or removed must not make training fail at its end.
    with contextlib.suppress(OSError, ValueError), place.gate():
        os.close(users)
        place.remove_if_unused(key)


def _forget_uses() -> None:
    for users in _uses.values():
        os.close(users)
    _uses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_uses)
