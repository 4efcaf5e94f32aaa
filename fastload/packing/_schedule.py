"""Order of encoding: long runs of records at first, short ones towards the end."""

from __future__ import annotations

import heapq

# Runs aim at this size and time: large enough that messages cost nothing beside them, small enough that
# progress is smooth and memory bounded.
_RUN_BYTES = 8 << 20
_RUN_SECONDS = 0.25
_FIRST_RUN = 16


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
