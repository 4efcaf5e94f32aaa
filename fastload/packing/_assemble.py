"""Assembly of chunks into shards, in the source's order.

The end of a shard depends only on the sizes of the stored records, never on the chunks or the speed of the
workers: the same source gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastload.packing._chunk import Chunk, Failure, PayloadRange
from fastload.shards.checksum import apply_masks, array_crc32c, file_crc32c, identity_crc, shard_identity
from fastload.shards.container import Payload, Ragged, ShardContent, ShardWriter
from fastload.shards.manifest import ShardEntry
from fastload.shards.schema import CRC32C, Column, Field, record_columns


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A written shard as listed in the manifest, with the failures among the source's records before its end.

    The next shard begins with the source's record `next_index`; `image_shape` is the shape that all images
    share, or None.
    """

    entry: ShardEntry
    next_index: int
    image_shape: tuple[int, int, int] | None
    failures: tuple[Failure, ...]


class _ChunkPart(NamedTuple):
    """The stored records first … last - 1 of a chunk."""

    chunk: Chunk
    first: int
    last: int


@dataclass(slots=True)
class _OpenShard:
    """A shard that is being filled, with its payload in a file at `path`.

    `weight_bytes` is the size of the payload and of the other ragged columns, `next_index` the source record
    with which the next shard begins, `unwritten` the starts of the chunks whose payload is not written yet.
    """

    number: int
    path: Path
    parts: list[_ChunkPart] = field(default_factory=list)
    records: int = 0
    size_bytes: int = 0
    weight_bytes: int = 0
    next_index: int | None = None
    unwritten: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Assembler:
    """Assigns every record to a shard and an offset, and finishes shards.

    `folder` is for finished shards, `drafts` for unfinished ones. `dataset` is a part of the shards'
    identities: it differs between datasets in which equal bytes mean different things.
    """

    folder: Path
    drafts: Path
    fields: Sequence[Field]
    writer: type[ShardWriter]
    shard_bytes: int
    next_number: int
    dataset: bytes
    _open: list[_OpenShard] = field(default_factory=list, init=False)
    _failures: list[Failure] = field(default_factory=list, init=False)

    def place(self, chunk: Chunk) -> tuple[PayloadRange, ...]:
        """Add the next chunk in order; return the ranges of files to which its payload belongs."""
        weights = chunk.sizes + sum(chunk.lengths.values(), np.zeros(len(chunk.sizes), np.int64))
        ranges = []
        first = 0
        while first < len(weights):
            shard = self._shard_for(int(weights[first]), int(chunk.indices[first]))
            last = first + self._count_fitting(shard, weights[first:])
            offset = self.writer.payload_offset + shard.size_bytes
            ranges.append(PayloadRange(shard.path, offset, first, last))
            shard.parts.append(_ChunkPart(chunk, first, last))
            shard.records += last - first
            shard.size_bytes += int(chunk.sizes[first:last].sum())
            shard.weight_bytes += int(weights[first:last].sum())
            shard.unwritten.add(chunk.start)
            first = last
        self._failures += chunk.failures
        return tuple(ranges)

    def written(self, start: int) -> list[FinishedShard]:
        """Record that the payload of the chunk at `start` is written; return the shards finished by that."""
        for shard in self._open:
            shard.unwritten.discard(start)
        return self._finish_complete()

    def end(self, next_index: int) -> list[FinishedShard]:
        """End the last shard after the source's last record; every chunk must be written."""
        if self._open:
            self._open[-1].next_index = next_index
        return self._finish_complete()

    def take_failures(self, before: int) -> list[Failure]:
        """Remove and return the failures among the source's records below `before`."""
        taken = [failure for failure in self._failures if failure.index < before]
        self._failures = [failure for failure in self._failures if failure.index >= before]
        return taken

    def _shard_for(self, weight: int, index: int) -> _OpenShard:
        """Return the shard that takes a record of `weight` bytes, the source's record `index`."""
        if self._open and self._open[-1].next_index is None:
            shard = self._open[-1]
            if shard.records == 0 or shard.weight_bytes + weight <= self.shard_bytes:
                return shard
            shard.next_index = index
        path = self.drafts / f"shard-{self.next_number:05d}.payload"
        with path.open("xb") as file:
            file.truncate(self.writer.payload_offset)
        self._open.append(_OpenShard(self.next_number, path))
        self.next_number += 1
        return self._open[-1]

    def _count_fitting(self, shard: _OpenShard, weights: NDArray[np.int64]) -> int:
        """Return how many of the next records fit into the shard: at least one into an empty one."""
        room = self.shard_bytes - shard.weight_bytes
        fitting = int(np.searchsorted(np.cumsum(weights), room, side="right"))
        return max(fitting, 1) if shard.records == 0 else fitting

    def _finish_complete(self) -> list[FinishedShard]:
        finished = []
        while self._open and self._open[0].next_index is not None and not self._open[0].unwritten:
            finished.append(self._finish(self._open.pop(0)))
        return finished

    def _finish(self, shard: _OpenShard) -> FinishedShard:
        assert shard.next_index is not None
        draft = self.drafts / f"shard-{shard.number:05d}{self.writer.suffix}"
        content = self._content(shard)
        self.writer.write(draft, (*record_columns(self.fields), CRC32C), content)
        crc32c, size = file_crc32c(draft), draft.stat().st_size
        path = self.folder / f"shard-{shard.number:05d}{self.writer.suffix}"
        os.replace(draft, path)
        shard.path.unlink(missing_ok=True)
        bound = identity_crc(content.identity)
        names = [each.name for each in self.fields if each.kind in ("scalar", "vector")]
        column_crcs = {name: array_crc32c(content.fixed[name], bound) for name in names}
        return FinishedShard(
            ShardEntry(path.name, shard.records, size, crc32c, column_crcs, content.identity.hex()),
            shard.next_index,
            _common_shape(content.fixed[f"{self.fields[0].name}/shape"]),
            tuple(self.take_failures(shard.next_index)),
        )

    def _content(self, shard: _OpenShard) -> ShardContent:
        image = self.fields[0]
        fixed: dict[str, NDArray[Any]] = {}
        ragged: dict[str, Ragged] = {}
        for column in record_columns(self.fields):
            if not column.ragged:
                rows = _join(column, shard.parts)
                fixed[column.name] = rows.reshape(shard.records, *column.shape)
            elif column.name != image.name:
                ragged[column.name] = _join_ragged(column, shard.parts)
        crcs = b"".join(chunk.crcs[4 * first : 4 * last] for chunk, first, last in shard.parts)
        sizes = np.concatenate([chunk.sizes[first:last] for chunk, first, last in shard.parts])
        identity = shard_identity([self.dataset, b"%d" % shard.number, crcs, sizes.astype("<i8").tobytes()])
        fixed[CRC32C.name] = apply_masks(identity, np.frombuffer(crcs, "<u4"))
        shape = _common_shape(fixed[f"{image.name}/shape"])
        is_array = image.encoding == "raw" and shape is not None
        payload = Payload(image.name, shard.path, _offsets(sizes), shape if is_array else None)
        return ShardContent(shard.records, identity, fixed, ragged, payload)


