"""Stores of one user: a process opens those that others hold through a folder in which all register as users.

    /dev/shm/fastload-1000/         mode 0700, made by fastload
      gate                          locked for microseconds by each process that changes this folder
      <key>.users                   locked, shared, by every process that uses the store; lists their PIDs,
                                    with the descriptor, the device and the inode of the store

A store has no name: it is anonymous memory (`ram`), or a file that is unlinked as soon as it is made
(`tmpfs`). A process opens it through /proc/<pid>/fd of a process that holds it, and the kernel frees it with
the last of them, however that ends.

The kernel drops a lock when its process ends. So if a process can lock a store's users exclusively, nobody
uses the store, and its list is removed: by its last user or, if a signal or os._exit ended that process, by
the next process to open a store. Only files with these names are removed, and only if the folder is owned by
this user and not a link; the folder is removed with the last list.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import re
import stat
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
from fastload.system.cache_lock import CacheLock

DEFAULT_PARENT = "/dev/shm"

_GATE = "gate"
_USERS_FILE = re.compile(r"([0-9a-f]{32})\.users")

# The stores of this process: two datasets of one folder share one.
_opened: weakref.WeakValueDictionary[tuple[str, str], Store] = weakref.WeakValueDictionary()


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


@dataclass(frozen=True, slots=True)
class Opening:
    """Parameters with which a store is opened, in this process or, pickled, in another."""

    kind: Literal["ram", "tmpfs"]
    form: Form
    folder: str  # where its users register, see `store_folder`
    key: str  # 32 hexadecimal digits that identify the dataset's content and the form in which it is stored
    layout: Layout  # of a new store; an existing one has its own
    room: Room = memory_room

    def open(self, descriptor: int) -> Store:
        """Return the store of a descriptor, which the store closes; raise OSError if it is another one."""
        folder = self.folder if self.kind == "tmpfs" else None
        try:
            store = Store(descriptor, folder, self.room, bytes.fromhex(self.key))
        except OSError:
            os.close(descriptor)
            raise
        if (store.count, store.layout.fixed_bytes) != (self.layout.count, self.layout.fixed_bytes):
            raise OSError(errno.EBADMSG, "it belongs to another dataset")
        return store

    def create(self) -> int:
        """Return a descriptor of a new, empty store."""
        if self.kind == "ram":
            descriptor = os.memfd_create("fastload-cache", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
                descriptor = os.dup(file.fileno())
        try:
            prepare(descriptor, self.layout, bytes.fromhex(self.key))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def open_store(opening: Opening, is_unpickled: bool = False) -> Store:
    """Open a store, or make it if no process uses it.

    A worker that unpickles the samples of a user (`is_unpickled`) does not count as another user. Raises
    OSError if there is no room for a new store or the existing one is damaged, OptionError if the folder does
    not belong to this user alone.
    """
    folder, key = opening.folder, opening.key
    store = _opened.get((folder, key))
    if store is not None:
        return store
    with _gate(folder):
        for name in os.listdir(folder):
            if found := _USERS_FILE.fullmatch(name):
                _remove_if_unused(folder, found[1])
        users = CacheLock(_users_file(folder, key), os.O_RDWR | os.O_CREAT)
        # Never waits: it is locked exclusively only by a process that holds the gate.
        users.take(shared=True, waits=True)
        try:
            descriptor = _held_by_a_user(users.fileno())
            is_user = descriptor is None or not is_unpickled or multiprocessing.parent_process() is None
            if descriptor is None:
                descriptor = opening.create()
            store = opening.open(descriptor)
            if is_user:
                status = os.fstat(descriptor)
                os.lseek(users.fileno(), 0, os.SEEK_END)
                line = f"{os.getpid()} {descriptor} {status.st_dev} {status.st_ino}\n"
                os.write(users.fileno(), line.encode())
        except BaseException:
            users.release()
            _remove_if_unused(folder, key)
            raise
    _opened[folder, key] = store
    if is_user:
        weakref.finalize(store, _leave, folder, key, users, os.getpid())
    else:
        users.release()
    return store


def is_used(folder: str, key: str) -> bool:
    """Return True if any process uses a store."""
    if not os.path.exists(_users_file(folder, key)):
        return False
    with _gate(folder):
        return not _remove_if_unused(folder, key)


def _leave(folder: str, key: str, users: CacheLock, owner: int) -> None:
    """End the use of a store by this process."""
    if os.getpid() != owner:
        return
    users.release()
    # A folder that has been replaced or removed must not make training fail at its end.
    with contextlib.suppress(OSError, ValueError), _gate(folder):
        _remove_if_unused(folder, key)


def _held_by_a_user(users: int) -> int | None:
    """Return a descriptor of a store that one of the users in this list holds."""
    for line in os.pread(users, os.fstat(users).st_size, 0).decode().splitlines():
        # The process may have ended since, and its PID or its descriptor may have been reused.
        process, number, *identity = map(int, line.split())
        with contextlib.suppress(OSError):
            path = f"/proc/{process}/fd/{number}"
            status = os.stat(path)
            if [status.st_dev, status.st_ino] == identity:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return None


def _users_file(folder: str, key: str) -> str:
    return os.path.join(folder, f"{key}.users")


def _remove_if_unused(folder: str, key: str) -> bool:
    """Remove the list of a store's users, and return True, if there are none; the caller holds the gate."""
    users = CacheLock.on(_users_file(folder, key))
    if users is None:
        return False
    os.unlink(_users_file(folder, key))
    users.release()
    return True


@contextlib.contextmanager
def _gate(folder: str) -> Iterator[None]:
    """Exclude changes of a folder by other processes; it is made for the first store.

    Raises OptionError if the folder is a link, another user's, or open to others.
    """
    gate = _lock_gate(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if os.listdir(folder) == [_GATE]:
                os.unlink(os.path.join(folder, _GATE))
                # A process that opens the folder now makes a new gate, and rmdir fails.
                os.rmdir(folder)
        gate.release()


def _lock_gate(folder: str) -> CacheLock:
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise OptionError(
                    f"{folder}: must be a folder that you own and others cannot open (mode 700): "
                    'remove it, or name another place with fastload.Cache("tmpfs", folder=...)'
                )
            gate = CacheLock.on(os.path.join(folder, _GATE), waits=True)
        except FileNotFoundError:
            continue  # its last user has just removed the folder
        assert gate is not None
        return gate
