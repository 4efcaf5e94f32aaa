"""Changes to folders that survive a crash."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile

from fastload.errors import DestinationError

# linux/fcntl.h and linux/fs.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Write a folder's entries to the disk, so that files made or renamed in it survive a crash.

    Does nothing where the system cannot (Windows, some network filesystems).
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
    """Replace the folder `target` by the folder `new`, and remove the old one.

    On Linux the two are exchanged in one step (`renameat2`): at every moment, also after a crash, `target` is
    the complete old or new folder. Elsewhere two renames are needed: a crash between them leaves the old
    folder in `.<name>.<random>.old` beside `target`, and `new` as it was. A missing `target` is created; a
    link to a folder stays a link. Both must be on one filesystem.

    Raises:
        DestinationError: `target` is not a folder, or is `new` itself.
        OSError: A rename failed, and `target` is unchanged; or the old folder could not be removed
            completely, and `target` is the new one.
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
    """Exchange two folders in one step; return False if the kernel, the filesystem or a sandbox does not."""
    if sys.platform != "linux":
        return False
    import ctypes  # importing it takes milliseconds

    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:  # a C library older than glibc 2.28
        return False
    first, second = os.fsencode(source), os.fsencode(destination)
    return not renameat2(_AT_FDCWD, first, _AT_FDCWD, second, ctypes.c_uint(_RENAME_EXCHANGE))


def _rename_twice(source: str, destination: str) -> str:
    """Replace a folder by two renames; return the folder that holds the old one."""
    parent, name = os.path.split(destination)
    aside = tempfile.mkdtemp(prefix=f".{name}.", suffix=".old", dir=parent)
    old = os.path.join(aside, name)
    try:
        os.rename(destination, old)
        try:
            os.rename(source, destination)
        except OSError:
            os.rename(old, destination)
            raise
    except OSError:
        os.rmdir(aside)
        raise
    return aside
