"""Conversion of source records to stored rows, in a packing process.

A *chunk* is the result for a few neighbouring records. Its small columns travel to the main process; its
payload, the stored images, stays with the worker until the main process has assigned its place in a shard,
so that no image crosses from process to process.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import AccessError, DecodeError, FastloadError, SourceError
from fastload.images.encodings import Encoding, StoredImage, encoding_named
from fastload.images.resize import SizeLimit
from fastload.packing._options import OnError
from fastload.shards.checksum import record_crc32c
from fastload.shards.schema import Column, Field, record_columns
from fastload.sources.protocol import Source, SourceRecord

# A chunk ends early beyond this, so that a worker's memory stays bounded.
CHUNK_LIMIT_BYTES = 16 << 20

_SHAPE = struct.Struct("<3I")
_GRID = struct.Struct("<4I")
_CRC = struct.Struct("<I")

# Shape, grid and tiles of bytes that are kept although they are not a readable image.
_UNREADABLE = ((0, 0, 0), (0, 0, 0, 0), np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Failure:
    """A source record that could not be packed as an image; `is_kept` if its bytes were stored anyway."""

    index: int
    key: str
    reason: str
    is_kept: bool


@dataclass(slots=True)
class Chunk:
    """The result for the source's records `start` … `stop - 1`, without the payload.

    Attributes:
        indices: The source index of each stored record, ascending.
        sizes: The payload of each record in bytes.
        rows: For every other column, the joined bytes of all records.
        lengths: For every other ragged column, the bytes of each record.
        crcs: The joined checksums of all records.
        failures: The records that were left out, or stored although they are not readable images.
    """

    start: int
    stop: int
    indices: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: dict[str, bytes]
    lengths: dict[str, NDArray[np.int64]]
    crcs: bytes
    failures: list[Failure] = field(default_factory=list)
    read_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parameters of one source's packing, pickled to every worker; the first field is the image."""

    source: Source
    fields: tuple[Field, ...]
    encoding: Encoding
    limit: SizeLimit | None
    on_error: OnError


class ChunkEncoder:
    """Encoder of one source's records in one process, with a folder for temporary files."""

    def __init__(self, recipe: Recipe, temporary: Path) -> None:
        self._recipe = recipe
        self._temporary = temporary
        self._columns = record_columns(recipe.fields)

    def encode(self, start: int, stop: int) -> tuple[Chunk, list[Any]]:
        """Encode the records from `start` to at most `stop - 1`; return the chunk and its stored images."""
        began = time.perf_counter()
        draft = _Draft(self._columns, self._recipe.fields[0].name)
        index = start
        while index < stop and draft.size_bytes < CHUNK_LIMIT_BYTES:
            self._add(draft, index)
            index += 1
        return draft.finish(start, index, time.perf_counter() - began), draft.payload

    def _add(self, draft: _Draft, index: int) -> None:
        # Only fastload's own errors are about the record, except that this process may not open files. A
        # plain OSError, such as a full disk while a temporary file is written, ends the packing with any
        # `on_error`.
        try:
            record = self._recipe.source.read(index)
            stored, failures = self._encode_image(draft, record, index)
            rows = self._rows(record, stored)
        except AccessError:
            raise
        except FastloadError as error:
            self._skip(draft, index, error)
        else:
            draft.add(index, rows)
            draft.failures += failures

    def _encode_image(
        self, draft: _Draft, record: SourceRecord, index: int
    ) -> tuple[StoredImage, list[Failure]]:
        """Return the stored image, and the failure if it is kept although it is unreadable."""
        recipe, image = self._recipe, record.image
        draft.read_bytes += image.nbytes if isinstance(image, np.ndarray) else len(image)
        try:
            return recipe.encoding.encode(image, recipe.limit, self._temporary), []
        except DecodeError as error:
            if recipe.on_error != "keep" or isinstance(image, np.ndarray):
                raise
            return StoredImage(image, *_UNREADABLE), [Failure(index, record.key, str(error), is_kept=True)]

    def _skip(self, draft: _Draft, index: int, error: Exception) -> None:
        key = self._recipe.source.key(index)
        if self._recipe.on_error == "fail":
            raise SourceError(
                f"record {index} ({key!r}) cannot be packed: {error}; repair or remove it, or pack with "
                "--on-error skip (leave such files out) or keep (store their bytes as they are)"
            ) from error
        draft.failures.append(Failure(index, key, str(error), is_kept=False))

    def _rows(self, record: SourceRecord, stored: StoredImage) -> list[Any]:
        """Return the stored bytes of every column of one record, in the columns' order."""
        rows: list[Any] = [os.fsencode(record.key), *_image_rows(stored)]
        for each in self._recipe.fields[1:]:
            value: Any = record.values[each.name]
            if each.kind == "image":
                encoding = encoding_named(each.encoding or "keep")
                rows.extend(_image_rows(encoding.encode(value, None, self._temporary)))
            elif each.kind == "text":
                rows.append(value.encode("utf-8", "surrogateescape"))
            elif each.kind == "bytes":
                rows.append(value)
            else:
                rows.append(np.asarray(value, each.columns()[0].numpy_dtype).tobytes())
        return rows


def _image_rows(stored: StoredImage) -> tuple[Any, bytes, bytes, bytes]:
    """Return the rows of an image field's columns: data, shape, grid, tiles."""
    return stored.data, _SHAPE.pack(*stored.shape), _GRID.pack(*stored.grid), stored.tiles.tobytes()


class _Draft:
    """A chunk under construction."""

    def __init__(self, columns: Sequence[Column], payload_column: str) -> None:
        self._columns = columns
        self._payload_at = next(i for i, c in enumerate(columns) if c.name == payload_column)
        self._rows: list[list[Any]] = []
        self._indices: list[int] = []
        self._crcs: list[bytes] = []
        self.payload: list[Any] = []
        self.size_bytes = 0
        self.read_bytes = 0
        self.failures: list[Failure] = []

    def add(self, index: int, rows: list[Any]) -> None:
        self._crcs.append(_CRC.pack(record_crc32c(rows)))
        self._indices.append(index)
        payload = rows[self._payload_at]
        self.payload.append(payload)
        rows[self._payload_at] = b""
        self._rows.append(rows)
        self.size_bytes += len(payload) + sum(map(len, rows))

    def finish(self, start: int, stop: int, seconds: float) -> Chunk:
        rows, lengths = {}, {}
        for at, column in enumerate(self._columns):
            if at == self._payload_at:
                continue
            parts = [row[at] for row in self._rows]
            rows[column.name] = b"".join(parts)
            if column.ragged:
                lengths[column.name] = np.fromiter(map(len, parts), np.int64, len(parts))
        return Chunk(
            start,
            stop,
            np.array(self._indices, np.int64),
            np.fromiter(map(len, self.payload), np.int64, len(self.payload)),
            rows,
            lengths,
            b"".join(self._crcs),
            self.failures,
            self.read_bytes,
            seconds,
        )
