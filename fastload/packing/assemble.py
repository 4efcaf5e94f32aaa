"""Putting pieces into shards, in the source's order.

Where a shard ends depends on the sizes of the stored records alone, never on how the records were
divided into pieces or which worker was faster: so the same source gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.packing.payload import Stretch
from fastload.packing.piece import Failure, Piece
from fastload.shards.checksum import array_crc32c, binding, file_crc32c, masked, shard_identity
from fastload.shards.container import Payload, Ragged, ShardContent, ShardWriter
from fastload.shards.manifest import ShardEntry
from fastload.shards.schema import CRC32C, Column, Field, record_columns


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A shard that is written, and how far in the source it reaches.

    Attributes:
        entry: The shard as the manifest lists it.
        next_index: The source record with which the next shard begins.
        image_shape: The shape that all its images share, or None.
        failures: What failed among the source's records before `next_index`.
    """

    entry: ShardEntry
    next_index: int
    image_shape: tuple[int, int, int] | None
    failures: tuple[Failure, ...]


@dataclass(slots=True)
class _Part:
    """Records first … last - 1 of a piece."""

    piece: Piece
    first: int
    last: int


@dataclass(slots=True)
class _OpenShard:
    """A shard that is being filled.

    Attributes:
        number: Its number.
        path: The file that its payload is written to.
        payload_offset: Where in that file it begins.
        parts: What it holds so far.
        records: The number of its records.
        size_bytes: The size of its payload.
        weight_bytes: The size of its payload and of its other ragged columns.
        next_index: The source record with which the next shard begins, once that is known.
        waiting: The pieces whose payload is not written yet.
    """

    number: int
    path: Path
    payload_offset: int
    parts: list[_Part] = field(default_factory=list)
    records: int = 0
    size_bytes: int = 0
    weight_bytes: int = 0
    next_index: int | None = None
    waiting: set[int] = field(default_factory=set)


