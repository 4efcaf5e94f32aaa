"""Protocols of the writers and readers of shards, implemented in hdf5.py and lmdb.py.

A shard is written in one step from a `ShardContent`: small columns in memory, and the payload (the stored
images, nearly all of the bytes) in a file that the packing processes have already written. Records without an
image have small columns only. A shard is read
by column and row, with no more copies than the container needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastload.shards.files import Stamp
from fastload.shards.schema import Column

ByteArray = NDArray[np.uint8]

# The name under which a shard stores its identity; no field can have it.
IDENTITY_NAME = "shard-identity"


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
    row_shape: tuple[int, ...] | None = None  # (height, width, channels) if every record holds such pixels

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
