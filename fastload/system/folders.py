"""A disk's free space, and changes to folders that survive a crash."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from fastload.errors import DestinationError

# linux/fcntl.h and linux/fs.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

# What renameat2(2) says where it cannot exchange: the filesystem does not (EINVAL, ENOTSUP), the
# kernel is older than the call (ENOSYS), or a sandbox filters calls that it does not know (EPERM).
_CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EPERM})


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Returns how many bytes can still be written at `path`, which need not exist yet.

    Space kept for the superuser is not counted. Where `path` does not exist, the nearest folder
    above it tells.
    """
    place = Path(os.path.abspath(path))
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Writes a folder's entries to the disk, so that files made or renamed in it outlast a crash.

    Where the system cannot do that (Windows, some network filesystems), nothing is done.

    Raises:
        OSError: The folder cannot be opened, or the disk failed.
    """
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def replace_folder(new: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Puts the folder `new` in the place of `target`, then removes what was there.

    On Linux the two are exchanged in one step (`renameat2`), so at every moment, a crash included,
    `target` is wholly the old folder or wholly the new one. Elsewhere, or where the filesystem
    refuses, two renames do it: a crash just between them leaves `target` missing, the old folder
    beside it in `.<name>.<random>.old`, and `new` as it was. The old folder is removed last, after
    the change is on disk. A `target` that does not exist is simply made; one that is a link to a
    folder stays a link.

    Args:
        new: The finished folder, on the same filesystem as `target`; gone afterwards.
        target: The folder to replace.

    Raises:
        DestinationError: `target` exists and is not a folder, or is `new` itself.
        OSError: A rename failed, and `target` is as it was; or the old folder could not be removed
            entirely, and `target` is the new one.
    """
    source, destination = os.path.realpath(new), os.path.realpath(target)
    if not os.path.isdir(source):
        raise NotADirectoryError(errno.ENOTDIR, "only a folder can replace a folder", source)
    if source == destination:
        raise DestinationError(f"{os.fspath(target)}: a folder cannot replace itself")
    if not os.path.lexists(destination):
        os.rename(source, destination)
        old = None
    elif not os.path.isdir(destination):
        raise DestinationError(f"{os.fspath(target)}: must be a folder to be replaced by one")
    elif _exchange(source, destination):
        old = source
    else:
        old = _rename_twice(source, destination)
    fsync_folder(os.path.dirname(destination))
    if old is not None:
        shutil.rmtree(old)


def _exchange(source: str, destination: str) -> bool:
    """Exchanges two folders in one step; says whether it could."""
    import ctypes  # Here, because it is the only use, and importing it takes milliseconds.

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:  # Not Linux, or a C library older than glibc 2.28.
        return False
    first, second = os.fsencode(source), os.fsencode(destination)
    if renameat2(_AT_FDCWD, first, _AT_FDCWD, second, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), source, None, destination)


def _rename_twice(source: str, destination: str) -> str:
    """Replaces a folder by two renames; returns the folder that holds the old one."""
    parent, name = os.path.split(destination)
    # A fresh folder, so that nothing of that name can have been there before.
    aside = tempfile.mkdtemp(prefix=f".{name}.", suffix=".old", dir=parent)
    kept = os.path.join(aside, name)
    try:
        os.rename(destination, kept)
        try:
            os.rename(source, destination)
        except OSError:
            os.rename(kept, destination)
            raise
    except OSError:
        os.rmdir(aside)
        raise
    return aside
