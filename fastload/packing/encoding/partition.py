"""Partition of the records into shards, decided before any of them is packed.

Shards are independent of each other, so any process on any machine can pack any of them.

The stored size of a record is known only once it is encoded, and a process that packs the hundredth shard
cannot wait for the ninety-nine before it. Sizes are therefore predicted from a sample of encoded records: as
a linear function of the sizes of the source's files, or as the mean of the sample.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.packing.choose import SAMPLE_RECORDS
from fastload.packing.encoding.assemble import FinishedShard, ShardRange
from fastload.shards.manifest import Manifest, Skipped
from fastload.sources.protocol import Source, evenly_spaced


@dataclass(frozen=True, slots=True)
class SplitPartition:
    """The cuts between the shards of one split, and the split's manifest without the shards."""

    name: str
    cuts: tuple[int, ...]
    manifest: Manifest

    @property
    def shards(self) -> list[ShardRange]:
        """The shards of the split, in order."""
        bounds = enumerate(pairwise(self.cuts))
        return [ShardRange(self.name, number, begin, end) for number, (begin, end) in bounds]

    def manifest_of(self, finished: Mapping[ShardRange, FinishedShard]) -> Manifest:
        """Return the manifest of finished shards; raise SourceError if all are finished and all are empty."""
        found = [finished[shard] for shard in self.shards if shard in finished]
        skipped = tuple(each for shard in found for each in shard.skipped)
        entries = tuple(shard.entry for shard in found if shard.entry is not None)
        is_complete = len(found) == len(self.cuts) - 1
        if is_complete:
            require_records(self.manifest.made["source"], self.cuts[-1], len(entries), skipped)
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

    def part(self, number: int, count: int) -> list[ShardRange]:
        """Return the consecutive shards that form part `number`, from 1 to `count`."""
        shards = self.shards
        return shards[len(shards) * (number - 1) // count : len(shards) * number // count]

    def manifests(self, finished: Mapping[ShardRange, FinishedShard]) -> dict[str, Manifest]:
        """Return the manifest of each split that has finished shards."""
        splits = {shard.split for shard in finished}
        return {split.name: split.manifest_of(finished) for split in self.splits if split.name in splits}

    def to_json(self) -> str:
        """Return the text from which `from_json` makes the same partition."""
        splits = [(split.name, split.cuts, split.manifest.to_bytes().decode()) for split in self.splits]
        return json.dumps({"parts": self.parts, "splits": splits})

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Partition:
        """Return the partition that `data` holds; raise FormatError at `where` if a manifest is damaged."""
        content = json.loads(data)
        splits = (
            SplitPartition(name, tuple(cuts), Manifest.from_bytes(manifest.encode(), where))
            for name, cuts, manifest in content["splits"]
        )
        return cls(tuple(splits), content["parts"])


def require_records(name: str, listed: int, packed: int, skipped: Sequence[Skipped] = ()) -> None:
    """Raise SourceError if no record of a source can be packed: an empty dataset would look like success."""
    if packed:
        return
    found = "got none"
    if skipped:
        first = f"{skipped[0].key!r}: {skipped[0].reason}"
        found = f"got none that can be packed of {listed:,}; the first, {first}"
    raise SourceError(f"{name}: must have at least one record, {found}: check the source")


# From a small source, only this share of the records is sampled, but at least 8, so that it costs little.
_SAMPLED_SHARE = 1 / 32
_LEAST_SAMPLED = 8


def sampled_for_cuts(count: int) -> list[int]:
    """Return the records of a source that are encoded to predict the sizes of all."""
    sampled = min(SAMPLE_RECORDS, max(_LEAST_SAMPLED, int(_SAMPLED_SHARE * count)))
    return evenly_spaced(count, sampled)


def cuts_of(sizes: npt.NDArray[np.int64], shard_bytes: int) -> list[int]:
    """Return the cuts between shards of about equal size, at most `shard_bytes` on average.

    >>> cuts_of(np.array([40, 40, 40, 40, 40]), 100)
    [0, 2, 5]
    """
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    shards = min(len(sizes), -(-total // shard_bytes))
    inner = np.searchsorted(ends, [total * number // shards for number in range(1, shards)], "right")
    return [0, *sorted({*inner.tolist()} - {0}), len(sizes)]


def predict_sizes(source: Source, measured: dict[int, int]) -> npt.NDArray[np.int64]:
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
    sizes: npt.NDArray[np.int64] = np.maximum(1, np.rint(slope * listed + intercept)).astype(np.int64)
    return sizes
