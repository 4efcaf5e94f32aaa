"""What samplers draw from generators for batches that have not been handed out yet.

Workers are told ahead what to load, and a loader that decides by itself does that by measured times. How far
ahead it was when an epoch is broken off must not show in the next one's order. So then the generators are
put back to where the batches that were handed out had brought them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

States = list[torch.Tensor]

_END = object()


class _Draw(NamedTuple):
    """The number of the batch that was drawn for, and the generators' states before and after."""

    number: int
    before: States
    after: States


class DrawsAhead:
    """Draws an epoch's order, and remembers what that changed in generators (7 µs a batch).

    Args:
        generators: Those of the loader and its samplers.
        position: Gives the number of batches that have been handed out.
    """

    def __init__(self, generators: list[torch.Generator], position: Callable[[], int]) -> None:
        self._generators = generators
        self._position = position
        self._draws: deque[_Draw] = deque()

    def watch(self, order: Iterator[Any], numbers: Iterator[int]) -> Iterator[Any]:
        """Gives an order's batches, which have these numbers in the epoch."""
        is_first = True
        for number in numbers:
            before = self._states()
            batch = next(order, _END)
            # An order is drawn for the epoch's first batch, also where that was handed out before a resume.
            self._note(0 if is_first else number, before)
            is_first = False
            if batch is _END:
                return
            yield batch

    def take_back(self) -> None:
        """Puts the generators back to before what was drawn ahead, unless others have drawn since."""
        position = self._position()
        ahead = [draw for draw in self._draws if draw.number >= position]
        self._draws.clear()
        if ahead and _are_same(ahead[-1].after, self._states()):
            for generator, state in zip(self._generators, ahead[0].before, strict=True):
                generator.set_state(state)

    def _states(self) -> States:
        return [generator.get_state() for generator in self._generators]

    def _note(self, number: int, before: States) -> None:
        after = self._states()
        if _are_same(before, after):
            return
        if self._draws and not _are_same(self._draws[-1].after, before):
            self._draws.clear()  # others have drawn in between, and theirs stays drawn
        while self._draws and self._draws[0].number < self._position():
            self._draws.popleft()
        self._draws.append(_Draw(number, before, after))


def _are_same(states: States, others: States) -> bool:
    return all(map(torch.equal, states, others))
