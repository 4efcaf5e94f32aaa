"""Turning a run of source records into stored rows: what a packing process does.

A *piece* is the outcome for a few neighbouring records. Its small columns travel to the packing's
main process; its payload, the stored images, stays with the worker until it is told where in a shard
to write it, so that no image ever crosses from process to process.
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
from fastload.packing.options import OnError
from fastload.shards.checksum import record_crc32c
from fastload.shards.schema import Column, Field, record_columns
from fastload.sources.protocol import Source, SourceRecord

# A piece ends early beyond this, so that a worker's memory stays bounded whatever its records hold.
PIECE_LIMIT_BYTES = 16 << 20

_SHAPE = struct.Struct("<3I")
_GRID = struct.Struct("<4I")
_CRC = struct.Struct("<I")

# Shape, grid and tiles of bytes that are kept although they are no readable image.
_UNREADABLE = ((0, 0, 0), (0, 0, 0, 0), np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that could not be packed as an image.

    Attributes:
        index: Its number in the source.
        key: Its key.
        reason: Why, in one sentence.
        is_kept: Whether its bytes were stored all the same, or it was left out.
    """

    index: int
    key: str
    reason: str
    is_kept: bool


@dataclass(slots=True)
class Piece:
    """The outcome of the source's records `start` … `stop - 1`, payload left out.

    Attributes:
        start: The first source record.
        stop: One past the last source record that was looked at.
        indices: The source's number of each record that is stored, ascending.
        sizes: The payload of each, in bytes.
        rows: For every other column, its stored bytes joined.
        lengths: For every other ragged column, the bytes of each record.
        crcs: The checksum of each record, stored bytes joined.
        failures: The records that were left out, or stored although they are no readable image.
        read_bytes: How much was read from the source.
        seconds: How long it took.
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
    """How records of one source become stored rows. Pickled to every worker.

    Attributes:
        source: Where the records come from.
        fields: The fields of every record; the first is the image.
        encoding: How the image is stored.
        limit: The size that images are limited to.
        on_error: What becomes of a file that is no readable image.
    """

    source: Source
    fields: tuple[Field, ...]
    encoding: Encoding
    limit: SizeLimit | None
    on_error: OnError


class PieceEncoder:
    """Encodes pieces of one source, in one process.

    Args:
        recipe: What to do.
        workdir: A folder of its own for temporary files.
    """

    def __init__(self, recipe: Recipe, workdir: Path) -> None:
        self._recipe = recipe
        self._workdir = workdir
        self._columns = record_columns(recipe.fields)
        self._payload_column = recipe.fields[0].name

    def encode(self, start: int, stop: int) -> tuple[Piece, list[Any]]:
        """Encodes the source's records from `start` to at most `stop - 1`.

        Returns:
            The piece, and the stored image of each of its records.

        Raises:
            SourceError: With `on_error="fail"`, a record cannot be read; the message names it.
        """
        began = time.perf_counter()
        draft = _Draft(self._columns, self._payload_column)
        index = start
        while index < stop and draft.size_bytes < PIECE_LIMIT_BYTES:
            self._add(draft, index)
            index += 1
        piece = draft.finish(start, index)
        piece.seconds = time.perf_counter() - began
        return piece, draft.payload

    def _add(self, draft: _Draft, index: int) -> None:
        # Only our own errors concern the record, unless this process may not open files. A bare OSError, such
        # as a full disk while a temporary file is written, ends the packing whatever `on_error` says.
        try:
            record = self._recipe.source.read(index)
            stored, failures = self._stored(draft, record, index)
            rows = self._rows(record, stored, index)
        except AccessError:
            raise
        except FastloadError as error:
            self._skip(draft, index, error)
        else:
            draft.add(index, rows)
            draft.failures += failures

    def _stored(self, draft: _Draft, record: SourceRecord, index: int) -> tuple[StoredImage, list[Failure]]:
        """The image as it is stored; and, where that is unreadable but to be kept, the reason."""
        recipe, image = self._recipe, record.image
        draft.read_bytes += image.nbytes if isinstance(image, np.ndarray) else len(image)
        try:
            return recipe.encoding.encode(image, recipe.limit, self._workdir), []
        except DecodeError as error:
            if recipe.on_error != "keep" or isinstance(image, np.ndarray):
                raise
            return StoredImage(image, *_UNREADABLE), [Failure(index, record.key, str(error), is_kept=True)]

    def _skip(self, draft: _Draft, index: int, error: Exception) -> None:
        key = self._recipe.source.key(index)
        if self._recipe.on_error == "fail":
            raise SourceError(
                f"record {index} ({key!r}) cannot be packed: {error}; mend or remove it, or pack with "
                "--on-error skip (leave such files out) or keep (store their bytes as they are)"
            ) from error
        draft.failures.append(Failure(index, key, str(error), is_kept=False))

    def _rows(self, record: SourceRecord, stored: StoredImage, index: int) -> list[Any]:
        """The stored bytes of every column of one record, in the columns' order."""
        rows: list[Any] = [os.fsencode(record.key), *_image_rows(stored)]
        for each in self._recipe.fields[1:]:
            value = record.values.get(each.name)
            if each.kind == "image" and isinstance(value, bytes | np.ndarray):
                second = encoding_named(each.encoding or "keep")
                rows.extend(_image_rows(second.encode(value, None, self._workdir)))
            else:
                rows.append(value_row(each, value, index))
        return rows


