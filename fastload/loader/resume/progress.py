"""How far an epoch has come: what a loader and its iterator share, and a state is made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastload.loader.resume.ahead import DrawsAhead

State = dict[str, Any]


class Mark(NamedTuple):
    """How far an iterator has come with one batch.

    Attributes:
        done: How many of its tasks, from the first on, have been handed out.
        beyond: Tasks that have been handed out before an earlier one, where order is not kept.
        worker: The worker that made the batch, where that matters, else -1.
        state: The state of that worker's stateful iterable dataset after it.
    """

    done: int
    beyond: tuple[int, ...] = ()
    worker: int = -1
    state: Any = None


@dataclass(slots=True)
class Progress:
    """How far an epoch has come; shared by a loader and the iterator that it last gave out.

    Attributes:
        epoch: The number of epochs begun before this one.
        start: What its order is drawn from.
        first: How many batches had been handed out before the iterator began.
        skipped: The numbers of further batches that had been, where order is not kept.
        done: How far the iterator has come since: see `Mark`.
        beyond: See `Mark`.
        worker: See `Mark`.
        workers: For a stateful iterable dataset, the state of each worker's copy.
        next_worker: The worker that had the first turn.
        is_begun: Whether it is an epoch that goes on, rather than one that begins.
        is_drawn: Whether the order has been drawn; without workers it is with the first batch.
        is_finished: Whether the epoch's end has been reached.
        draws_seeds: Whether the workers' seeds are drawn before the order.
        users_state: For a loaded one, the `fingerprint()` at the time that it was saved.
        base_seed: The seed that torch's iterator drew for it, or when its workers were started.
        epoch_seed: What its batches and its transforms draw from, once that is settled.
        ahead: What its order draws from generators, where that is to be taken back.
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

    def note(self, mark: Mark) -> None:
        """Takes note of a batch that has been handed out."""
        self.done, self.beyond, self.worker, _ = mark
        if mark.state is not None:
            self.workers[mark.worker] = mark.state

    def rebase(self, position: int, done: int) -> None:
        """Counts an iterator's tasks from another one on: others have handed out batches in between.

        Args:
            position: How many batches of the epoch have been handed out, all up to there.
            done: How many tasks of the iterator have been.
        """
        self.skipped = tuple(number for number in self.skipped if number >= position)
        self.first, self.done, self.beyond = position - done, done, ()

    def note_draw(self, start: State) -> None:
        """Takes note that the order is drawn now, the workers' seeds having been drawn before."""
        self.start = start
        self.draws_seeds = False
        self.is_drawn = True

    @property
    def position(self) -> int:
        """How many batches have been handed out, from the epoch's start up to the first that has not."""
        return self._number(self.done)

    @property
    def early(self) -> list[int]:
        """The numbers of batches that have been handed out beyond `position`."""
        position = self.position
        beyond = {self._number(task) for task in self.beyond}
        return sorted(beyond.union(number for number in self.skipped if number > position))

    def _number(self, task: int) -> int:
        """The number in the epoch of an iterator's task: those skipped were never tasks."""
        number = self.first + task
        for skipped in sorted(self.skipped):
            number += skipped <= number
        return number


class SkippingSampler:
    """An index sampler without what has been handed out already.

    Args:
        sampler: The sampler of an epoch's batches.
        progress: What to leave out: the ones before `first`, and the `skipped` ones.
    """

    def __init__(self, sampler: Any, progress: Progress) -> None:
        self._sampler = sampler
        self._first = progress.first
        self._skipped = frozenset(progress.skipped)

    def __iter__(self) -> Iterator[Any]:
        # No generator function: a sampler that draws when it is asked for an iterator is to do so at once.
        return (
            indices
            for number, indices in enumerate(self._sampler)
            if number >= self._first and number not in self._skipped
        )

    def __len__(self) -> int:
        return len(self._sampler)

    def numbers(self) -> Iterator[int]:
        """The numbers in the epoch of the batches that are left, and on without end."""
        return (number for number in itertools.count(self._first) if number not in self._skipped)
