"""Forked children: a slot that one of them may still look at is not freed before it has ended.

A forked child has every batch that its parent held, in memory that both share. The parent's letting go
must not free such a slot: a worker would write into what the child sees. So each fork in which
something was held leaves a pipe of which the child, and whatever it forks, has the writing end. When the
reading end finds it closed, they all have ended (or run another program).
"""

from __future__ import annotations

import itertools
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakMethod


class _Fork(NamedTuple):
    """A fork with something held: its number, counted from 1, and the pipe's reading end (-1: none)."""

    number: int
    end: int

    def is_over(self) -> bool:
        if self.end < 0:
            return False
        poll = select.poll()
        poll.register(self.end, select.POLLIN)
        return bool(poll.poll(0))


class _Waiting(NamedTuple):
    forks_before: int
    free: WeakMethod[Callable[[int], None]]
    flag: int


class _Forking(threading.local):
    """A fork in the making; several threads may fork at once."""

    pipe: tuple[int, int] | None = None


_forking = _Forking()
_numbers = itertools.count(1)
_forks: list[_Fork] = []
_waiting: deque[_Waiting] = deque()
_is_any_held: Callable[[], bool] | None = None


def watch(is_any_held: Callable[[], bool]) -> None:
    """Heeds the forks of this process from now on, where `is_any_held()` is true at their time."""
    global _is_any_held
    if _is_any_held is None and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    _is_any_held = is_any_held


def count() -> int:
    """The number of the last fork with a child that may still live, 0 without one."""
    return max((fork.number for fork in list(_forks)), default=0)


def when_unseen(forks_before: int, free: WeakMethod[Callable[[int], None]], flag: int) -> None:
    """Calls `free(flag)` once no child that was forked after the first `forks_before` ones lives.

    That is at once where there is none, else during a later `settle()`. Where the object whose method it
    is has gone, there is nothing left to free.
    """
    if _has_child_since(forks_before):
        _waiting.append(_Waiting(forks_before, free, flag))
        return
    call = free()
    if call is not None:
        call(flag)


def settle() -> None:
    """Frees what had to wait for children that have ended by now."""
    if not _forks:
        return
    for fork in [fork for fork in list(_forks) if fork.is_over()]:
        _forget(fork)
    for _ in range(len(_waiting)):
        try:
            waiting = _waiting.popleft()
        except IndexError:
            break  # another thread, or a finalizer in this one, was here as well
        if waiting.free() is not None:
            when_unseen(*waiting)
    if not _waiting and _is_any_held is not None and not _is_any_held():
        for fork in list(_forks):
            _forget(fork)


def _forget(fork: _Fork) -> None:
    try:
        _forks.remove(fork)
    except ValueError:
        return  # forgotten by another thread
    if fork.end >= 0:
        os.close(fork.end)


def _has_child_since(forks_before: int) -> bool:
    return bool(_forks) and any(fork.number > forks_before for fork in list(_forks))


def _before() -> None:
    settle()
    assert _is_any_held is not None
    _forking.pipe = None
    if _is_any_held():
        try:
            _forking.pipe = os.pipe()
        except OSError:
            # Without a descriptor to spare, this child counts as living for ever.
            _forking.pipe = (-1, -1)


def _in_parent() -> None:
    if _forking.pipe is None:
        return
    reading, writing = _forking.pipe
    if writing >= 0:
        os.close(writing)
    _forks.append(_Fork(next(_numbers), reading))


def _in_child() -> None:
    # The writing end stays open on purpose: it is what tells the parent that this process lives.
    ends = [fork.end for fork in _forks] + ([_forking.pipe[0]] if _forking.pipe else [])
    _forks.clear()
    _waiting.clear()
    for end in ends:
        if end >= 0:
            os.close(end)
