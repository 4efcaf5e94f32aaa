"""Parts of an epoch's progress: the batches handed out, and the states of the dataset's copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Position(NamedTuple):
    """An iterator's position after a batch.

    Attributes:
        done: The number of its first tasks, without a gap, whose batches have been handed out.
        beyond: Later tasks whose batches have been handed out, if order is not kept.
        worker: The worker that made the batch, for a stateful dataset; else -1.
        state: The state of that worker's dataset after the batch.
    """

    done: int
    beyond: tuple[int, ...] = ()
    worker: int = -1
    state: Any = None


@dataclass(slots=True)
class HandedOut:
    """The batches of an epoch that have been handed out; its iterators keep it up to date.

    Attributes:
        first: The number of batches handed out before the iterator began.
        skipped: Numbers of later batches handed out before it began, if order was not kept.
        done, beyond: See `Position`.
    """

    first: int = 0
    skipped: tuple[int, ...] = ()
    done: int = 0
    beyond: tuple[int, ...] = ()

    @property
    def position(self) -> int:
        """The number of the first batch in the epoch that has not been handed out."""
        return self._number(self.done)

    def early(self) -> list[int]:
        """Return the numbers of later batches that have been handed out."""
        numbers = {self._number(task) for task in self.beyond}
        return sorted(numbers.union(number for number in self.skipped if number > self.position))

    def rebase(self, position: int, done: int) -> None:
        """Continue with an iterator whose first `done` tasks end at `position` in the epoch.

        Other iterators have handed out batches in between.
        """
        self.skipped = tuple(number for number in self.skipped if number >= position)
        self.first, self.done, self.beyond = position - done, done, ()

    def _number(self, task: int) -> int:
        """Return the number in the epoch of an iterator's task: skipped batches have no task."""
        number = self.first + task
        for skipped in sorted(self.skipped):
            number += skipped <= number
        return number


@dataclass(slots=True)
class DatasetProgress:
    """The states of a stateful dataset and its copies in workers.

    Attributes:
        worker: The worker that made the latest batch; -1: none, or unknown.
        workers: The state of each worker's copy.
        ends: The same at the end of the epoch, if the workers stay.
        own: The state of this process's iterable dataset before the epoch; None if it has none.
        state: Returns the state of an iterable dataset that is read in this process.
        is_restored: True if the dataset has got its state at the end of an epoch.
        next_worker: The worker that has the first turn.
    """

    worker: int = -1
    workers: dict[int, Any] = field(default_factory=dict)
    ends: dict[int, Any] = field(default_factory=dict)
    own: Any = None
    state: Callable[[], Any] | None = None
    is_restored: bool = False
    next_worker: int = 0

    def stored(self, num_workers: int, has_moved: bool) -> dict[str, Any]:
        """Return their part of a loader's state; `has_moved` if a batch has been handed out."""
        workers = dict(self.workers)
        if self.state is not None and has_moved and (own := self.state()):
            workers = {0: own}
        if not workers:
            return {}
        following = self.next_worker if self.worker < 0 else (self.worker + 1) % max(1, num_workers)
        return {"workers": workers, "next_worker": following}
