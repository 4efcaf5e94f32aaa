"""Protection of slots that forked children still see: they are freed only after the children have ended.

A forked child shares the memory of every batch that its parent held. If the parent drops such a batch, its
slot must not be freed, or a worker would overwrite the child's batch. So a fork while batches are held
creates a pipe, whose writing end the child and its own children inherit. Once the reading end reports a
hang-up, all of them have ended (or run another program).
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class Descendants:
    """The processes that one fork has led to: the child and its own children.

    `end` is the reading end of their pipe; None if no descriptor was left for one: they then never count as
    ended.
    """

    def __init__(self, end: int | None) -> None:
        self._end = end

    def have_ended(self) -> bool:
        if self._end is None:
            return False
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(0))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._end is not None:
            close(self._end)


class _Forking(threading.local):
    """A fork in progress; several threads may fork at the same time."""

    is_watched = False
    pipe: tuple[int, int] | None = None


_forking = _Forking()


class Loan(weakref.ref[NDArray[np.uint8]]):
    """A weak reference to a held slot's bytes, with its flag and the forked processes that see them."""

    __slots__ = ("flag", "seen_by")
    flag: int
    seen_by: list[Descendants]


def watch(loans: Callable[[], list[Loan]], forget: Callable[[], None]) -> None:
    """Watch the forks of this process: `loans` returns those of slots that a child would see.

    `forget` is called in the child after any fork: its parent's slots are not its own.
    """

    def before() -> None:
        _forking.is_watched, _forking.pipe = bool(loans()), None
        if _forking.is_watched:
            with contextlib.suppress(OSError):  # no descriptors left
                _forking.pipe = os.pipe()

    def in_parent() -> None:
        if not _forking.is_watched:
            return
        end = None
        if _forking.pipe is not None:
            end, writing = _forking.pipe
            os.close(writing)
        descendants = Descendants(end)
        for loan in loans():
            loan.seen_by.append(descendants)

    def in_child() -> None:
        # The writing end stays open on purpose: it shows the parent that this process is alive.
        if _forking.pipe is not None:
            os.close(_forking.pipe[0])
        forget()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
