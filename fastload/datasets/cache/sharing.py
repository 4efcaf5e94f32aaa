"""Opening of stores, each of which all processes of one user share.

A store has no name: it is anonymous memory (`ram`), or a file that is unlinked as soon as it is made
(`tmpfs`). A process opens it through one that holds it, and the kernel frees it with the last of them,
however that ends. What is left of it in the registry is then removed by that process or, if a signal or
os._exit ended it, by the next one that opens a store.
"""

from __future__ import annotations

import contextlib
import copyreg
import os
import tempfile
import weakref

from fastload.datasets.cache.store import Opening, Store
from fastload.errors import OptionError
from fastload.system.cache_folder import CacheFolder
from fastload.system.own_files import CacheLock, add_holder, open_held

# The stores of this process: two datasets of one folder share one.
_opened: weakref.WeakValueDictionary[tuple[str, str], Store] = weakref.WeakValueDictionary()


def can_cache() -> bool:
    """Return True if this system has what stores need: memfd, posix_fallocate and /proc (Linux)."""
    return hasattr(os, "memfd_create") and hasattr(os, "posix_fallocate") and os.path.isdir("/proc/self/fd")


def store_folder(parent: str | os.PathLike[str] | None = None, holds_data: bool = True) -> CacheFolder:
    """Return this user's registry of stores in `parent`, by default /dev/shm.

    If the folder holds no data and /dev/shm is not writable, the default is the system's temporary folder.
    Raises OptionError unless the parent is a writable folder, and unless the folder in it, if there is one,
    can only have been made by this user.
    """
    place = "/dev/shm" if parent is None else os.path.abspath(os.path.expanduser(os.fspath(parent)))
    if parent is None and not holds_data and not os.access(place, os.W_OK | os.X_OK):
        place = tempfile.gettempdir()
    if not os.path.isdir(place) or not os.access(place, os.W_OK | os.X_OK):
        raise OptionError(
            f"{place}: a cache's folder must exist and be writable: name one with "
            'fastload.Cache("tmpfs", folder=...), such as a tmpfs that is mounted for you'
        )
    folder = CacheFolder.of_memory(place)
    folder.check()
    return folder


def open_store(opening: Opening) -> Store:
    """Open a store, or make it if no process uses it.

    Raises OSError if there is no room for a new store or the existing one is damaged, OptionError if the
    folder does not belong to this user alone.
    """
    folder, name = opening.folder, opening.name
    place = str(folder.path), opening.key
    if (opened := _opened.get(place)) is not None:
        return opened
    lock, is_only = _joined(folder, name)
    try:
        users = folder.lock_file(name)
        descriptor = None if is_only else open_held(users)
        if descriptor is None:
            descriptor = opening.create()
            if is_only:
                counts = {"samples": opening.count, "total": opening.count}
                folder.describe(name, dataset=opening.dataset, encode=opening.form, **counts)
        try:
            store = Store(descriptor, opening)
        except OSError:
            os.close(descriptor)
            raise
        add_holder(users, descriptor)
        lock.take(shared=True, waits=True)
    except BaseException:
        lock.release()
        folder.sweep()
        raise
    _opened[place] = store
    weakref.finalize(store, _leave, folder, lock, os.getpid())
    return store


# A store is opened again where it is unpickled.
copyreg.pickle(Store, lambda store: (open_store, (store.opening,)))


def _joined(folder: CacheFolder, name: str) -> tuple[CacheLock, bool]:
    """Lock a store, which the processes that use it share; return True as well if this is the only one."""
    while True:
        folder.sweep()  # of processes that were killed
        folder.make()
        with contextlib.suppress(FileNotFoundError):  # its last user has just removed the folder
            if (lock := folder.lock(name)) is not None:
                return lock, True
            # Others share the lock, except while they make or remove the store.
            if (lock := folder.lock(name, shared=True, waits=True)) is not None:
                return lock, False


def _leave(folder: CacheFolder, lock: CacheLock, owner: int) -> None:
    """End the use of a store by this process."""
    if os.getpid() == owner:
        lock.release()
        folder.sweep()
