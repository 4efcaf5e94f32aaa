"""The exchange between the main process and its workers while a split is packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastload.packing.assemble import Assembler, FinishedShard
from fastload.packing.payload import Stretch
from fastload.packing.piece import Piece
from fastload.packing.schedule import Schedule
from fastload.packing.workers import Encode, Encoded, Place, WorkerPool


class Flow:
    """The exchange with the workers over one split: pieces out, places back, shards at the end.

    Args:
        pool: The workers.
        assembler: Puts pieces into shards.
        begin: The first source record to pack.
        end: One past the last.
        on_written: Called with every piece whose payload is written, where, and with which checksums.
        on_finished: Called with every shard that is finished.
    """

    def __init__(
        self,
        pool: WorkerPool,
        assembler: Assembler,
        begin: int,
        end: int,
        on_written: Callable[[Piece, Sequence[Stretch], Sequence[int]], None],
        on_finished: Callable[[FinishedShard], None],
    ) -> None:
        self._pool = pool
        self._assembler = assembler
        self._schedule = Schedule(begin, end, pool.count)
        self._position = begin
        self._end = end
        self._run_ends: dict[int, int] = {}
        self._ready: dict[int, Piece] = {}
        self._placed: dict[int, tuple[Piece, Sequence[Stretch]]] = {}
        self._on_written = on_written
        self._on_finished = on_finished

    def run(self) -> None:
        """Packs every record; returns when all shards are finished."""
        while self._position < self._end or self._placed:
            self._hand_out()
            for event in self._pool.events():
                if isinstance(event, Encoded):
                    self._take(event.piece)
                else:
                    self._on_written(*self._placed.pop(event.number), event.crcs)
                    self._report(self._assembler.written(event.number))
        self._report(self._assembler.end(self._end))

    def _hand_out(self) -> None:
        while self._pool.has_room() and (run := self._schedule.take()) is not None:
            self._run_ends[run[0]] = run[1]
            self._pool.encode(Encode(run[0], *run))

    def _take(self, piece: Piece) -> None:
        """Takes an encoded piece; places it and whatever follows it, once its turn has come."""
        self._schedule.give_back(piece.stop, self._run_ends.pop(piece.start))
        self._schedule.learn(piece.stop - piece.start, int(piece.sizes.sum()), piece.seconds)
        self._ready[piece.start] = piece
        while (following := self._ready.pop(self._position, None)) is not None:
            stretches = self._assembler.place(following.start, following)
            self._placed[following.start] = following, stretches
            self._pool.place(Place(following.start, stretches))
            self._position = following.stop

    def _report(self, shards: Sequence[FinishedShard]) -> None:
        for shard in shards:
            self._on_finished(shard)
