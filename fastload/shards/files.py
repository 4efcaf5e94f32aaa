"""Shard files on disk: identity, size and readability, checked against the manifest."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastload.errors import AccessError, DamageError
from fastload.shards._entries import ShardEntry

TOO_MANY_OPEN = frozenset({errno.EMFILE, errno.ENFILE})
# Errors of this process, not of the file: other permissions, a higher limit or more memory would help.
_PROCESS_ERRORS = TOO_MANY_OPEN | {errno.EACCES, errno.EPERM, errno.ENOMEM}


class Stamp(NamedTuple):
    """Identity, size and modification time of a file."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file; raise OSError unless it is a regular file: opening a pipe would block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@contextlib.contextmanager
def opening(path: Path, entry: ShardEntry) -> Iterator[Stamp]:
    """Check a shard's size and yield its stamp to a block that opens it; convert the block's errors.

    Raises:
        AccessError: This process cannot open the file.
        DamageError: The file is missing or of another size, or the block raised an error.
    """
    try:
        stamp = stamp_of(path)
        # Opened here because the errors of h5py and lmdb do not say clearly why a file cannot be opened.
        os.close(os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
        # Reading a mapping of a truncated file would kill the process.
        if stamp.size_bytes != entry.size_bytes:
            raise DamageError(
                f"{path}: its size must be {entry.size_bytes:,} bytes, it is {stamp.size_bytes:,}: "
                "the file was truncated or replaced after packing: restore it from a copy, or pack again"
            )
        yield stamp
    except (AccessError, DamageError):
        raise
    except Exception as error:  # the libraries raise anything on a malformed file
        if isinstance(error, OSError) and error.errno:
            raise unreadable(path, error) from error
        raise DamageError(
            f"{path}: cannot be opened as a shard ({error}): restore the file from a copy, or pack again"
        ) from error


def require_identity(path: Path | str, found: bytes, entry: ShardEntry) -> None:
    """Raise DamageError unless a shard has the identity that the manifest lists."""
    if found.hex() != entry.identity:
        raise DamageError(
            f"{path}: its identity must be {entry.identity}, it is {found.hex() or 'none'}: the dataset was "
            "replaced since it was opened, or files of several were mixed: open it again, or restore the file"
        )


def unreadable(path: Path, error: OSError) -> AccessError | DamageError:
    """Return the error to raise for a file of a packed dataset that cannot be read, with the reason."""
    reason = error.strerror or str(error)
    if error.errno in TOO_MANY_OPEN:
        return AccessError(
            f"{path}: cannot be opened ({reason}): raise the limit ('ulimit -n 4096'), or close files"
        )
    if error.errno in _PROCESS_ERRORS:
        return AccessError(
            f"{path}: cannot be read ({reason}): it may be intact; 'ls -ld' shows who may read it"
        )
    return DamageError(
        f"{path}: cannot be read ({reason}): the manifest lists it, restore it from a copy, or pack again"
    )