def _join(column: Column, parts: Sequence[_ChunkPart]) -> NDArray[Any]:
    """Return a fixed column's rows of several chunks."""
    size = column.row_bytes
    rows = [chunk.rows[column.name][size * first : size * last] for chunk, first, last in parts]
    return np.frombuffer(b"".join(rows), column.numpy_dtype)


def _join_ragged(column: Column, parts: Sequence[_ChunkPart]) -> Ragged:
    """Return a ragged column's rows of several chunks."""
    rows, lengths = [], []
    for chunk, first, last in parts:
        chunk_lengths = chunk.lengths[column.name]
        begin, end = int(chunk_lengths[:first].sum()), int(chunk_lengths[:last].sum())
        rows.append(chunk.rows[column.name][begin:end])
        lengths.append(chunk_lengths[first:last])
    data = np.frombuffer(b"".join(rows), column.numpy_dtype).reshape(-1, *column.shape)
    return Ragged(data, _offsets(np.concatenate(lengths) // column.row_bytes))


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    offsets = np.zeros(len(lengths) + 1, "<u8")
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _common_shape(shapes: NDArray[np.uint32]) -> tuple[int, int, int] | None:
    """Return the shape that all images share; None if they differ or one cannot be read."""
    height, width, channels = (int(side) for side in shapes[0])
    if height == 0 or (shapes != shapes[0]).any():
        return None
    return height, width, channels
