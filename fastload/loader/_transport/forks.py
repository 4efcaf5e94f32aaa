"""Protection of slots that forked children still see: they are freed only after the children have ended.

A forked child shares the memory of every batch that its parent held. If the parent drops such a batch, its
slot must not be freed, or a worker would overwrite the child's batch. So a fork while batches are held
creates a pipe, whose writing end the child and its own children inherit. Once the reading end reports a
hang-up, all of them have ended (or run another program).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from weakref import WeakMethod


class _Forking(threading.local):
    """A fork in progress; several threads may fork at the same time."""

    pipe: tuple[int, int] | None = None


_forking = _Forking()
_numbers = itertools.count(1)
# Forks while batches were held whose children may still be alive: the pipe's reading end (-1: no pipe) by the
# fork's number.
_forks: dict[int, int] = {}
# Slots to be freed: the number of the last fork before they were held, and the call that frees them.
_waiting: deque[tuple[int, WeakMethod[Callable[[int], None]], int]] = deque()
_is_any_held: Callable[[], bool] | None = None


def watch(is_any_held: Callable[[], bool]) -> None:
    """Track the forks of this process from now on if `is_any_held()` is true when they happen."""
    global _is_any_held
    if _is_any_held is None and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    _is_any_held = is_any_held


def count() -> int:
    """Return the number of the last fork whose child may still be alive; 0 if there is none."""
    return max(list(_forks), default=0)


def when_unseen(forks_before: int, free: WeakMethod[Callable[[int], None]], flag: int) -> None:
    """Call `free(flag)` once no child of a fork after number `forks_before` is alive.

    Without such a child this happens at once, otherwise in a later `settle()`. If the object that the method
    belongs to is gone, there is nothing left to free.
    """
    if count() > forks_before:
        _waiting.append((forks_before, free, flag))
        return
    call = free()
    if call is not None:
        call(flag)


def settle() -> None:
    """Free the slots whose children have ended by now."""
    if not _forks:
        return
    for number, end in list(_forks.items()):
        if end >= 0 and _has_hung_up(end):
            _forget(number)
    for _ in range(len(_waiting)):
        # Another thread, or a finalizer in this one, may have taken it.
        with contextlib.suppress(IndexError):
            forks_before, free, flag = _waiting.popleft()
            if free() is not None:
                when_unseen(forks_before, free, flag)
    if not _waiting and _is_any_held is not None and not _is_any_held():
        for number in list(_forks):
            _forget(number)


def _has_hung_up(end: int) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(0))


def _forget(number: int) -> None:
    end = _forks.pop(number, -1)
    if end >= 0:
        os.close(end)


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
    _forks[next(_numbers)] = reading


def _in_child() -> None:
    # The writing end stays open on purpose: it shows the parent that this process is alive.
    ends = [*_forks.values(), *([_forking.pipe[0]] if _forking.pipe else [])]
    _forks.clear()
    _waiting.clear()
    for end in ends:
        if end >= 0:
            os.close(end)
