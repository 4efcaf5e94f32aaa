"""Shards as files: their entries in the manifest, their content, and the protocols of writers and readers.

A shard is written in one step from a `ShardContent`: small columns in memory, and the payload (the stored
images, nearly all of the bytes) in a file that the packing processes have already written. Records without an
image have small columns only. A shard is read by column and row, with no more copies than the container
needs. The containers are hdf5.py and lmdb.py; both open a shard within `opening`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastload.errors import AccessError, DamageError
from fastload.shards.json_values import JsonValue
from fastload.shards.schema import Column, Field, image_of

ByteArray = NDArray[np.uint8]

# The name under which a shard stores its identity; no field can have it.
IDENTITY_NAME = "shard-identity"

# Each process allocates one byte per record.
MOST_RECORDS = 1 << 48
# A record's checksum; and the shape and grid of its image.
_LEAST_RECORD_BYTES, _LEAST_IMAGE_BYTES = 4, 28
_SHARD_NAMES = {"hdf5": re.compile(r"shard-[0-9]{5,}\.h5"), "lmdb": re.compile(r"shard-[0-9]{5,}\.lmdb")}
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
            file=entry["file"].text(_SHARD_NAMES[container]),
            records=entry["records"].count(1, MOST_RECORDS),
            size_bytes=entry["size_bytes"].count(),
            crc32c=entry["crc32c"].text(_CRC),
            columns={name: columns[name].text(_CRC) for name in columns.mapping()},
            identity=entry["identity"].text(_IDENTITY),
        )
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


class Stamp(NamedTuple):
    """Identity, size and modification time of a file."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Ragged:
    """A ragged column: record i has the rows `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.generic]
    offsets: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Payload:
    """The ragged byte column that is in a separate file until the shard is written; none without images."""

    column: str | None
    path: Path  # the bytes start at the writer's `payload_offset`
    offsets: NDArray[np.uint64]  # of records, n + 1 values, relative to the first byte of the payload
    row_shape: tuple[int, ...] | None = None  # (height, width, bytes of a pixel), if all have such pixels

    @property
    def size_bytes(self) -> int:
        """The size of all records together."""
        return int(self.offsets[-1])


@dataclass(frozen=True, slots=True)
class ShardContent:
    """All columns of one shard, by name."""

    count: int  # of records
    identity: bytes  # see `fastload.shards.checksum`
    fixed: dict[str, NDArray[np.generic]]  # (count, *row shape)
    ragged: dict[str, Ragged]  # without the payload
    payload: Payload


class ShardWriter(NamedTuple):
    """Writer of one container's shards.

    The bytes of a shard depend only on its content. The payload's file may become the shard.
    """

    suffix: str
    payload_offset: int
    write: Callable[[Path, Sequence[Column], ShardContent], None]


class ShardReader(Protocol):
    """Reader of one shard; the file stays open as long as the reader or an array that it returned."""

    is_ranged: ClassVar[bool]  # True if it fetches images of a remote file by range requests
    count: int  # of records
    stamp: Stamp  # of the file that was opened

    def identity(self) -> bytes:
        """Return the identity that the file holds now, which changes if the open file is overwritten."""

    def row(self, column: str, index: int) -> bytes | ByteArray:
        """Return the stored bytes of one record in one column, read-only."""

    def rows(self, index: int) -> Sequence[bytes | ByteArray]:
        """Return the stored bytes of one record in all columns that its checksum covers, in their order."""

    def location(self, column: str, index: int) -> ByteArray:
        """Return a short-lived view of one record's bytes of a ragged column in the mapped file."""

    def fixed(self, column: str, rows: NDArray[np.int64] | None = None) -> NDArray[np.generic]:
        """Return rows of a fixed column, (count, *row shape); None: all of them, mapped if possible."""

    def stack(self, column: str, indices: NDArray[np.int64]) -> tuple[ByteArray, NDArray[np.int64]] | None:
        """Return some records' bytes of a ragged column as one array, or None if sizes differ.

        Returns:
            An array of bytes, (any number, size), possibly mapped, and the row of each index in it.
        """


def is_shard_name(name: str) -> bool:
    """Return True if a file of this name is a shard."""
    return any(pattern.fullmatch(name) for pattern in _SHARD_NAMES.values())


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
        os.close(os.open(path, os.O_RDONLY))
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
