"""Opening a store: the one that a process of this user already has, or a new one.

`ram` is anonymous memory (memfd): a process finds it through /proc/<pid>/fd of one that holds it, and the
kernel frees it with the last of them, however that ends. `tmpfs` is a file, which goes with the last user
that leaves in order, or at the next start of any.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from fastload.datasets.cache.folder import OPENED_SAFELY, StoreFolder, lock
from fastload.datasets.cache.layout import Layout, prepare
from fastload.datasets.cache.limits import Limits
from fastload.datasets.cache.store import Store

StoreKind = Literal["ram", "tmpfs"]

_MEMORY_NAME = "fastload-cache"

# Of this process: two datasets of one folder share a store.
_opened: weakref.WeakValueDictionary[tuple[str, str], Store] = weakref.WeakValueDictionary()
# What tells the others that this process uses a store; a forked child's own copies are closed.
_uses: dict[int, int] = {}


def can_share_memory() -> bool:
    """Whether this system has memory without a name that another process can find."""
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def can_keep() -> bool:
    """Whether this system can set memory aside for a file before it is written to."""
    return hasattr(os, "posix_fallocate")


@dataclass(frozen=True, slots=True)
class Opening:
    """All that it takes to open a store, in this process or in one that it is pickled to.

    Attributes:
        kind: `ram` or `tmpfs`.
        folder: See `fastload.datasets.cache.folder`.
        key: 32 hexadecimal digits that stand for the dataset's content and for the form in which it is kept.
        layout: Of a new store; one that exists has its own.
        limits: What must stay free of the memory.
    """

    kind: StoreKind
    folder: str
    key: str
    layout: Layout
    limits: Limits = field(default_factory=Limits)


def open_store(opening: Opening, is_guest: bool = False) -> Store:
    """Opens a store, or makes it where no process uses it.

    Args:
        opening: Which, and where.
        is_guest: Whether a process that a user of the store has started does not count as a further one.

    Raises:
        OSError: There is no room for a new one, or the one that is there is damaged.
        OptionError: The folder is not this user's own.
    """
    kind, folder, key, layout, limits = (
        opening.kind, opening.folder, opening.key, opening.layout, opening.limits
    )  # fmt: skip
    store = _opened.get((folder, key))
    if store is not None:
        return store
    if _adopted.descriptor >= 0:
        again = _again(opening, _adopted.descriptor)
        store = Store(_adopted.descriptor, again, _tmpfs(opening), limits, bytes.fromhex(key))
        _opened[folder, key] = store
        return store
    place = StoreFolder(folder)
    with place.gate():
        place.sweep()
        users = place.open(key, "users")
        # Nobody waits here: only behind the gate is it locked alone, and for no longer.
        lock(users, "LOCK_SH")
        try:
            descriptor = _existing(place, kind, key)
            is_new = descriptor is None
            if descriptor is None:
                descriptor = _made(place, kind, key, layout, limits)
            is_user = is_new or not is_guest or multiprocessing.parent_process() is None
            if kind == "ram" and is_user:
                _register(place, key, descriptor, is_new)
        except BaseException:
            os.close(users)
            place.remove_if_unused(key)
            raise
        if not is_user:
            os.close(users)
    try:
        again = _again(opening, descriptor)
        store = Store(descriptor, again, _tmpfs(opening), limits, bytes.fromhex(key))
        if (store.count, store.layout.fixed_bytes) != (layout.count, layout.fixed_bytes):
            raise OSError(errno.EBADMSG, "it is another dataset's")
    except OSError:
        os.close(descriptor)
        if is_user:
            os.close(users)
        raise
    _opened[folder, key] = store
    if is_user:
        _uses[id(store)] = users
        weakref.finalize(store, _leave, folder, key, id(store), os.getpid())
    return store


@contextlib.contextmanager
def adopt(descriptor: int) -> Iterator[None]:
    """Has the one store that is opened meanwhile be one whose descriptor this process was started with."""
    _adopted.descriptor = descriptor
    try:
        yield
    finally:
        _adopted.descriptor = -1


class _Adopted(threading.local):
    descriptor = -1


_adopted = _Adopted()


def _again(opening: Opening, descriptor: int) -> str:
    """By which path a process opens a store of its own once more."""
    if opening.kind == "ram":
        return f"/proc/self/fd/{descriptor}"
    return StoreFolder(opening.folder).file(opening.key, "data")


def _tmpfs(opening: Opening) -> str | None:
    return opening.folder if opening.kind == "tmpfs" else None


def _existing(place: StoreFolder, kind: StoreKind, key: str) -> int | None:
    """A descriptor of a store that some process uses."""
    if kind == "tmpfs":
        with contextlib.suppress(FileNotFoundError):
            return os.open(place.file(key, "data"), OPENED_SAFELY)
        return None
    for process, number, inode in _registered(place, key):
        if (descriptor := _opened_of(process, number, inode)) is not None:
            return descriptor
    return None


def _made(place: StoreFolder, kind: StoreKind, key: str, layout: Layout, limits: Limits) -> int:
    if kind == "ram":
        descriptor = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
    else:
        flags = OPENED_SAFELY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(place.file(key, "data"), flags, 0o600)
    try:
        prepare(descriptor, layout, limits.margin(), bytes.fromhex(key))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _registered(place: StoreFolder, key: str) -> Iterator[tuple[int, int, int]]:
    """Who holds the memory of a key: process, descriptor and the memory's inode."""
    with contextlib.suppress(FileNotFoundError), open(place.file(key, "memory")) as file:
        for line in file:
            process, number, inode = map(int, line.split())
            yield process, number, inode


def _register(place: StoreFolder, key: str, descriptor: int, is_new: bool) -> None:
    """Adds this process to those that hold the memory, and drops those that no longer do."""
    inode = os.fstat(descriptor).st_ino
    held = []
    if not is_new:
        for process, number, its_inode in _registered(place, key):
            if (other := _opened_of(process, number, its_inode)) is not None:
                os.close(other)
                held.append((process, number, its_inode))
    lines = [
        f"{process} {number} {its}\n" for process, number, its in [*held, (os.getpid(), descriptor, inode)]
    ]
    file = place.open(key, "memory")
    try:
        os.ftruncate(file, 0)
        os.write(file, "".join(lines).encode())
    finally:
        os.close(file)


def _opened_of(process: int, number: int, inode: int) -> int | None:
    """Opens the memory by another process's descriptor, if that process and its memory are still there."""
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
    """Tells the others that this process has gone; removes what nobody uses any more."""
    if os.getpid() != process:
        return
    users = _uses.pop(number)
    place = StoreFolder(folder)
    # Whatever became of the folder meanwhile is no reason to fail at the end of a training.
    with contextlib.suppress(OSError, ValueError), place.gate():
        os.close(users)
        place.remove_if_unused(key)


def _in_child() -> None:
    for users in _uses.values():
        os.close(users)
    _uses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
