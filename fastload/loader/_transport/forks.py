"""Protection of slots that forked children still see: they are freed only after the children have ended.

A forked child shares the memory of every batch that its parent held. When the parent drops such a batch, its
slot must not be freed, or a worker would overwrite what the child sees. So a fork while batches are held
creates a pipe, whose writing end the child and its own children inherit. Once the reading end reports a
hang-up, all of them have ended (or run another program).
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
    """A fork while batches were held: its number, from 1, and the pipe's reading end (-1: no pipe)."""

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
    """A fork in progress; several threads may fork at the same time."""

    pipe: tuple[int, int] | None = None


_forking = _Forking()
_numbers = itertools.count(1)
_forks: list[_Fork] = []
_waiting: deque[_Waiting] = deque()
_is_any_held: Callable[[], bool] | None = None


def watch(is_any_held: Callable[[], bool]) -> None:
    """Track the forks of this process from now on if `is_any_held()` is true when they happen."""
    global _is_any_held
    if _is_any_held is None and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    _is_any_held = is_any_held


def count() -> int:
    """Return the number of the last fork whose child may still be alive; 0 if there is none."""
    return max((fork.number for fork in list(_forks)), default=0)


def when_unseen(forks_before: int, free: WeakMethod[Callable[[int], None]], flag: int) -> None:
    """Call `free(flag)` once no child of a fork after number `forks_before` is alive.

    Without such a child this happens at once, otherwise in a later `settle()`. If the object that the method
    belongs to is gone, there is nothing left to free.
    """
    if _has_child_since(forks_before):
        _waiting.append(_Waiting(forks_before, free, flag))
        return
    call = free()
    if call is not None:
        call(flag)


def settle() -> None:
    """Free the slots whose children have ended by now."""
    if not _forks:
        return
    for fork in [fork for fork in list(_forks) if fork.is_over()]:
        _forget(fork)
    for _ in range(len(_waiting)):
        try:
            waiting = _waiting.popleft()
        except IndexError:
            break  # another thread, or a finalizer in this one, took it
        if waiting.free() is not None:
            when_unseen(*waiting)
    if not _waiting and _is_any_held is not None and not _is_any_held():
        for fork in list(_forks):
            _forget(fork)


def _forget(fork: _Fork) -> None:
    try:
        _forks.remove(fork)
    except ValueError:
        return  # removed by another thread
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
            # No descriptors left: this child counts as alive for ever.
            _forking.pipe = (-1, -1)


def _in_parent() -> None:
    if _forking.pipe is None:
        return
    reading, writing = _forking.pipe
    if writing >= 0:
        os.close(writing)
    _forks.append(_Fork(next(_numbers), reading))


def _in_child() -> None:
    # The writing end stays open on purpose: it shows the parent that this process is alive.
    ends = [fork.end for fork in _forks] + ([_forking.pipe[0]] if _forking.pipe else [])
    _forks.clear()
    _waiting.clear()
    for end in ends:
        if end >= 0:
            os.close(end)
