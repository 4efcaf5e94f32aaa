"""What a container of records must be able to do: the protocol that hdf5.py and lmdb.py fulfil.

A shard is written in one go from a `ShardContent`: its small columns in memory, its payload (the
stored images, which is nearly all of it) already lying in a file, put there by the packing processes.
A shard is read by column and row; the bytes handed out are never copied more than the container needs.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fastload.errors import AccessError, DamageError, OptionError
from fastload.shards.entries import ShardEntry
from fastload.shards.files import Stamp, require_shard, unreadable
from fastload.shards.schema import Column
from fastload.system.folders import free_bytes

Bytes = NDArray[np.uint8]

# Where a shard says its identity: a name that no field can have.
IDENTITY_NAME = "shard-identity"

# A disk on which a write has just failed is taken to be full with less than this left.
_FULL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ragged:
    """A ragged column: record i has the rows `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[Any]
    offsets: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Payload:
    """The ragged column of bytes that lies in a file of its own until the shard is finished.

    Attributes:
        column: The column's name.
        path: The file; its bytes start at the writer's `payload_offset`.
        offsets: Where each record begins, n + 1 values, counted from the first byte of the payload.
        row_shape: (height, width, channels) where every record holds exactly such an array of
            pixels, otherwise None.
    """

    column: str
    path: Path
    offsets: NDArray[np.uint64]
    row_shape: tuple[int, ...] | None = None

    @property
    def size_bytes(self) -> int:
        """The size of all records together."""
        return int(self.offsets[-1])


@dataclass(frozen=True, slots=True)
class ShardContent:
    """All columns of one shard.

    Attributes:
        count: The number of records.
        identity: What tells the shard from every other.
        fixed: Arrays of shape (count, *row shape), by column name.
        ragged: Ragged columns by name, the payload's left out.
        payload: The column that lies in a file already.
    """

    count: int
    identity: bytes
    fixed: dict[str, NDArray[Any]]
    ragged: dict[str, Ragged]
    payload: Payload


class ShardWriter(Protocol):
    """Writes shards of one container."""

    suffix: ClassVar[str]
    payload_offset: ClassVar[int]

    @staticmethod
    def write(path: Path, columns: Sequence[Column], content: ShardContent) -> None:
        """Writes one shard to `path`; the payload's file may become it.

        The bytes written depend on the content alone.
        """


class ShardReader(Protocol):
    """Reads one shard; the file is closed with the reader and the last array that it handed out.

    Attributes:
        count: The number of its records.
        stamp: Which file was opened.
    """

    count: int
    stamp: Stamp

    def identity(self) -> bytes:
        """The identity that the file holds now: another one where it was written over while it is open."""

    def row(self, column: str, index: int) -> bytes | Bytes:
        """The stored bytes of one record in one column, read-only."""

    def rows(self, index: int) -> Sequence[bytes | Bytes]:
        """The stored bytes of one record in all columns that its checksum reads, in their order."""

    def fixed(self, column: str) -> NDArray[Any]:
        """A whole fixed column, (count, *row shape), read-only, mapped where the container can."""

    def taken(self, column: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Some records' rows of a fixed column, (indices, *row shape), a copy."""

    def stacked(self, column: str, indices: NDArray[np.int64]) -> tuple[Bytes, NDArray[np.int64]] | None:
        """Some records' stored bytes in a ragged column, where they have one size; None where sizes differ.

        Returns:
            Bytes of records, (any number, size), possibly mapped, and for each index which row is its own.
        """

    def is_resident(self, column: str, index: int) -> bool:
        """Whether one record's bytes of a ragged column can be read without waiting for the disk."""

    def prefetch(self, column: str, indices: NDArray[np.int64]) -> None:
        """Has the system fetch some records' bytes of a ragged column from the disk, and does not wait."""


@contextlib.contextmanager
def opening(path: Path, entry: ShardEntry, kind: str) -> Iterator[Stamp]:
    """Has whatever goes wrong in the block, which opens a shard, be an error that says what and where.

    Args:
        path: The shard.
        entry: What the manifest says of it.
        kind: Of the container, for messages.

    Raises:
        AccessError: This process may not read the file, or has too many files open.
        DamageError: It is not what the manifest lists.
    """
    stamp = require_shard(path, entry.size_bytes)
    try:
        yield stamp
    except (AccessError, DamageError):
        raise
    except Exception as error:  # of a made-up file, libraries raise anything
        if isinstance(error, OSError) and error.errno:
            refusal = unreadable(path, error)
            if isinstance(refusal, AccessError):
                raise refusal from error
        raise DamageError(
            f"{path}: cannot be opened as {kind} shard ({error}): restore the file from a copy, or pack again"
        ) from error


def require_identity(path: Path, found: bytes, entry: ShardEntry) -> None:
    """Refuses a shard that is not the one listed.

    Raises:
        DamageError: It is another one.
    """
    if found.hex() != entry.identity:
        raise DamageError(
            f"{path}: its identity must be {entry.identity}, it is {found.hex() or 'none'}: the dataset was "
            "replaced since it was opened, or files of several were mixed: open it anew, or restore the file"
        )


def write_error(path: Path, error: Exception) -> OSError:
    """What a library's error in writing means: not always do HDF5 and LMDB say that the disk is full."""
    number = errno.ENOSPC if free_bytes(path.parent) < _FULL_BYTES else errno.EIO
    return OSError(number, f"{os.strerror(number)}: {error}", str(path))


def writer_for(container: str) -> type[ShardWriter]:
    """The writer of a container named `hdf5` or `lmdb`.

    Raises:
        OptionError: There is no such container.
    """
    if container == "hdf5":
        from fastload.shards.hdf5 import Hdf5Writer

        return Hdf5Writer
    if container == "lmdb":
        from fastload.shards.lmdb import LmdbWriter

        return LmdbWriter
    raise OptionError(f"format must be hdf5 or lmdb, got {container!r}")


def open_shard(container: str, path: Path, columns: Sequence[Column], entry: ShardEntry) -> ShardReader:
    """Opens one shard of a container named `hdf5` or `lmdb`.

    Args:
        container: Its name.
        path: The shard.
        columns: The columns that it must hold.
        entry: What the manifest says of it.

    Raises:
        AccessError: This process may not read the file, or has too many files open.
        DamageError: The file is missing, is no such container, lacks a column or is another shard.
    """
    if container == "hdf5":
        from fastload.shards.hdf5 import Hdf5Reader

        return Hdf5Reader(path, columns, entry)
    from fastload.shards.lmdb import LmdbReader

    return LmdbReader(path, columns, entry)
