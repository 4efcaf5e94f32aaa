"""Partition of the records into shards, decided before any of them is packed.

Shards are independent of each other, so any process on any machine can pack any of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fastload.errors import SourceError
from fastload.packing.encoding.assemble import FinishedShard, ShardRange
from fastload.shards.manifest import Manifest, Skipped


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
