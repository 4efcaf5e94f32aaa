"""Registry of one user's stores: a process opens those that others hold, and the last user removes the entry.

    /dev/shm/fastload-1000/         mode 0700, made by fastload
      <key>.users                   locked, shared, by every process that uses the store; lists their PIDs,
                                    with the descriptor, the device and the inode of the store

A store has no name: it is anonymous memory (`ram`), or a file that is unlinked as soon as it is made
(`tmpfs`). A process opens it through /proc/<pid>/fd of a process that holds it, and the kernel frees it with
the last of them, however that ends.

The kernel drops a lock when its process ends. So a process that can lock a list exclusively is alone: it
makes the store and then shares the lock, or removes the list of a store that nobody uses any more. That does
its last user or, if a signal or os._exit ended that process, the next process to open a store. Only files
with these names are removed, and only if the folder is owned by this user and not a link; the folder is
removed with the last list.
"""

from __future__ import annotations

import contextlib
import copyreg
import multiprocessing
import os
import re
import stat
import tempfile
import weakref

from fastload.datasets.cache.store import Opening, Store
from fastload.errors import OptionError
from fastload.system.own_files import CacheLock

_USERS_FILE = re.compile(r"[0-9a-f]{32}\.users")

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
    place = "/dev/shm" if parent is None else os.path.abspath(os.path.expanduser(os.fspath(parent)))
    if parent is None and not holds_data and not os.access(place, os.W_OK | os.X_OK):
        place = tempfile.gettempdir()
    if not os.path.isdir(place) or not os.access(place, os.W_OK | os.X_OK):
        raise OptionError(
            f"{place}: a cache's folder must exist and be writable: name one with "
            'fastload.Cache("tmpfs", folder=...), such as a tmpfs that is mounted for you'
        )
    return os.path.join(place, f"fastload-{os.getuid()}")


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
    users, is_only = _joined(folder, key)
    try:
        descriptor = None if is_only else _held_by_a_user(users.fileno())
        is_user = descriptor is None or not is_unpickled or multiprocessing.parent_process() is None
        if descriptor is None:
            descriptor = opening.create()
        try:
            store = Store(descriptor, opening)
        except OSError:
            os.close(descriptor)
            raise
        if is_user:
            line = (os.getpid(), descriptor, *_identity(descriptor))
            os.write(users.fileno(), (" ".join(map(str, line)) + "\n").encode())
            users.take(shared=True, waits=True)
    except BaseException:
        users.release()
        _remove_unused(folder)
        raise
    _opened[folder, key] = store
    if is_user:
        weakref.finalize(store, _leave, folder, users, os.getpid())
    else:
        users.release()
    return store


# A store is opened again where it is unpickled.
copyreg.pickle(Store, lambda store: (open_store, (store.opening, True)))


def is_used(folder: str, key: str) -> bool:
    """Return True if any process uses a store."""
    with contextlib.suppress(FileNotFoundError):
        _remove_unused(folder)
    return os.path.exists(_users_file(folder, key))


def _joined(folder: str, key: str) -> tuple[CacheLock, bool]:
    """Lock the list of a store's users; return True as well if it is locked exclusively, by its only user."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            _require_private(folder)
            users = CacheLock(_users_file(folder, key), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except FileNotFoundError:
            continue  # its last user has just removed the folder
        is_only = users.take()
        if not is_only:  # another one shares the lock, except while it makes or removes the store
            users.take(shared=True, waits=True)
        if os.fstat(users.fileno()).st_nlink:
            break
        users.release()  # the list was removed a moment ago
    if is_only:
        os.ftruncate(users.fileno(), 0)  # of processes that were killed
    _remove_unused(folder)
    return users, is_only


def _held_by_a_user(users: int) -> int | None:
    """Return a descriptor of a store that one of the users in this list holds."""
    for line in os.pread(users, os.fstat(users).st_size, 0).decode().splitlines():
        process, number, *identity = map(int, line.split())
        path = f"/proc/{process}/fd/{number}"
        with contextlib.suppress(OSError):  # the process has ended since
            # Its PID or its descriptor may have been reused, also between looking at it and opening it.
            if _identity(path) == identity:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                if _identity(descriptor) == identity:
                    return descriptor
                os.close(descriptor)
    return None


def _identity(file: str | int) -> list[int]:
    status = os.stat(file)
    return [status.st_dev, status.st_ino]


def _leave(folder: str, users: CacheLock, owner: int) -> None:
    """End the use of a store by this process."""
    if os.getpid() == owner:
        users.release()
        # A folder that has been replaced or removed must not make training fail at its end.
        with contextlib.suppress(OSError, ValueError):
            _remove_unused(folder)


def _users_file(folder: str, key: str) -> str:
    return os.path.join(folder, f"{key}.users")


def _remove_unused(folder: str) -> None:
    """Remove the lists of stores that nobody uses, and the folder if it is empty then."""
    _require_private(folder)
    for name in filter(_USERS_FILE.fullmatch, os.listdir(folder)):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            path = os.path.join(folder, name)
            if (users := CacheLock.on(path, is_new=False)) is not None:
                os.unlink(path)
                users.release()
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _require_private(folder: str) -> None:
    """Raise OptionError if a folder is a link, another user's, or open to others."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise OptionError(
            f"{folder}: must be a folder that you own and others cannot open (mode 700): "
            'remove it, or name another place with fastload.Cache("tmpfs", folder=...)'
        )
