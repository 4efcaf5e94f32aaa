"""Conversion of source records to stored rows, and writing of the images, in a packing process.

A *chunk* is the result for a few neighbouring records. Its small columns are sent to the main process; its
payload, the stored images, stays with the worker until the main process has assigned it to a shard, so that
no image is sent between processes.
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

from fastload.contracts import RecordSource
from fastload.errors import AccessError, DecodeError, FastloadError, SourceError
from fastload.images.arrays import Size
from fastload.images.encodings import Encoding, StoredImage, encoding_named
from fastload.images.header import read_header
from fastload.images.masks import resize_mask
from fastload.images.region import swaps_sides, upright
from fastload.images.resize import Resampling, resize
from fastload.images.source_pixels import ImageSource, converted_source
from fastload.images.unchanged import decode_as
from fastload.packing.encoding.options import PackOptions
from fastload.shards.checksum import StoredRow, record_crc32c
from fastload.shards.manifest import Skipped
from fastload.shards.record import stored_rows
from fastload.shards.schema import Field, image_of, record_columns
from fastload.sources.dataset.nested import IF_NO_IMAGE

# A chunk that has reached this size ends early, so that a worker's memory stays bounded.
CHUNK_LIMIT_BYTES = 16 << 20

# The size of one write. The page cache allocates folios as large as the write, and large ones slowly:
# 10,000 photos took 1.2 s in writes of 32 KB, 2.5 s in writes of 256 KB, and 3 s with one write per chunk
# (Linux 6.18, ext4, medians).
_WRITE_BYTES = 32 << 10
_SHAPE = struct.Struct("<3I")
_GRID = struct.Struct("<4I")

# Shape, grid and tiles of a file that is kept although it is not a readable image.
_UNREADABLE = ((0, 0, 0), (0, 0, 0, 0), np.empty(0, np.uint16))


@dataclass(slots=True)
class Chunk:
    """The result for the source's records `start` … `stop - 1`, without the payload."""

    start: int
    stop: int
    indices: list[int] = field(default_factory=list)  # the source index of each stored record, ascending
    sizes: NDArray[np.int64] = field(init=False)  # the size of each record's payload, in bytes
    rows: dict[str, bytes] = field(init=False)  # the joined bytes of all records, by other column
    lengths: dict[str, NDArray[np.int64]] = field(init=False)  # the bytes of each record, by ragged column
    crcs: bytes = b""  # the joined checksums of all records
    skipped: list[Skipped] = field(default_factory=list)
    kept: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # corrections made while reading the records
    read_bytes: int = 0
    seconds: float = 0.0

    @property
    def size_bytes(self) -> int:
        """The size of all stored records."""
        return int(self.sizes.sum()) + sum(map(len, self.rows.values()))

    def stored_bytes(self) -> dict[int, int]:
        """Return the size of each stored record by source index."""
        fixed = sum(len(rows) for column, rows in self.rows.items() if column not in self.lengths)
        sizes = self.sizes + fixed // max(1, len(self.sizes))
        sizes += sum(self.lengths.values(), np.zeros(len(self.sizes), np.int64))
        return dict(zip(self.indices, sizes.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parameters for packing one split, sent to every process.

    The first field is the image. Without images, `encoding` is None.
    """

    source: RecordSource
    fields: tuple[Field, ...]
    encoding: Encoding | None
    options: PackOptions
    split: str = ""


class ChunkEncoder:
    """Encoder of one source's records in one process, with a folder for temporary files."""

    def __init__(self, recipe: Recipe, temporary: Path) -> None:
        self._recipe = recipe
        self._temporary = temporary
        self._columns = record_columns(recipe.fields)
        image = image_of(recipe.fields)
        names = [column.name for column in self._columns]
        self._payload_at = None if image is None else names.index(image.name)
        self._value_fields = recipe.fields[0 if image is None else 1 :]

    def encode(self, start: int, stop: int) -> tuple[Chunk, list[StoredRow]]:
        """Encode the records from `start` to at most `stop - 1`; return the chunk and its stored images."""
        began = time.perf_counter()
        chunk = Chunk(start, start)
        records: list[list[StoredRow]] = []
        crcs: list[int] = []
        payload: list[StoredRow] = []
        size_bytes = 0
        while chunk.stop < stop and size_bytes < CHUNK_LIMIT_BYTES:
            # Only fastload's own errors concern the record. A plain OSError, such as that of a full disk
            # when a temporary file is written, ends packing regardless of `on_error`.
            try:
                rows = self._encode_record(chunk)
            except AccessError:
                raise
            except FastloadError as error:
                chunk.skipped.append(self._skip(chunk.stop, error))
            else:
                chunk.indices.append(chunk.stop)
                crcs.append(record_crc32c(rows))
                size_bytes += sum(map(len, rows))
                payload.append(b"" if self._payload_at is None else rows.pop(self._payload_at))
                records.append(rows)
            chunk.stop += 1
        others = [column for at, column in enumerate(self._columns) if at != self._payload_at]
        stored = {column: [rows[at] for rows in records] for at, column in enumerate(others)}
        chunk.sizes = _lengths(payload)
        chunk.rows = {column.name: b"".join(rows) for column, rows in stored.items()}  # type: ignore[arg-type]
        chunk.lengths = {column.name: _lengths(rows) for column, rows in stored.items() if column.ragged}
        chunk.crcs = np.array(crcs, "<u4").tobytes()
        chunk.seconds = time.perf_counter() - began
        return chunk, payload

    def _encode_record(self, chunk: Chunk) -> list[StoredRow]:
        """Return the stored rows of a chunk's next record, and add its bytes and notes to the chunk."""
        recipe = self._recipe
        record = recipe.source.read(chunk.stop)
        key, image, encoding = os.fsencode(record.key), record.image, recipe.encoding
        if encoding is None:
            rows = [key, *self._value_rows(record.values)]
            chunk.read_bytes += sum(map(len, rows))
        else:
            assert image is not None
            chunk.read_bytes += image.nbytes if isinstance(image, np.ndarray) else len(image)
            # Some encodings drop the orientation, which the coordinates assume.
            is_turned = recipe.source.is_upright and not encoding.holds_files
            if is_turned and isinstance(image, bytes) and (turn := read_header(image).orientation) != 1:
                image = upright(decode_as(image, encoding.pixel_type), turn)
            unreadable: list[Skipped] = []
            try:
                wanted = image
                if recipe.options.convert is not None:
                    wanted = converted_source(image, encoding.pixel_type)
                stored = encoding.encode(wanted, recipe.options.limit, self._temporary)
            except DecodeError as error:
                if recipe.options.on_error != "keep" or isinstance(image, np.ndarray):
                    raise
                stored = StoredImage(image, *_UNREADABLE)
                unreadable = [Skipped(record.key, str(error))]
            values = self._scaled_values(record.values, image, stored)
            rows = [key, *_image_rows(stored), *self._value_rows(values)]
            chunk.kept += unreadable
        chunk.notes += record.notes
        return rows

    def _skip(self, index: int, error: Exception) -> Skipped:
        """Return the entry of a skipped record; raise SourceError if no record may be skipped."""
        key = self._recipe.source.key(index)
        if self._recipe.options.on_error == "fail":
            step = f", {IF_NO_IMAGE}" if self._recipe.source.kind == "dataset" else ""
            raise SourceError(
                f"record {index} ({key!r}) cannot be packed: {error}; repair or remove it, or pack with "
                f"--on-error skip (leave such files out) or keep (store their bytes as they are){step}"
            ) from error
        return Skipped(key, str(error))

    def _scaled_values(
        self, values: dict[str, object], image: ImageSource, stored: StoredImage
    ) -> dict[str, object]:
        """Return the values of a record whose image may have been resized, in pixels of the stored one."""
        fields, after = self._value_fields, stored.shape[:2]
        if self._recipe.options.limit is None or not after[0]:
            return values
        if not any(each.is_of_objects or each.format for each in fields):
            return values
        if isinstance(image, np.ndarray):
            before = image.shape[0], image.shape[1]
        else:
            header = read_header(image)
            before = header.height, header.width
            if self._recipe.source.is_upright and swaps_sides(header.orientation):
                before, after = before[::-1], after[::-1]
        if before == after:
            return values
        return {each.name: _scaled(each, values[each.name], before, after) for each in fields}

    def _value_rows(self, values: dict[str, object]) -> list[StoredRow]:
        """Return the stored bytes of every column of the values, in the columns' order."""
        rows: list[StoredRow] = []
        for each in self._value_fields:
            value: Any = values[each.name]
            if each.kind == "image" and isinstance(value, bytes) and not value:
                rows.extend(_image_rows(StoredImage(value, *_UNREADABLE)))  # the record has no such image
            elif each.kind == "image":
                encoding = encoding_named(each.encoding, pixel_type=each.pixel_type)
                rows.extend(_image_rows(encoding.encode(value, None, self._temporary)))
            else:
                rows.extend(stored_rows(each, value))
        return rows


def _image_rows(stored: StoredImage) -> tuple[StoredRow, bytes, bytes, bytes]:
    """Return the rows of an image field's columns: data, shape, grid, tiles."""
    return stored.data, _SHAPE.pack(*stored.shape), _GRID.pack(*stored.grid), stored.tiles.tobytes()


def _lengths(parts: list[StoredRow]) -> NDArray[np.int64]:
    return np.fromiter(map(len, parts), np.int64, len(parts))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The place of a chunk's payload: a file, and the offset of the payload in it."""

    start: int
    path: Path
    offset: int


def write_payload(target: WriteTask, buffers: Sequence[StoredRow]) -> None:
    """Write a chunk's payload in blocks of about 32 KB; an OSError names the file."""
    try:
        with target.path.open("r+b", buffering=_WRITE_BYTES - 1) as file:  # which joins what is smaller
            file.seek(target.offset)
            for buffer in buffers:
                if len(buffer) < _WRITE_BYTES:
                    file.write(buffer)  # type: ignore[arg-type]
                    continue
                view = memoryview(buffer)  # type: ignore[arg-type]
                for at in range(0, len(view), _WRITE_BYTES):
                    file.write(view[at : at + _WRITE_BYTES])
    except OSError as error:
        error.filename = str(target.path)
        raise


def _scaled(field: Field, value: Any, before: Size, after: Size) -> object:
    """Return a value of an image, with pixel coordinates, areas and masks scaled to its new size."""
    factors = np.array([after[1] / before[1], after[0] / before[0]])
    if field.kind == "image":
        if field.format == "masks" and len(value):
            resampling = Resampling("nearest-exact")
            masks = value.reshape(-1, *before, 1)
            return np.concatenate([resize(mask, *after, resampling)[:, :, 0] for mask in masks])
        return resize_mask(value, *after) if field.format == "mask" and value else value
    if field.name == "area" and field.per_object:
        return value * factors.prod()
    if field.relative or field.kind not in ("boxes", "polygons", "keypoints", "corners"):
        return value
    if field.kind == "polygons":
        return [[polygon * factors for polygon in polygons] for polygons in value]
    if field.kind == "boxes":
        return value * np.tile(factors, 2)
    return np.concatenate([value[..., :2] * factors, value[..., 2:]], axis=-1)
