"""Progress of an epoch, shared by a loader and its iterator: the content of a loader's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastload.loader._resume.ahead import DrawsAhead

State = dict[str, Any]


class Position(NamedTuple):
    """An iterator's position after a batch.

    Attributes:
        done: The number of its tasks, from the first on without a gap, whose batches have been handed out.
        beyond: Later tasks whose batches have been handed out, if order is not kept.
        worker: The worker that made the batch, for a stateful iterable dataset; else -1.
        state: The state of that worker's dataset after the batch.
    """

    done: int
    beyond: tuple[int, ...] = ()
    worker: int = -1
    state: Any = None


@dataclass(slots=True)
class Progress:
    """Progress of an epoch.

    Attributes:
        epoch: The number of epochs begun before this one.
        start: The random states that its order is drawn from.
        first: The number of batches handed out before the iterator began.
        skipped: Numbers of later batches handed out before it began, if order was not kept.
        done: See `Position`, as for `beyond` and `worker`.
        workers: The state of each worker's copy of a stateful iterable dataset.
        next_worker: The worker that has the first turn.
        is_begun: Whether the epoch continues; else it starts.
        is_drawn: Whether the order has been drawn; without workers that happens with the first batch.
        is_finished: Whether the epoch has reached its end.
        draws_seeds: Whether the workers' seeds are drawn before the order.
        users_state: In a loaded state, the `fingerprint()` at the time of saving.
        base_seed: torch's base seed of the epoch or, for persistent workers, of their first one.
        epoch_seed: The seed of the epoch's batches and transforms, once known.
        ahead: Draws that are taken back if the epoch is left early; None: none are.
    """

    epoch: int
    start: State
    first: int = 0
    skipped: tuple[int, ...] = ()
    done: int = 0
    beyond: tuple[int, ...] = ()
    worker: int = -1
    workers: dict[int, Any] = field(default_factory=dict)
    next_worker: int = 0
    is_begun: bool = True
    is_drawn: bool = True
    is_finished: bool = False
    draws_seeds: bool = True
    users_state: int | None = None
    base_seed: int | None = None
    epoch_seed: int | None = None
    ahead: DrawsAhead | None = None

    def note(self, position: Position) -> None:
        """Record the position after a batch that has been handed out."""
        self.done, self.beyond, self.worker, _ = position
        if position.state is not None:
            self.workers[position.worker] = position.state

    def rebase(self, position: int, done: int) -> None:
        """Count tasks of an iterator whose first `done` ones end at `position` in the epoch.

        Other iterators have handed out batches in between.
        """
        self.skipped = tuple(number for number in self.skipped if number >= position)
        self.first, self.done, self.beyond = position - done, done, ()

    def note_draw(self, start: State) -> None:
        """Record that the order is drawn now, after the workers' seeds."""
        self.start = start
        self.draws_seeds = False
        self.is_drawn = True

    @property
    def position(self) -> int:
        """The number of the first batch in the epoch that has not been handed out."""
        return self._number(self.done)

    @property
    def early(self) -> list[int]:
        """The numbers of later batches that have been handed out."""
        position = self.position
        beyond = {self._number(task) for task in self.beyond}
        return sorted(beyond.union(number for number in self.skipped if number > position))

    def _number(self, task: int) -> int:
        """Return the number in the epoch of an iterator's task: skipped batches were no tasks."""
        number = self.first + task
        for skipped in sorted(self.skipped):
            number += skipped <= number
        return number
