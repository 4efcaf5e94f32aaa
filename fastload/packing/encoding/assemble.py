"""Partition of the records into shards, and assembly of a shard from the chunks of its records.

Shards are independent of each other, so any process on any machine can pack any of them. Their bytes depend
only on the records, not on how these were divided into chunks, nor on when and by which process they were
encoded.

The stored size of a record is known only once it is encoded, and a process that packs the hundredth shard
cannot wait for the ninety-nine before it. Sizes are therefore predicted from a sample of encoded records: as
a linear function of the sizes of the source's files, or as the mean of the sample.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastload.contracts import RecordSource
from fastload.errors import SourceError
from fastload.packing.encoding.chunk import Chunk, ChunkEncoder, Recipe, WriteTask, write_payload
from fastload.shards.checksum import apply_masks, array_crc32c, file_crc32c, identity_crc, shard_identity
from fastload.shards.container import Payload, Ragged, ShardContent
from fastload.shards.manifest import Manifest, ShardEntry, Skipped
from fastload.shards.schema import CRC32C, image_of, record_columns
from fastload.shards.shard import writer_for


@dataclass(frozen=True, slots=True)
class ShardRange:
    """A shard to pack: its split, its number in the split, and its source records, [begin, end)."""

    split: str
    number: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A written shard as listed in the manifest, and the outcome of packing its records."""

    entry: ShardEntry | None  # None if no record could be packed; there is no file then
    image_shape: tuple[int, int, int] | None  # the shape that all images share, if any
    skipped: tuple[Skipped, ...]  # records that were left out because they cannot be read
    kept: tuple[Skipped, ...]  # records that were stored although they are not readable images
    notes: tuple[str, ...]  # corrections made while reading the records
    read_bytes: int  # the bytes read from the source


