"""Packing on this machine, in worker processes, and the sizes of shards by some records that these encode."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from fastload.images.formats import MOST_BYTES
from fastload.packing.encoding.assemble import FinishedShard, ShardDraft, ShardRange, cuts_of, predict_sizes
from fastload.packing.encoding.chunk import Chunk, Recipe, WriteTask
from fastload.packing.encoding.options import SAMPLE_RECORDS
from fastload.packing.running.workers import Schedule, WorkerPool
from fastload.packing.staging.staging import Journal
from fastload.sources.protocol import evenly_spaced

Report = Callable[[int, int, int], None]
"""Called with the numbers of records packed, bytes read and bytes stored since the last call."""

Executor = Callable[
    [Recipe, Sequence[ShardRange], Journal, Report], Iterator[tuple[ShardRange, FinishedShard]]
]
"""Packs shards of one split, whose bytes depend only on the recipe; yields each once the journal has it."""

# From a small source, only this share of the records is sampled, but at least 8, so that it costs little.
_SAMPLED_SHARE = 1 / 32
_LEAST_SAMPLED = 8


def cut(workers: int, recipe: Recipe, journal: Journal) -> tuple[list[int], list[int]]:
    """Return the cuts between shards, see `cuts_of`, and the size of each shard in bytes.

    Both follow from the sizes of some encoded records.
    """
    source, measured = recipe.source, dict[int, int]()
    count = min(SAMPLE_RECORDS, max(_LEAST_SAMPLED, int(_SAMPLED_SHARE * len(source))))
    runs = [(index, index + 1) for index in evenly_spaced(len(source), count)]
    # Packing raises the errors instead, so that they name the first record that cannot be packed.
    tolerant = replace(recipe, options=replace(recipe.options, on_error="skip"))
    count = min(workers, len(runs))
    with journal.drafts() as folder, WorkerPool(tolerant, count, folder, journal.place.disk) as pool:
        scratch = folder / "measured.payload"
        scratch.touch()
        for event in pool.events(Schedule(runs, count)):
            if isinstance(event, Chunk):
                measured.update(event.stored_bytes())
                pool.write(WriteTask(event.start, scratch, 0))
    sizes = predict_sizes(source, dict(sorted(measured.items())))
    cuts = cuts_of(sizes, recipe.options.shard_bytes)
    # Larger files are no images that can be packed.
    return cuts, np.add.reduceat(np.where(sizes > MOST_BYTES, 0, sizes), cuts[:-1]).tolist()


def pack_here(
    workers: int, recipe: Recipe, shards: Sequence[ShardRange], journal: Journal, report: Report
) -> Iterator[tuple[ShardRange, FinishedShard]]:
    """Pack shards with all workers at once, a chunk of records each; an `Executor` for bound `workers`."""
    begins = [shard.begin for shard in shards]
    runs = [(shard.begin, shard.end) for shard in shards]
    drafts: dict[ShardRange, ShardDraft] = {}
    count = min(workers, sum(end - begin for begin, end in runs))
    with journal.drafts() as folder, WorkerPool(recipe, count, folder, journal.place.disk) as pool:
        for event in pool.events(Schedule(runs, count)):
            start = event.start if isinstance(event, Chunk) else event
            shard = shards[bisect_right(begins, start) - 1]
            if shard not in drafts:
                drafts[shard] = ShardDraft(shard, recipe, folder)
            draft = drafts[shard]
            if isinstance(event, Chunk):
                for task in draft.add(event):
                    pool.write(task)
                continue
            chunk = draft.written(event)
            report(chunk.stop - chunk.start, chunk.read_bytes, chunk.size_bytes)
            if draft.is_complete:
                finished = draft.finish()
                journal.add(shard, finished, draft.path)
                del drafts[shard]
                yield shard, finished
