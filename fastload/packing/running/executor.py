"""Protocol of the executors of a job, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fastload.packing.encoding.assemble import FinishedShard, ShardRange
from fastload.packing.encoding.chunk import Recipe
from fastload.packing.staging.journal import Journal

Report = Callable[[int, int, int], None]
"""Called with the numbers of records packed, bytes read and bytes stored since the last call."""


class Executor(Protocol):
    """Executor of a job: it encodes records and packs shards, whose bytes depend only on the recipe."""

    def measure(self, recipe: Recipe, indices: Sequence[int], journal: Journal) -> dict[int, int]:
        """Return the stored size of records by index, without those that cannot be packed."""

    def pack(
        self, recipe: Recipe, shards: Sequence[ShardRange], journal: Journal, report: Report
    ) -> dict[ShardRange, FinishedShard]:
        """Pack shards of one split, and add each to the journal when it is finished."""
