"""The files of a packed dataset, opened only where they are what the manifest lists."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from fastload.errors import AccessError, DamageError

# What says nothing of the bytes: another user, other permissions or a higher limit would read them.
_OF_THIS_PROCESS = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
TOO_MANY_OPEN = frozenset({errno.EMFILE, errno.ENFILE})
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})


class Stamp(NamedTuple):
    """Which file lay at a path, and when it was last written."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def stamp_of(path: Path) -> Stamp:
    """Looks at a file without opening it.

    Raises:
        OSError: There is none, or it is no regular file: opening a pipe would wait for ever.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def require_shard(path: Path, size_bytes: int) -> Stamp:
    """Looks whether a shard can be opened and has its size: mapped, one cut short ends the process.

    Args:
        path: The shard.
        size_bytes: As the manifest says.

    Raises:
        AccessError: This process may not read it, or has too many files open.
        DamageError: It is missing, no regular file, or of another size.
    """
    try:
        stamp = stamp_of(path)
        # Opened here because h5py and lmdb do not say clearly why they cannot.
        os.close(os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
    except OSError as error:
        raise unreadable(path, error) from error
    if stamp.size_bytes != size_bytes:
        raise DamageError(
            f"{path}: its size must be {size_bytes:,} bytes, it is {stamp.size_bytes:,}: "
            "the file was cut or replaced after packing: restore it from a copy, or pack again"
        )
    return stamp


def unreadable(path: Path, error: OSError) -> AccessError | DamageError:
    """The error that says why a file of a packed dataset cannot be read."""
    reason = error.strerror or str(error)
    if error.errno in TOO_MANY_OPEN:
        return AccessError(
            f"{path}: cannot be opened ({reason}): raise the limit ('ulimit -n 4096'), or close files"
        )
    if error.errno in _OF_THIS_PROCESS:
        return AccessError(
            f"{path}: cannot be read ({reason}): it may be whole; 'ls -ld' shows who may read it"
        )
    if error.errno in _ABSENT and not os.path.exists(path.parent):
        return DamageError(
            f"{path}: cannot be read ({reason}): the dataset was removed or moved since it was opened: "
            "open it where it is now"
        )
    return DamageError(
        f"{path}: cannot be read ({reason}): the manifest lists it, restore it from a copy, or pack again"
    )