def _image_rows(stored: StoredImage) -> tuple[Any, bytes, bytes, bytes]:
    """The rows of an image field's columns: data, shape, grid, tiles."""
    return stored.data, _SHAPE.pack(*stored.shape), _GRID.pack(*stored.grid), stored.tiles.tobytes()


class _Draft:
    """A piece in the making."""

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

    def finish(self, start: int, stop: int) -> Piece:
        rows, lengths = {}, {}
        for at, column in enumerate(self._columns):
            if at == self._payload_at:
                continue
            parts = [row[at] for row in self._rows]
            rows[column.name] = b"".join(parts)
            if column.ragged:
                lengths[column.name] = np.fromiter(map(len, parts), np.int64, len(parts))
        return Piece(
            start=start,
            stop=stop,
            indices=np.array(self._indices, np.int64),
            sizes=np.fromiter(map(len, self.payload), np.int64, len(self.payload)),
            rows=rows,
            lengths=lengths,
            crcs=b"".join(self._crcs),
            failures=self.failures,
            read_bytes=self.read_bytes,
        )


def value_row(field: Field, value: Any, index: int) -> bytes:
    """The stored bytes of a field other than an image.

    Args:
        field: The field.
        value: What the source gave: a number, an array-like, a str or bytes.
        index: The record's number in the source, for messages.

    Raises:
        SourceError: The value is not what the field holds.
    """
    if field.kind == "text" and isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if field.kind == "bytes" and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if field.kind in ("scalar", "vector", "ragged") and value is not None:
        return _array_row(field, value, index)
    raise SourceError(
        f"record {index}: field {field.name!r} must be {field.kind}, got {type(value).__name__}"
    )


def _array_row(field: Field, value: Any, index: int) -> bytes:
    dtype = field.columns()[0].numpy_dtype
    try:
        given = np.asarray(value)
        array = given.astype(dtype, casting="unsafe")
        if field.kind == "ragged":
            array = array.reshape(-1, *field.shape)
        fits = array.shape == field.shape or field.kind == "ragged"
        if given.dtype.kind in "iub" and not np.array_equal(array.ravel(), given.ravel()):
            raise ValueError(f"{value!r} does not fit into {field.dtype}")
        if array.dtype.kind in "iub" and given.dtype.kind == "f":
            raise ValueError(f"{value!r} is no {field.dtype}")
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"record {index}: field {field.name!r}: {error}") from error
    if not fits:
        raise SourceError(
            f"record {index}: field {field.name!r} must have shape {field.shape}, got {given.shape}: "
            "declare it ragged with fields=… if its rows vary"
        )
    return array.tobytes()
