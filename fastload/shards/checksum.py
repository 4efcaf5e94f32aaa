"""CRC-32C checksums of records and shards, bound to the dataset, shard and row to which the bytes belong.

Processors compute CRC-32C at memory speed (google-crc32c: 23 GB/s measured; SHA-256 with its own
instructions: 2 GB/s), so records are verified by default. It finds every flipped bit and every damaged
run of up to 32 bits, and misses one in 4 billion of all larger errors. It protects against bit rot and
accidents, not against forgery.

A plain checksum would not notice two swapped shards. So every shard has an identity, a digest of its dataset
and of its own content, and the stored checksum of a record is combined (XOR) with a mask computed from that
identity and the record's row.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from google_crc32c import Checksum, extend
from numpy.typing import NDArray

StoredRow = bytes | memoryview | NDArray[np.uint8]
"""The bytes of a record in a column, one-dimensional and read-only."""

# Half of a core's cache: 15 GB/s, as fast as from a mapping; blocks of 64 KB or 1 MB are slower.
_BLOCK_BYTES = 256 << 10

IDENTITY_BYTES = 16
_pack_uint64 = struct.Struct("<Q").pack


def record_crc32c(rows: Iterable[StoredRow]) -> int:
    """Return the checksum of one record's columns, given as bytes or read-only uint8 arrays."""
    crc = 0
    for row in rows:
        crc = extend(crc, row)
    return crc


def shard_identity(parts: Sequence[bytes]) -> bytes:
    """Return the identity of a shard: a digest of the parts that describe its dataset and its content."""
    digest = hashlib.blake2b(digest_size=IDENTITY_BYTES)
    for part in parts:
        digest.update(_pack_uint64(len(part)))
        digest.update(part)
    return digest.digest()


def identity_crc(identity: bytes) -> int:
    """Return the checksum of a shard's identity, with which all checksums bound to the shard start."""
    return int(extend(0, identity))


def row_mask(shard_crc: int, row: int) -> int:
    """Return the mask of a record's checksum, given its shard's `identity_crc` and its row in the shard."""
    crc: int = extend(shard_crc, _pack_uint64(row))
    return crc


def apply_masks(identity: bytes, crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply the masks to the checksums of all records of a shard; applied twice, they cancel out."""
    shard_crc = identity_crc(identity)
    masks = np.fromiter((row_mask(shard_crc, row) for row in range(len(crcs))), "<u4", len(crcs))
    stored: NDArray[np.uint32] = crcs ^ masks
    return stored


def array_crc32c(array: NDArray[np.generic], shard_crc: int) -> str:
    """Return the checksum of an array's bytes, in hexadecimal, started from a shard's `identity_crc`."""
    return format(extend(shard_crc, np.ascontiguousarray(array).reshape(-1).view(np.uint8)), "08x")


def file_crc32c(path: Path) -> str:
    """Return the checksum of a file as eight hexadecimal digits.

    The file is read, not mapped: that is as fast, and if a disk fails, reading a mapping kills the process.
    """
    checksum = Checksum()
    with path.open("rb", buffering=0) as file:
        for _ in checksum.consume(file, _BLOCK_BYTES):
            pass
    return str(checksum.hexdigest().decode())
