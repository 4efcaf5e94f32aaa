"""Entries of a manifest (shards, and files skipped, kept or left out), and checks of shards on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fastload.errors import AccessError, DamageError
from fastload.shards.json_values import JsonValue
from fastload.shards.schema import Field, image_of

# Each process allocates one byte per record.
MOST_RECORDS = 1 << 48
# A record's checksum; and the shape and grid of its image.
_LEAST_RECORD_BYTES, _LEAST_IMAGE_BYTES = 4, 28
_SHARD_NAME = re.compile(r"shard-[0-9]{5,}\.(h5|lmdb)")
_SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb"}
_CRC = re.compile("[0-9a-f]{8}")
_IDENTITY = re.compile("[0-9a-f]{32}")

TOO_MANY_OPEN = frozenset({errno.EMFILE, errno.ENFILE})

# Errors of this process, not of the file: other permissions, a higher limit or more memory would help.
_PROCESS_ERRORS = TOO_MANY_OPEN | {errno.EACCES, errno.EPERM, errno.ENOMEM}


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard as the manifest lists it; checksums and identity in hexadecimal digits.

    `columns` holds the CRC-32C of the column of each scalar and vector field, starting with the shard's
    identity, so that all labels can be read and verified without the images.
    """

    file: str
    records: int
    size_bytes: int
    crc32c: str  # of the file
    columns: Mapping[str, str]
    identity: str  # see `fastload.shards.checksum`

    @classmethod
    def from_json(cls, entry: JsonValue, container: str, fields: Sequence[Field]) -> ShardEntry:
        """Read an entry; raise ValueError, which names the value, if one is impossible."""
        columns = entry["columns"]
        shard = cls(
            file=entry["file"].text(_SHARD_NAME),
            records=entry["records"].count(1, MOST_RECORDS),
            size_bytes=entry["size_bytes"].count(),
            crc32c=entry["crc32c"].text(_CRC),
            columns={name: columns[name].text(_CRC) for name in columns.mapping()},
            identity=entry["identity"].text(_IDENTITY),
        )
        if not shard.file.endswith(_SUFFIXES[container]):
            raise ValueError(f"{entry.name}.file must end in {_SUFFIXES[container]}, got {shard.file!r}")
        least_bytes = _LEAST_RECORD_BYTES + (_LEAST_IMAGE_BYTES if image_of(fields) is not None else 0)
        if shard.records * least_bytes > shard.size_bytes:
            raise ValueError(
                f"{entry.name} must be large enough for its {shard.records} records, "
                f"got {shard.size_bytes} bytes"
            )
        expected = sorted(field.name for field in fields if field.kind in ("scalar", "vector"))
        if sorted(shard.columns) != expected:
            raise ValueError(f"{columns.name} must list {expected}, got {sorted(shard.columns)}")
        return shard


@dataclass(frozen=True, slots=True)
class Skipped:
    """A source file that could not be packed as an image, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A source file that is not a record, or all such files of a kind."""

    key: str  # its path relative to the source; for a kind, a pattern such as `**/*.txt`
    reason: str
    files: int = 1  # the number of files that the entry stands for
    is_clutter: bool = False  # needs no attention: a hidden file, a system file, a README


def is_shard_name(name: str) -> bool:
    """Return True if a file of this name is a shard."""
    return _SHARD_NAME.fullmatch(name) is not None


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
