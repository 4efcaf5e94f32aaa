"""CRC-32C, the checksum of records and of whole shards.

Chosen for being checked by the processor at memory speed (google-crc32c: 23 GB/s measured, SHA-256
with its own instructions: 2 GB/s): a checksum that costs nothing is one that nobody switches off. It
finds every flipped bit and every damaged stretch of up to 32 bits, and misses one in 4 billion of
larger damages. It guards against decay and accident, not against forgery.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from google_crc32c import extend, value

_BLOCK_BYTES = 8 << 20


def record_crc32c(rows: Iterable[Any]) -> int:
    """The checksum of one record: of the stored bytes of its columns, one behind the other.

    Args:
        rows: bytes, or contiguous read-only uint8 arrays.
    """
    crc = 0
    for row in rows:
        crc = extend(crc, row)
    return crc


def file_crc32c(path: Path) -> str:
    """The checksum of a whole file, eight hexadecimal digits."""
    if path.stat().st_size == 0:
        return format(value(b""), "08x")
    crc = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        view = np.frombuffer(mapping, np.uint8)
        for begin in range(0, len(view), _BLOCK_BYTES):
            crc = extend(crc, view[begin : begin + _BLOCK_BYTES])
        del view
    return format(crc, "08x")
