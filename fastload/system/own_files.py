"""Folders and files that nobody but this user can have written: owner, mode and kind, no links.

In a folder such as /tmp, anybody may make a folder of a name that a program will look for. There, its sticky
bit keeps others from replacing a folder of ours; within ours, its mode does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def require_own(path: str | os.PathLike[str], *, is_folder: bool = False) -> None:
    """Raise PermissionError unless a path is a file, or a folder, that only this user may write to.

    A link is neither. Raises FileNotFoundError if there is nothing.
    """
    _require_own(os.lstat(path), path, is_folder)


def require_own_tree(root: Path) -> None:
    """Raise PermissionError unless a folder, and all folders and files in it, are this user's alone."""
    require_own(root, is_folder=True)
    for place, folders, files in os.walk(root, onerror=_raise):
        for name in folders:
            require_own(os.path.join(place, name), is_folder=True)
        for name in files:
            require_own(os.path.join(place, name))


def read_own(path: Path) -> bytes:
    """Return the content of a file that only this user may write to; raise PermissionError for another."""
    with open(open_own(path, os.O_RDONLY), "rb") as file:
        return file.read()


def make_own(path: Path) -> int:
    """Return a descriptor of a new file that only this user may write to, whatever the umask."""
    path.unlink(missing_ok=True)
    return open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Return a descriptor of a file that only this user may write to; raise PermissionError for another.

    A new file has the mode 600. Never waits: opening a pipe would wait for a program at its other end.
    """
    with contextlib.suppress(FileNotFoundError):
        require_own(path)
    further = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags | further, 0o600)
    try:
        _require_own(os.fstat(descriptor), path, is_folder=False)
    except PermissionError:
        os.close(descriptor)
        raise
    return descriptor


def _require_own(status: os.stat_result, path: str | os.PathLike[str], is_folder: bool) -> None:
    is_kind = stat.S_ISDIR if is_folder else stat.S_ISREG
    if not is_kind(status.st_mode):
        reason = "it is a link" if stat.S_ISLNK(status.st_mode) else "it is of another kind"
    elif status.st_uid != os.geteuid():
        reason = f"it belongs to another user, {status.st_uid}"
    elif status.st_mode & _WRITABLE_BY_OTHERS:
        reason = f"others may write to it, its mode is {stat.S_IMODE(status.st_mode):o}"
    else:
        return
    raise PermissionError(errno.EACCES, reason, os.fspath(path))


def _raise(error: OSError) -> None:
    raise error
