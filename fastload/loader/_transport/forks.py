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
from collections.abc import Callable, Sequence
from typing import Protocol


class Descendants:
    """The processes that one fork has led to: the child and its own children.

    `end` is the reading end of their pipe; None if there was no descriptor for one: then they count as alive
    for ever.
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


class Held(Protocol):
    """A slot of a batch that is held; `seen_by` are the processes that must end before it is freed."""

    seen_by: list[Descendants]


def watch(held: Callable[[], Sequence[Held]], forget: Callable[[], None]) -> None:
    """Watch the forks of this process: `held` returns the slots that a child would see.

    `forget` is called in the child after any fork: its parent's slots are not its own.
    """

    def before() -> None:
        _forking.is_watched, _forking.pipe = bool(held()), None
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
        for slot in held():
            slot.seen_by.append(descendants)

    def in_child() -> None:
        # The writing end stays open on purpose: it shows the parent that this process is alive.
        if _forking.pipe is not None:
            os.close(_forking.pipe[0])
        forget()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
