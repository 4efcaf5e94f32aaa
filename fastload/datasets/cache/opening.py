"""Opening of stores that the processes of one user share, through their registry."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import tempfile
import weakref
from dataclasses import dataclass
from typing import Literal

from fastload.datasets.cache._choose import Form
from fastload.datasets.cache._limits import Room, memory_room
from fastload.datasets.cache._registry import STORE_FILE, StoreFolder, start_remover
from fastload.datasets.cache._store import Store
from fastload.datasets.cache.layout import Layout, prepare
from fastload.errors import OptionError
from fastload.system.cache_lock import CacheLock
from fastload.system.own_files import open_own

DEFAULT_PARENT = "/dev/shm"

_MEMORY_NAME = "fastload-cache"

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
    folder: str  # of the registry, see `store_folder`
    key: str  # 32 hexadecimal digits that identify the dataset's content and the form in which it is stored
    layout: Layout  # of a new store; an existing one has its own
    room: Room = memory_room


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
    registry = StoreFolder(folder)
    with registry.gate():
        for other in {found[1] for name in os.listdir(folder) if (found := STORE_FILE.fullmatch(name))}:
            registry.remove_if_unused(other)
        users = registry.open(key, "users")
        # Never waits: it is locked exclusively only by a process that holds the gate.
        users.take(shared=True, waits=True)
        try:
            descriptor = _open_existing(registry, opening, users.fileno())
            is_new = descriptor is None
            is_user = is_new or not is_unpickled or multiprocessing.parent_process() is None
            if descriptor is None:
                descriptor = _create(registry, opening)
            store = open_inherited(opening, descriptor)
            if is_user:
                os.lseek(users.fileno(), 0, os.SEEK_END)
                line = f"{os.getpid()} {descriptor} {os.fstat(descriptor).st_ino}\n"
                os.write(users.fileno(), line.encode())
        except BaseException:
            users.release()
            registry.remove_if_unused(key)
            raise
    if is_user:
        remover = start_remover(folder, key) if is_new and opening.kind == "tmpfs" else 0
        weakref.finalize(store, _leave, folder, key, users, os.getpid(), remover)
    else:
        users.release()
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


def _open_existing(registry: StoreFolder, opening: Opening, users: int) -> int | None:
    """Return a descriptor of a store that some process uses."""
    if opening.kind == "tmpfs":
        with contextlib.suppress(FileNotFoundError):
            return open_own(registry.file(opening.key, "data"), os.O_RDWR)
        return None
    for line in os.pread(users, os.fstat(users).st_size, 0).decode().splitlines():
        # The process may have ended since, and its PID or its descriptor may have been reused.
        process, number, inode = map(int, line.split())
        path = f"/proc/{process}/fd/{number}"
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(f"/memfd:{_MEMORY_NAME}") and os.stat(path).st_ino == inode:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return None


def _create(registry: StoreFolder, opening: Opening) -> int:
    if opening.kind == "ram":
        descriptor = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
    else:
        descriptor = open_own(registry.file(opening.key, "data"), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        prepare(descriptor, opening.layout, bytes.fromhex(opening.key))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _leave(folder: str, key: str, users: CacheLock, owner: int, remover: int) -> None:
    """End the use of a store by this process; the last user removes it and ends its remover."""
    if os.getpid() != owner:
        return
    users.release()
    registry = StoreFolder(folder)
    # A folder that has been replaced or removed must not make training fail at its end.
    with contextlib.suppress(OSError, ValueError), registry.gate():
        if registry.remove_if_unused(key) and remover:
            os.kill(remover, signal.SIGKILL)
            os.waitpid(remover, 0)