class Assembler:
    """Decides where every record goes, and finishes shards.

    Args:
        folder: Where finished shards go.
        drafts: Where unfinished ones lie.
        fields: The fields of a record; the first is the image.
        writer: Writes the container.
        shard_bytes: How much a shard holds before the next one begins.
        first_number: The number of the first shard to make.
        dataset: What the shards are of: another one for every dataset in which equal bytes mean something
            else. It goes into their identities.
        token: Makes the names of drafts this run's own: a worker of a packing that was killed may
            live a moment longer than it, and must not write into our files.
    """

    def __init__(
        self,
        folder: Path,
        drafts: Path,
        fields: Sequence[Field],
        writer: type[ShardWriter],
        shard_bytes: int,
        first_number: int,
        dataset: bytes,
        token: str,
    ) -> None:
        self._folder = folder
        self._drafts = drafts
        self._columns = record_columns(fields)
        self._fields = fields
        self._image = fields[0]
        self._writer = writer
        self._shard_bytes = shard_bytes
        self.next_number = first_number
        self._dataset = dataset
        self._token = token
        self._open: list[_OpenShard] = []
        self._failures: list[Failure] = []

    def place(self, number: int, piece: Piece, begin: int = 0) -> tuple[Stretch, ...]:
        """Takes the piece that follows in order, and says where its payload belongs.

        Args:
            number: The piece's number, for `written`.
            piece: The piece.
            begin: The first of the source's records to take; those before it are in shards already.
        """
        weights = piece.sizes + sum(piece.lengths.values(), np.zeros(len(piece.sizes), np.int64))
        stretches = []
        first = int(np.searchsorted(piece.indices, begin))
        while first < len(weights):
            shard = self._current(int(weights[first]), int(piece.indices[first]))
            last = first + self._fitting(shard, weights[first:])
            size = int(piece.sizes[first:last].sum())
            offset = shard.payload_offset + shard.size_bytes
            stretches.append(Stretch(shard.path, offset, first, last))
            shard.parts.append(_Part(piece, first, last))
            shard.records += last - first
            shard.size_bytes += size
            shard.weight_bytes += int(weights[first:last].sum())
            shard.waiting.add(number)
            first = last
        self._failures += [failure for failure in piece.failures if failure.index >= begin]
        return tuple(stretches)

    def written(self, number: int) -> list[FinishedShard]:
        """Takes note that a piece's payload is written; finishes and returns the shards now complete."""
        for shard in self._open:
            shard.waiting.discard(number)
        return self._finish_complete()

    def end(self, next_index: int) -> list[FinishedShard]:
        """Ends the last shard after the source's last record; every piece must be written."""
        if self._open:
            self._open[-1].next_index = next_index
        return self._finish_complete()

    def _current(self, weight: int, index: int) -> _OpenShard:
        """The shard that takes a record of `weight` bytes, which is the source's number `index`."""
        if self._open and self._open[-1].next_index is None:
            shard = self._open[-1]
            if shard.records == 0 or shard.weight_bytes + weight <= self._shard_bytes:
                return shard
            shard.next_index = index
        return self._begin()

    def _begin(self) -> _OpenShard:
        number = self.next_number
        self.next_number += 1
        path = self._drafts / f"shard-{number:05d}.{self._token}.payload"
        with path.open("xb") as file:
            file.truncate(self._writer.payload_offset)
        self._open.append(_OpenShard(number, path, self._writer.payload_offset))
        return self._open[-1]

    def _fitting(self, shard: _OpenShard, weights: NDArray[np.int64]) -> int:
        """How many of the next records fit into the shard: at least one into an empty one."""
        room = self._shard_bytes - shard.weight_bytes
        fitting = int(np.searchsorted(np.cumsum(weights), room, side="right"))
        return max(fitting, 1) if shard.records == 0 else fitting

    def _finish_complete(self) -> list[FinishedShard]:
        finished = []
        while self._open and self._open[0].next_index is not None and not self._open[0].waiting:
            finished.append(self._finish(self._open.pop(0)))
        return finished

    def _finish(self, shard: _OpenShard) -> FinishedShard:
        assert shard.next_index is not None
        draft = self._drafts / f"shard-{shard.number:05d}.{self._token}{self._writer.suffix}"
        content = self._content(shard)
        self._writer.write(draft, (*self._columns, CRC32C), content)
        crc32c, size = file_crc32c(draft), draft.stat().st_size
        path = self._folder / f"shard-{shard.number:05d}{self._writer.suffix}"
        os.replace(draft, path)
        return FinishedShard(
            ShardEntry(
                path.name, shard.records, size, crc32c, self._column_crcs(content), content.identity.hex()
            ),
            shard.next_index,
            _common_shape(content.fixed[f"{self._image.name}/shape"]),
            tuple(self.take_failures(shard.next_index)),
        )

    def _column_crcs(self, content: ShardContent) -> dict[str, str]:
        names = [field.name for field in self._fields if field.kind in ("scalar", "vector")]
        bound = binding(content.identity)
        return {name: array_crc32c(content.fixed[name], bound) for name in names}

    def take_failures(self, before: int) -> list[Failure]:
        """Hands over what failed among the source's records below `before`."""
        taken = [failure for failure in self._failures if failure.index < before]
        self._failures = [failure for failure in self._failures if failure.index >= before]
        return taken

    def _content(self, shard: _OpenShard) -> ShardContent:
        fixed: dict[str, NDArray[Any]] = {}
        ragged: dict[str, Ragged] = {}
        for column in self._columns:
            if not column.ragged:
                rows = _joined(column, shard.parts)
                fixed[column.name] = rows.reshape(shard.records, *column.shape)
            elif column.name != self._image.name:
                ragged[column.name] = _joined_ragged(column, shard.parts)
        crcs = b"".join(part.piece.crcs[4 * part.first : 4 * part.last] for part in shard.parts)
        sizes = np.concatenate([part.piece.sizes[part.first : part.last] for part in shard.parts])
        identity = shard_identity([self._dataset, b"%d" % shard.number, crcs, sizes.astype("<i8").tobytes()])
        fixed[CRC32C.name] = masked(identity, np.frombuffer(crcs, "<u4"))
        shape = _common_shape(fixed[f"{self._image.name}/shape"])
        is_array = self._image.encoding == "raw" and shape is not None
        payload = Payload(self._image.name, shard.path, _offsets(sizes), shape if is_array else None)
        return ShardContent(shard.records, identity, fixed, ragged, payload)


def _joined(column: Column, parts: Sequence[_Part]) -> NDArray[Any]:
    """A fixed column's rows of several parts."""
    size = column.row_bytes
    rows = [part.piece.rows[column.name][size * part.first : size * part.last] for part in parts]
    return np.frombuffer(b"".join(rows), column.numpy_dtype)


def _joined_ragged(column: Column, parts: Sequence[_Part]) -> Ragged:
    """A ragged column's rows of several parts."""
    rows, lengths = [], []
    for part in parts:
        own = part.piece.lengths[column.name]
        begin, end = int(own[: part.first].sum()), int(own[: part.last].sum())
        rows.append(part.piece.rows[column.name][begin:end])
        lengths.append(own[part.first : part.last])
    data = np.frombuffer(b"".join(rows), column.numpy_dtype).reshape(-1, *column.shape)
    return Ragged(data, _offsets(np.concatenate(lengths) // column.row_bytes))


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    offsets = np.zeros(len(lengths) + 1, "<u8")
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _common_shape(shapes: NDArray[np.uint32]) -> tuple[int, int, int] | None:
    """The shape that all images share; None where they differ or one cannot be read."""
    height, width, channels = (int(side) for side in shapes[0])
    if height == 0 or (shapes != shapes[0]).any():
        return None
    return height, width, channels
