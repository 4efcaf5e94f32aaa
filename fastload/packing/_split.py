"""Packing of one split: the schedule of encoding, the exchange with the workers, and the finished shards."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence

from fastload.errors import SourceError
from fastload.packing._assemble import Assembler, FinishedShard
from fastload.packing._chunk import Chunk, Failure, Recipe
from fastload.packing._options import PackOptions
from fastload.packing._staging import Staging
from fastload.packing._workers import EncodeTask, WorkerPool, WriteTask
from fastload.shards.shard import writer_for
from fastload.sources import Source

# A run, the records that a worker encodes at once, aims at this size and time: large enough that messages
# cost little in comparison, small enough that progress is smooth and memory bounded.
_RUN_BYTES = 8 << 20
_RUN_SECONDS = 0.25
_FIRST_RUN = 16


def pack_split(
    split: str,
    recipe: Recipe,
    finished: list[FinishedShard],
    options: PackOptions,
    staging: Staging,
    worker_count: int,
    on_written: Callable[[Chunk], None],
) -> list[Failure]:
    """Pack the records of a split that follow its finished shards, and add new shards to these.

    Returns the failures among all records; raises SourceError if none can be packed.
    """
    source = recipe.source
    position = finished[-1].next_index if finished else 0
    assembler = Assembler(
        staging.folder(split),
        staging.drafts,
        recipe.fields,
        writer_for(options.format),
        options.shard_bytes,
        len(finished),
        # The same whenever and wherever the split is packed.
        json.dumps([split, [field.to_json() for field in recipe.fields], [*source.classes]]).encode(),
    )

    def note(shards: Sequence[FinishedShard]) -> None:
        for shard in shards:
            staging.note_finished(split, len(finished), shard)
            finished.append(shard)

    pool = WorkerPool(recipe, min(worker_count, len(source) - position), staging.drafts)
    try:
        _exchange(pool, assembler, Schedule(position, len(source), pool.count), on_written, note)
    finally:
        pool.close()
    note(assembler.end(len(source)))
    failures = [failure for shard in finished for failure in shard.failures]
    failures += assembler.take_failures(len(source))
    require_records(source, len(source) - sum(not each.is_kept for each in failures), failures)
    return failures


def _exchange(
    pool: WorkerPool,
    assembler: Assembler,
    schedule: Schedule,
    on_written: Callable[[Chunk], None],
    note: Callable[[Sequence[FinishedShard]], None],
) -> None:
    """Give tasks to the workers, and assign their chunks in order, until all records are written."""
    position, end = schedule.begin, schedule.end
    run_ends: dict[int, int] = {}
    encoded: dict[int, Chunk] = {}
    placed: dict[int, Chunk] = {}
    while position < end or placed:
        while pool.has_room() and (run := schedule.take()) is not None:
            run_ends[run[0]] = run[1]
            pool.encode(EncodeTask(*run))
        for event in pool.events():
            if isinstance(event, Chunk):
                schedule.give_back(event.stop, run_ends.pop(event.start))
                schedule.learn(event.stop - event.start, int(event.sizes.sum()), event.seconds)
                encoded[event.start] = event
                while (chunk := encoded.pop(position, None)) is not None:
                    placed[chunk.start] = chunk
                    pool.write(WriteTask(chunk.start, assembler.place(chunk)))
                    position = chunk.stop
            else:
                on_written(placed.pop(event.start))
                note(assembler.written(event.start))


def require_records(source: Source, records: int, failures: Sequence[Failure] = ()) -> None:
    """Raise SourceError if no record of a source can be packed: an empty dataset looks like success."""
    if records:
        return
    found = "got none"
    if failures:
        first = f"{failures[0].key!r}: {failures[0].reason}"
        found = f"got none that can be packed of {len(source):,}; the first, {first}"
    raise SourceError(f"{source.name}: must have at least one record, {found}: check the source")


class Schedule:
    """Hands out the records `begin` … `end - 1` in runs, lowest first, every record exactly once."""

    def __init__(self, begin: int, end: int, workers: int) -> None:
        self.begin = self._cursor = begin
        self.end = end
        self._workers = workers
        self._returned: list[tuple[int, int]] = []
        self._records = 0
        self._bytes = 0
        self._seconds = 0.0

    def take(self) -> tuple[int, int] | None:
        """Return the next run, [begin, end); None if nothing is left."""
        if self._returned:
            return heapq.heappop(self._returned)
        if self._cursor == self.end:
            return None
        begin = self._cursor
        self._cursor = min(self.end, begin + self._run_length())
        return begin, self._cursor

    def give_back(self, begin: int, end: int) -> None:
        """Take back the rest of a run that a worker left because its chunk grew too large."""
        if begin < end:
            heapq.heappush(self._returned, (begin, end))

    def learn(self, records: int, size_bytes: int, seconds: float) -> None:
        """Record the cost of a run."""
        self._records += records
        self._bytes += size_bytes
        self._seconds += seconds

    def _run_length(self) -> int:
        if self._records == 0:
            return _FIRST_RUN
        by_bytes = _RUN_BYTES * self._records // max(self._bytes, 1)
        by_time = int(_RUN_SECONDS * self._records / max(self._seconds, 1e-9))
        # A fraction of the rest, so that all workers stay busy to the end.
        by_share = (self.end - self._cursor) // (3 * self._workers)
        return max(1, min(by_bytes, by_time, by_share))
