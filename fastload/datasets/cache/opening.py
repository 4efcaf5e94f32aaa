"""Opening a store: the one that another process of this user has, or a new one.

`ram` is anonymous memory (memfd): a process finds it through /proc/<pid>/fd of a process that holds it, and
the kernel frees it with the last of them, however that ends. `tmpfs` is a file, removed by the last user to
leave in order, or at the next start of any.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from fastload.datasets.cache.folder import OPENED_SAFELY, StoreFolder, lock
from fastload.datasets.cache.layout import Layout, prepare
from fastload.datasets.cache.limits import CacheLimits
from fastload.datasets.cache.store import Store

StoreKind = Literal["ram", "tmpfs"]

_MEMORY_NAME = "fastload-cache"

# The stores of this process: two datasets of one folder share one.
_opened: weakref.WeakValueDictionary[tuple[str, str], Store] = weakref.WeakValueDictionary()

# The shared locks by which this process counts as a user, by store; a forked child closes its copies.
_uses: dict[int, int] = {}


def can_cache() -> bool:
    """Return True if this system has what stores need: memfd, posix_fallocate and /proc (Linux)."""
    return hasattr(os, "memfd_create") and hasattr(os, "posix_fallocate") and os.path.isdir("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything needed to open a store, in this process or in one that this is pickled to.

    Attributes:
        kind: `ram` or `tmpfs`.
        folder: See `fastload.datasets.cache.folder`.
        key: 32 hexadecimal digits that identify the dataset's content and the form in which it is stored.
        layout: The layout of a new store; an existing one has its own.
        limits: The memory that must stay free.
    """

    kind: StoreKind
    folder: str
    key: str
    layout: Layout
    limits: CacheLimits = field(default_factory=CacheLimits)

    def reopening_path(self, descriptor: int) -> str:
        """Return the path by which the store is opened once more."""
        if self.kind == "ram":
            return f"/proc/self/fd/{descriptor}"
        return StoreFolder(self.folder).file(self.key, "data")


def open_store(opening: Opening, is_guest: bool = False) -> Store:
    """Open a store, or make it if no process uses it.

    `is_guest` keeps a process started by a user of the store (a worker) from counting as another user. Raises
    OSError if there is no room for a new store or the existing one is damaged, OptionError if the folder is
    not this user's own.
    """
    folder, key = opening.folder, opening.key
    store = _opened.get((folder, key))
    if store is not None:
        return store
    place = StoreFolder(folder)
    with place.gate():
        place.sweep()
        users = place.open(key, "users")
        # Never waits: it is locked exclusively only behind the gate.
        lock(users, "LOCK_SH")
        try:
            descriptor = _existing(place, opening)
            is_new = descriptor is None
            if descriptor is None:
                descriptor = _made(place, opening)
            is_user = is_new or not is_guest or multiprocessing.parent_process() is None
            if opening.kind == "ram" and is_user:
                _register(place, key, descriptor, is_new)
        except BaseException:
            os.close(users)
            place.remove_if_unused(key)
            raise
        if not is_user:
            os.close(users)
    try:
        store = _store(opening, descriptor)
    except OSError:
        os.close(descriptor)
        if is_user:
            os.close(users)
        raise
    if is_user:
        _uses[id(store)] = users
        weakref.finalize(store, _leave, folder, key, id(store), os.getpid())
    return store


def open_inherited(opening: Opening, descriptor: int) -> Store:
    """Open a store whose descriptor this process has inherited; it does not count as a user."""
    return _store(opening, descriptor)


def _store(opening: Opening, descriptor: int) -> Store:
    folder = opening.folder if opening.kind == "tmpfs" else None
    path, key = opening.reopening_path(descriptor), bytes.fromhex(opening.key)
    store = Store(descriptor, path, folder, opening.limits, key)
    expected = opening.layout
    if (store.count, store.layout.fixed_bytes) != (expected.count, expected.fixed_bytes):
        raise OSError(errno.EBADMSG, "it is another dataset's")
    _opened[opening.folder, opening.key] = store
    return store


def _existing(place: StoreFolder, opening: Opening) -> int | None:
    """Return a descriptor of a store that some process uses."""
    if opening.kind == "tmpfs":
        with contextlib.suppress(FileNotFoundError):
            return os.open(place.file(opening.key, "data"), OPENED_SAFELY)
        return None
    for process, number, inode in _holders(place, opening.key):
        if (descriptor := _open_memory_of(process, number, inode)) is not None:
            return descriptor
    return None


def _made(place: StoreFolder, opening: Opening) -> int:
    """Return a descriptor of a new, empty store."""
    if opening.kind == "ram":
        descriptor = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
    else:
        flags = OPENED_SAFELY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(place.file(opening.key, "data"), flags, 0o600)
    try:
        prepare(descriptor, opening.layout, opening.limits.margin(), bytes.fromhex(opening.key))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _holders(place: StoreFolder, key: str) -> Iterator[tuple[int, int, int]]:
    """Yield process, descriptor and inode for each process that holds the memory of a store."""
    with contextlib.suppress(FileNotFoundError), open(place.file(key, "memory")) as file:
        for line in file:
            process, number, inode = map(int, line.split())
            yield process, number, inode


def _register(place: StoreFolder, key: str, descriptor: int, is_new: bool) -> None:
    """Add this process to those that hold the memory, and drop those that no longer do."""
    holders = []
    for holder in () if is_new else _holders(place, key):
        if (other := _open_memory_of(*holder)) is not None:
            os.close(other)
            holders.append(holder)
    holders.append((os.getpid(), descriptor, os.fstat(descriptor).st_ino))
    file = place.open(key, "memory")
    try:
        os.ftruncate(file, 0)
        os.write(
            file, "".join(f"{process} {number} {inode}\n" for process, number, inode in holders).encode()
        )
    finally:
        os.close(file)


def _open_memory_of(process: int, number: int, inode: int) -> int | None:
    """Open the memory by another process's descriptor, if the process and its memory still exist."""
    path = f"/proc/{process}/fd/{number}"
    try:
        if not os.readlink(path).startswith(f"/memfd:{_MEMORY_NAME}"):
            return None
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(descriptor).st_ino == inode:
        return descriptor
    os.close(descriptor)
    return None


def _leave(folder: str, key: str, number: int, process: int) -> None:
    """Stop counting as a user of a store, and remove it if nobody else uses it."""
    if os.getpid() != process:
        return
    users = _uses.pop(number)
    place = StoreFolder(folder)
    # A folder that has been changed or removed is no reason to fail at the end of a training.
    with contextlib.suppress(OSError, ValueError), place.gate():
        os.close(users)
        place.remove_if_unused(key)


def _in_child() -> None:
    for users in _uses.values():
        os.close(users)
    _uses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
