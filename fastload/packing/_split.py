"""Packing of one split: the order of encoding, the exchange with the workers, and the finished shards."""

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

# Runs aim at this size and time: large enough that messages cost nothing beside them, small enough that
# progress is smooth and memory bounded.
_RUN_BYTES = 8 << 20
_RUN_SECONDS = 0.25
_FIRST_RUN = 16


class SplitPacker:
    """Packer of one split, behind the shards that an interrupted packing finished.

    Attributes:
        finished: The finished shards.
        resumed: The number of source records that were dealt with before this run.
        failures: After `run`, the failures among all records.
    """

    def __init__(self, split: str, recipe: Recipe, options: PackOptions, staging: Staging) -> None:
        self._split = split
        self._recipe = recipe
        self._staging = staging
        self.finished = staging.resume(split)
        self.resumed = self.finished[-1].next_index if self.finished else 0
        self.failures: list[Failure] = []
        self._assembler = Assembler(
            staging.folder(split),
            staging.drafts,
            recipe.fields,
            writer_for(options.format),
            options.shard_bytes,
            len(self.finished),
            _meaning(split, recipe),
        )

    def run(self, worker_count: int, on_written: Callable[[Chunk], None]) -> None:
        """Pack the rest of the records; raise SourceError if none of all can be packed."""
        source = self._recipe.source
        count = min(worker_count, len(source) - self.resumed)
        pool = WorkerPool(self._recipe, count, self._staging.drafts)
        try:
            self._exchange(pool, on_written)
        finally:
            pool.close()
        self.failures = [failure for shard in self.finished for failure in shard.failures]
        self.failures += self._assembler.take_failures(len(source))
        require_records(source, len(source) - sum(not each.is_kept for each in self.failures), self.failures)

    def _exchange(self, pool: WorkerPool, on_written: Callable[[Chunk], None]) -> None:
        """Give tasks to the workers, and place their chunks in order, until all shards are finished."""
        position, end = self.resumed, len(self._recipe.source)
        schedule = Schedule(position, end, pool.count)
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
                        pool.write(WriteTask(chunk.start, self._assembler.place(chunk)))
                        position = chunk.stop
                else:
                    on_written(placed.pop(event.start))
                    self._finish(self._assembler.written(event.start))
        self._finish(self._assembler.end(end))

    def _finish(self, shards: Sequence[FinishedShard]) -> None:
        for shard in shards:
            self._staging.note_finished(self._split, len(self.finished), shard)
            self.finished.append(shard)


def require_records(source: Source, records: int, failures: Sequence[Failure] = ()) -> None:
    """Raise SourceError if no record of a source can be packed: an empty dataset looks like success."""
    if records:
        return
    found = "got none"
    if failures:
        first = f"{failures[0].key!r}: {failures[0].reason}"
        found = f"got none that can be packed of {len(source):,}; the first, {first}"
    raise SourceError(f"{source.name}: must have at least one record, {found}: check the source")


def _meaning(split: str, recipe: Recipe) -> bytes:
    """Return a description of a split's records, the same whenever and wherever they are packed."""
    fields = [field.to_json() for field in recipe.fields]
    return json.dumps([split, fields, list(recipe.source.classes)]).encode()


class Schedule:
    """Hands out the records `begin` … `end - 1` in runs, lowest first, every record exactly once."""

    def __init__(self, begin: int, end: int, workers: int) -> None:
        self._cursor = begin
        self._end = end
        self._workers = workers
        self._returned: list[tuple[int, int]] = []
        self._records = 0
        self._bytes = 0
        self._seconds = 0.0

    def take(self) -> tuple[int, int] | None:
        """Return the next run, [begin, end); None if nothing is left."""
        if self._returned:
            return heapq.heappop(self._returned)
        if self._cursor == self._end:
            return None
        begin = self._cursor
        self._cursor = min(self._end, begin + self._run_length())
        return begin, self._cursor

    def give_back(self, begin: int, end: int) -> None:
        """Take back the rest of a run that a worker left because its chunk grew too large."""
        if begin < end:
            heapq.heappush(self._returned, (begin, end))

    def learn(self, records: int, size_bytes: int, seconds: float) -> None:
        """Note the cost of a run."""
        self._records += records
        self._bytes += size_bytes
        self._seconds += seconds

    def _run_length(self) -> int:
        if self._records == 0:
            return _FIRST_RUN
        by_bytes = _RUN_BYTES * self._records // max(self._bytes, 1)
        by_time = int(_RUN_SECONDS * self._records / max(self._seconds, 1e-9))
        # A share of the rest keeps all workers busy to the end.
        by_share = (self._end - self._cursor) // (3 * self._workers)
        return max(1, min(by_bytes, by_time, by_share))
