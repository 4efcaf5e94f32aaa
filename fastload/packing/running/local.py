"""Packing on this machine: the schedule of encoding, and the exchange with the worker processes."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from fastload.packing.encoding.assemble import FinishedShard, ShardDraft, ShardRange, cuts_of, predict_sizes
from fastload.packing.encoding.chunk import Chunk, Recipe, WriteTask
from fastload.packing.options import SAMPLE_RECORDS
from fastload.packing.running.workers import RecordRange, WorkerPool
from fastload.packing.staging.staging import Journal
from fastload.sources.protocol import evenly_spaced

Report = Callable[[int, int, int], None]
"""Called with the numbers of records packed, bytes read and bytes stored since the last call."""

Executor = Callable[[Recipe, Sequence[ShardRange], Journal, Report], dict[ShardRange, FinishedShard]]
"""Packs shards of one split, whose bytes depend only on the recipe, and adds each to the journal."""

# Target size and time of a run, the records that a worker encodes in one task: large enough that messages
# cost little in comparison, small enough that progress is smooth and memory use bounded.
_RUN_BYTES = 8 << 20
_RUN_SECONDS = 0.25
_FIRST_RUN = 16

# From a small source, only this share of the records is sampled, but at least 8, so that it costs little.
_SAMPLED_SHARE = 1 / 32
_LEAST_SAMPLED = 8


def cut(workers: int, recipe: Recipe, shard_bytes: int, journal: Journal) -> list[int]:
    """Return the first record of each shard and the end of the last, by the sizes of some encoded records."""
    source, measured = recipe.source, dict[int, int]()
    count = min(SAMPLE_RECORDS, max(_LEAST_SAMPLED, int(_SAMPLED_SHARE * len(source))))
    runs = [(index, index + 1) for index in evenly_spaced(len(source), count)]
    # Packing raises the errors instead, so that they name the first record that cannot be packed.
    tolerant = replace(recipe, options=replace(recipe.options, on_error="skip"))

    def place(chunk: Chunk) -> list[WriteTask]:
        measured.update(chunk.stored_bytes())
        return [WriteTask(chunk.start, scratch, 0)]

    count = min(workers, len(runs))
    with journal.drafts() as folder, WorkerPool(tolerant, count, folder) as pool:
        scratch = folder / "measured.payload"
        scratch.touch()
        exchange(pool, Schedule(runs, count), place, lambda start: None)
    return cuts_of(predict_sizes(source, dict(sorted(measured.items()))), shard_bytes)


def pack_here(
    workers: int, recipe: Recipe, shards: Sequence[ShardRange], journal: Journal, report: Report
) -> dict[ShardRange, FinishedShard]:
    """Pack shards with all workers at once, a chunk of records each; an `Executor` for bound `workers`."""
    begins = [shard.begin for shard in shards]
    runs = [(shard.begin, shard.end) for shard in shards]
    drafts: dict[ShardRange, ShardDraft] = {}
    packed: dict[ShardRange, FinishedShard] = {}

    def shard_of(record: int) -> ShardRange:
        return shards[bisect_right(begins, record) - 1]

    def place(chunk: Chunk) -> list[WriteTask]:
        shard = shard_of(chunk.start)
        if shard not in drafts:
            drafts[shard] = ShardDraft(shard, recipe, folder)
        return drafts[shard].add(chunk)

    def written(start: int) -> None:
        shard = shard_of(start)
        chunk = drafts[shard].written(start)
        report(chunk.stop - chunk.start, chunk.read_bytes, chunk.size_bytes)
        if drafts[shard].is_complete:
            draft = drafts.pop(shard)
            packed[shard] = draft.finish()
            journal.add(shard, packed[shard], draft.path)

    count = min(workers, sum(end - begin for begin, end in runs))
    with journal.drafts() as folder, WorkerPool(recipe, count, folder) as pool:
        exchange(pool, Schedule(runs, count), place, written)
    return packed


def exchange(
    pool: WorkerPool,
    schedule: Schedule,
    place: Callable[[Chunk], Sequence[WriteTask]],
    written: Callable[[int], None],
) -> None:
    """Let the workers encode all records of a schedule, and write each chunk's payload to its place.

    `place` takes an encoded chunk and returns tasks for all chunks whose place is now known; `written` is
    called with the start of each chunk whose payload has been written.
    """
    run_ends: dict[int, int] = {}
    while True:
        while pool.has_room() and (run := schedule.take()) is not None:
            run_ends[run[0]] = run[1]
            pool.encode(run)
        if pool.is_idle():
            return
        for event in pool.events():
            if isinstance(event, Chunk):
                schedule.give_back(event.stop, run_ends.pop(event.start))
                schedule.learn(event.stop - event.start, event.size_bytes, event.seconds)
                for task in place(event):
                    pool.write(task)
            else:
                written(event)


class Schedule:
    """Schedule that divides ascending ranges of records, [begin, end), into runs, lowest first."""

    def __init__(self, ranges: Sequence[RecordRange], workers: int) -> None:
        self._ranges = [*ranges]  # ascending, and therefore a heap
        self._left = sum(end - begin for begin, end in ranges)
        self._workers = workers
        self._records = 0
        self._bytes = 0
        self._seconds = 0.0

    def take(self) -> RecordRange | None:
        """Return the next run, [begin, end), which lies within one range; None if nothing is left."""
        if not self._ranges:
            return None
        begin, range_end = heapq.heappop(self._ranges)
        end = min(range_end, begin + self._run_length())
        self._left -= range_end - begin
        self.give_back(end, range_end)
        return begin, end

    def give_back(self, begin: int, end: int) -> None:
        """Take back the rest of a run whose chunk ended early because it grew too large."""
        if begin < end:
            heapq.heappush(self._ranges, (begin, end))
            self._left += end - begin

    def learn(self, records: int, size_bytes: int, seconds: float) -> None:
        """Record the cost of encoded records, from which the length of later runs follows."""
        self._records += records
        self._bytes += size_bytes
        self._seconds += seconds

    def _run_length(self) -> int:
        if self._records == 0:
            return _FIRST_RUN
        by_bytes = _RUN_BYTES * self._records // max(self._bytes, 1)
        by_time = int(_RUN_SECONDS * self._records / max(self._seconds, 1e-9))
        # A fraction of the remaining records, so that all workers stay busy to the end.
        by_share = self._left // (3 * self._workers)
        return max(1, min(by_bytes, by_time, by_share))