class ShardDraft:
    """A shard that is being filled; its files are in `folder`."""

    def __init__(self, shard: ShardRange, recipe: Recipe, folder: Path) -> None:
        self._shard = shard
        self._recipe = recipe
        self._writer = writer_for(recipe.options.format)
        self.path = folder / f"shard-{shard.number:05d}{self._writer.suffix}"
        self._payload = self.path.with_suffix(".payload")
        with self._payload.open("xb") as file:
            file.truncate(self._writer.payload_offset)
        self._early: dict[int, Chunk] = {}  # chunks that arrived before one that precedes them
        self._chunks: list[Chunk] = []
        self._size_bytes = 0
        self._position = shard.begin
        self._unwritten: dict[int, Chunk] = {}

    def add(self, chunk: Chunk) -> list[WriteTask]:
        """Add a chunk, in any order; return tasks for all payloads whose place is now known."""
        self._early[chunk.start] = chunk
        tasks = []
        while (placed := self._early.pop(self._position, None)) is not None:
            offset = self._writer.payload_offset + self._size_bytes
            tasks.append(WriteTask(placed.start, self._payload, offset))
            self._chunks.append(placed)
            self._unwritten[placed.start] = placed
            self._size_bytes += int(placed.sizes.sum())
            self._position = placed.stop
        return tasks

    def written(self, start: int) -> Chunk:
        """Record that the payload of the chunk at `start` has been written, and return the chunk."""
        return self._unwritten.pop(start)

    @property
    def is_complete(self) -> bool:
        """True once every record is written."""
        return self._position == self._shard.end and not self._unwritten

    def finish(self) -> FinishedShard:
        """Write the shard to `path`, unless it has no records."""
        skipped = tuple(each for chunk in self._chunks for each in chunk.skipped)
        kept = tuple(each for chunk in self._chunks for each in chunk.kept)
        notes = tuple(note for chunk in self._chunks for note in chunk.notes)
        read_bytes = sum(chunk.read_bytes for chunk in self._chunks)
        if not any(len(chunk.indices) for chunk in self._chunks):
            self._payload.unlink()
            return FinishedShard(None, None, skipped, kept, notes, read_bytes)
        fields, content = self._recipe.fields, self._content()
        self._writer.write(self.path, (*record_columns(fields), CRC32C), content)
        self._payload.unlink(missing_ok=True)
        bound = identity_crc(content.identity)
        names = [each.name for each in fields if each.kind in ("scalar", "vector")]
        entry = ShardEntry(
            self.path.name,
            content.count,
            self.path.stat().st_size,
            file_crc32c(self.path),
            {name: array_crc32c(content.fixed[name], bound) for name in names},
            content.identity.hex(),
        )
        return FinishedShard(entry, _common_shape(content.fixed), skipped, kept, notes, read_bytes)

    def _content(self) -> ShardContent:
        chunks, image = self._chunks, image_of(self._recipe.fields)
        count = sum(len(chunk.indices) for chunk in chunks)
        fixed: dict[str, NDArray[np.generic]] = {}
        ragged: dict[str, Ragged] = {}
        for column in record_columns(self._recipe.fields):
            if column.ragged and image is not None and column.name == image.name:
                continue  # the payload
            rows = b"".join(chunk.rows[column.name] for chunk in chunks)
            if not column.ragged:
                fixed[column.name] = np.frombuffer(rows, column.numpy_dtype).reshape(count, *column.shape)
            else:
                lengths = np.concatenate([chunk.lengths[column.name] for chunk in chunks])
                data = np.frombuffer(rows, column.numpy_dtype).reshape(-1, *column.shape)
                ragged[column.name] = Ragged(data, _offsets(lengths // column.row_bytes))
        crcs = b"".join(chunk.crcs for chunk in chunks)
        sizes = np.concatenate([chunk.sizes for chunk in chunks])
        recipe = self._recipe
        # The dataset is a part of the identity, as equal bytes may have different meanings.
        dataset = [recipe.split, [field.to_json() for field in recipe.fields], [*recipe.source.classes]]
        parts = [json.dumps(dataset).encode(), b"%d" % self._shard.number, crcs]
        identity = shard_identity([*parts, sizes.astype("<i8").tobytes()])
        fixed[CRC32C.name] = apply_masks(identity, np.frombuffer(crcs, "<u4"))
        shape = None
        if recipe.encoding is not None and recipe.encoding.is_raw and (sides := _common_shape(fixed)):
            shape = *sides[:2], recipe.encoding.pixel_type.pixel_bytes
        payload = Payload(None if image is None else image.name, self._payload, _offsets(sizes), shape)
        return ShardContent(count, identity, fixed, ragged, payload)


def pack_shard(shard: ShardRange, recipe: Recipe, folder: Path) -> tuple[FinishedShard, Path]:
    """Pack a shard in this process alone, with its files in `folder`; return it and the path of its file."""
    encoder, draft = ChunkEncoder(recipe, folder), ShardDraft(shard, recipe, folder)
    position = shard.begin
    while position < shard.end:
        chunk, payload = encoder.encode(position, shard.end)
        for task in draft.add(chunk):
            write_payload(task, payload)
            position = draft.written(task.start).stop
    return draft.finish(), draft.path


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    offsets = np.zeros(len(lengths) + 1, "<u8")
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _common_shape(fixed: Mapping[str, NDArray[np.generic]]) -> tuple[int, int, int] | None:
    """Return the shape that all images share; None if they differ, one cannot be read, or there are none."""
    shapes = fixed.get("image/shape")
    if shapes is None:
        return None
    height, width, channels = (int(side) for side in shapes[0])
    if height == 0 or (shapes != shapes[0]).any():
        return None
    return height, width, channels


@dataclass(frozen=True, slots=True)
class SplitPartition:
    """The cuts between the shards of one split, and the split's manifest without the shards."""

    name: str
    cuts: tuple[int, ...]
    sizes_bytes: tuple[int, ...]  # the predicted size of each shard
    manifest: Manifest

    @property
    def shards(self) -> list[ShardRange]:
        """The shards of the split, in order."""
        bounds = enumerate(pairwise(self.cuts))
        return [ShardRange(self.name, number, begin, end) for number, (begin, end) in bounds]

    def manifest_of(self, finished: Mapping[ShardRange, FinishedShard]) -> Manifest:
        """Return the manifest of finished shards; raise SourceError if all are empty."""
        found = [finished[shard] for shard in self.shards if shard in finished]
        skipped = tuple(each for shard in found for each in shard.skipped)
        entries = tuple(shard.entry for shard in found if shard.entry is not None)
        is_complete = len(found) == len(self.cuts) - 1
        if is_complete and not entries:  # an empty dataset would look like success
            raise SourceError(
                f"{self.manifest.made['source']}: none of its {self.cuts[-1]:,} records can be packed; the "
                f"first is {skipped[0].key!r}: {skipped[0].reason}: check the source"
            )
        shapes = {shard.image_shape for shard in found if shard.entry is not None}
        return replace(
            self.manifest,
            shards=entries,
            left_out=self.manifest.left_out if is_complete else (),
            image_shape=shapes.pop() if len(shapes) == 1 else None,
            skipped=skipped,
            kept=tuple(each for shard in found for each in shard.kept),
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """The partitions of all splits, packed in `parts` separate runs."""

    splits: tuple[SplitPartition, ...]
    parts: int = 1

    @property
    def shards(self) -> list[ShardRange]:
        """The shards of all splits."""
        return [shard for split in self.splits for shard in split.shards]

    def part(self, number: int, count: int) -> dict[ShardRange, int]:
        """Return the consecutive shards that form part `number`, from 1 to `count`, with predicted sizes."""
        sizes_bytes = (size for split in self.splits for size in split.sizes_bytes)
        shards = list(zip(self.shards, sizes_bytes, strict=True))
        return dict(shards[len(shards) * (number - 1) // count : len(shards) * number // count])

    def manifests(self, finished: Mapping[ShardRange, FinishedShard]) -> dict[str, Manifest]:
        """Return the manifest of each split that has finished shards."""
        splits = {shard.split for shard in finished}
        return {split.name: split.manifest_of(finished) for split in self.splits if split.name in splits}

    def to_json(self) -> str:
        """Return the text from which `from_json` makes the same partition."""
        splits = [
            (split.name, split.cuts, split.sizes_bytes, split.manifest.to_bytes().decode())
            for split in self.splits
        ]
        return json.dumps({"parts": self.parts, "splits": splits})

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Partition:
        """Return the partition that `data` holds; raise FormatError at `where` if a manifest is damaged."""
        content = json.loads(data)
        splits = (
            SplitPartition(name, tuple(cuts), tuple(sizes), Manifest.from_bytes(manifest.encode(), where))
            for name, cuts, sizes, manifest in content["splits"]
        )
        return cls(tuple(splits), content["parts"])


# While a shard is packed, its columns without the images are in memory: 0.26 KB a record, measured; so 70 MB.
_MOST_RECORDS = 1 << 18


def cuts_of(sizes: NDArray[np.int64], shard_bytes: int) -> list[int]:
    """Return the cuts between shards of about equal size, at most `shard_bytes` on average.

    Small records count for more, so that no shard has more than `_MOST_RECORDS`.

    >>> cuts_of(np.array([40, 40, 40, 40, 40]), 100)
    [0, 2, 5]
    """
    ends = np.cumsum(np.maximum(sizes, -(-shard_bytes // _MOST_RECORDS)))
    total = int(ends[-1])
    shards = min(len(sizes), -(-total // shard_bytes))
    inner = np.searchsorted(ends, [total * number // shards for number in range(1, shards)], "right")
    return [0, *sorted({*inner.tolist()} - {0}), len(sizes)]


def predict_sizes(source: RecordSource, measured: dict[int, int]) -> NDArray[np.int64]:
    """Predict the stored size of every record, at least 1 byte, from the sizes that were measured."""
    stored, mean = list(measured.values()), statistics.mean(measured.values() or [1])
    listed = source.sizes_bytes()
    source_bytes = [] if listed is None else [int(listed[index]) for index in measured]
    if listed is None or len({*source_bytes}) < 2:
        return np.full(len(source), max(1, round(mean)), np.int64)
    slope, intercept = statistics.linear_regression(source_bytes, stored)
    if intercept < 0:
        slope, intercept = sum(stored) / sum(source_bytes), 0.0
    if slope < 0:
        slope, intercept = 0.0, mean
    sizes: NDArray[np.int64] = np.maximum(1, np.rint(slope * listed + intercept)).astype(np.int64)
    return sizes
