"""When the GPU waited for a batch, told by marks on its stream: the host's clock cannot tell.

A training only queues the work of its GPU, and runs ahead of it. What the host waits for may be hidden
behind the steps before, and what it takes for copying may be waiting for these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

# A training that is further ahead of its GPU than this is not looked at: marks cost memory.
_MOST_PENDING = 256


class Mark(Protocol):
    """A place in a stream: an event of CUDA's that measures time."""

    def query(self) -> bool:
        """Whether the GPU has come by."""

    def elapsed_time(self, later: Any) -> float:
        """How long it took from here to a later mark, in milliseconds."""


class _Wait(NamedTuple):
    """A wait of the host's for a batch: the marks at its ends, and what the host's clock says."""

    asked: Mark
    handed: Mark
    handed_at: float
    wait_s: float
    was_idle: bool


class GpuTimes:
    """What the GPU did while the training got its batches. Nothing is waited for to find that out.

    Args:
        mark: Puts a mark at the end of what is queued; gives None where there is no GPU.

    Attributes:
        busy_s: How long it computed while the host waited for batches, in seconds: that is the steps' time.
        behind_s: How long it was still busy with earlier steps when the host had got its batches, in all: a
            copy that blocks takes so much longer.
    """

    def __init__(self, mark: Callable[[], Mark | None] | None = None) -> None:
        self.busy_s = 0.0
        self.behind_s = 0.0
        self._mark = mark or _mark_stream
        self._asked: Mark | None = None
        self._pending: deque[_Wait] = deque(maxlen=_MOST_PENDING)
        # The latest wait that found the GPU idle: there both clocks say the same.
        self._idle: _Wait | None = None
        self._is_on = True

    def ask(self) -> None:
        """The training asks for a batch."""
        self._asked = None
        if self._is_on:
            self._guarded(self._mark_asked)

    def hand(self, handed_at: float, wait_s: float) -> None:
        """It gets one.

        Args:
            handed_at: When, by the host's clock, in seconds.
            wait_s: For how long the host waited; 0 for a wait that does not count.
        """
        if self._asked is not None:
            self._guarded(lambda: self._mark_handed(handed_at, wait_s))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Does something; if it fails, the host's clock has to do from then on."""
        try:
            work()
        except Exception:
            self._is_on = False
            self._asked = None
            self._pending.clear()

    def _mark_asked(self) -> None:
        self._asked = self._mark()

    def _mark_handed(self, handed_at: float, wait_s: float) -> None:
        asked, handed = self._asked, self._mark()
        if asked is not None and handed is not None:
            self._pending.append(_Wait(asked, handed, handed_at, wait_s, asked.query()))
            self._read()

    def _read(self) -> None:
        """Takes in the waits whose marks the GPU has come by."""
        while self._pending and self._pending[0].handed.query():
            wait = self._pending.popleft()
            idle_s = wait.asked.elapsed_time(wait.handed) / 1e3
            self.busy_s += max(0.0, wait.wait_s - idle_s)
            if wait.was_idle:
                self._idle = wait
            elif self._idle is not None:
                since_s = self._idle.handed.elapsed_time(wait.handed) / 1e3
                self.behind_s += max(0.0, since_s - (wait.handed_at - self._idle.handed_at))


def _mark_stream() -> Mark | None:
    """Marks the current stream of CUDA; None before CUDA is started, and while a graph is recorded."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
