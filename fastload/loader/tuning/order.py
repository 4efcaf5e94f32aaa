"""The order of an epoch whose way of loading may change: who has been sent what of it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any


class Order:
    """The rest of an epoch's order, with those indices that workers have been sent and still owe.

    Args:
        rest: What nobody has drawn yet.

    Attributes:
        rest: See above.
        sent: What workers owe, in order.
        is_drawn: Whether workers have seen its end. From then on they hand out what lies ready, faster than
            they could go on.
    """

    def __init__(self, rest: Iterator[Any]) -> None:
        self.rest = rest
        self.sent: deque[Any] = deque()
        self.is_drawn = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            index = next(self.rest)
        except StopIteration:
            self.is_drawn = True
            raise
        self.sent.append(index)
        return index

    def draw_first(self) -> None:
        """Draws what the sampler draws at the epoch's beginning."""
        self.rest = itertools.chain(list(itertools.islice(self.rest, 1)), self.rest)

    def take_back_first(self) -> None:
        """Makes the first indices that are owed the next ones to be drawn."""
        self.rest = itertools.chain([self.sent.popleft()], self.rest)

    def take_back(self) -> None:
        """Makes all indices that are owed the next ones to be drawn."""
        self.rest = itertools.chain(list(self.sent), self.rest)
        self.sent.clear()
