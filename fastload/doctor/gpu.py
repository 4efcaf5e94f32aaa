"""GPU activity during a training: events on its stream, and NVML's utilisation.

A training queues the work of its GPU and runs ahead of it: a host that waits for a batch may leave the GPU
busy with the steps before, and a copy that blocks may be waiting for them. Only marks on the stream tell.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch

from fastload.system.gpus import gpu_reader

# A training that is further ahead of its GPU than this is not watched: marks cost memory.
_MOST_PENDING = 256
_EACH_S = 0.25


class StreamMark(Protocol):
    """A place in a stream: a CUDA event that measures time."""

    def query(self) -> bool:
        """Return whether the GPU has passed it."""

    def elapsed_time(self, later: Any) -> float:
        """Return the milliseconds from here to a later mark."""


class _Wait(NamedTuple):
    """A wait of the host for a batch: the marks at its ends, and the host's clock."""

    asked: StreamMark
    handed: StreamMark
    handed_at: float
    wait_s: float
    was_idle: bool


class GpuTimes:
    """Times in which the GPU computed while the host got batches; nothing waits to find them.

    Attributes:
        busy_s: Seconds for which it computed while the host waited for batches: they belong to the steps.
        behind_s: Seconds for which it was still at earlier steps when the host had its batches.
    """

    def __init__(self, mark: Callable[[], StreamMark | None] | None = None) -> None:
        self.busy_s = 0.0
        self.behind_s = 0.0
        self._mark = mark or _mark_stream
        self._asked: StreamMark | None = None
        self._pending: deque[_Wait] = deque(maxlen=_MOST_PENDING)
        # The latest wait that found the GPU idle: there both clocks agree.
        self._idle: _Wait | None = None
        self._is_on = True

    def ask(self) -> None:
        """Mark that the training asks for a batch."""
        self._asked = None
        if self._is_on:
            with self._given_up_on_error():
                self._asked = self._mark()

    def hand(self, handed_at: float, wait_s: float) -> None:
        """Mark that it gets one, after a wait of so many seconds (0: a wait that does not count)."""
        if self._asked is None:
            return
        with self._given_up_on_error():
            handed = self._mark()
            if handed is not None:
                self._pending.append(_Wait(self._asked, handed, handed_at, wait_s, self._asked.query()))
                self._read()

    @contextlib.contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._is_on = False
            self._asked = None
            self._pending.clear()

    def _read(self) -> None:
        while self._pending and self._pending[0].handed.query():
            wait = self._pending.popleft()
            idle_s = wait.asked.elapsed_time(wait.handed) / 1e3
            self.busy_s += max(0.0, wait.wait_s - idle_s)
            if wait.was_idle:
                self._idle = wait
            elif self._idle is not None:
                since_s = self._idle.handed.elapsed_time(wait.handed) / 1e3
                self.behind_s += max(0.0, since_s - (wait.handed_at - self._idle.handed_at))


def _mark_stream() -> StreamMark | None:
    """Mark the current CUDA stream; None before CUDA is started, and while a graph is recorded."""
    if not has_device() or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def has_device() -> bool:
    """Return whether there may be copies to a GPU."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


class GpuWatch:
    """Readings of NVML four times a second; none without NVML or without a GPU."""

    def __init__(self, session: Callable[[], Any] = gpu_reader, each_s: float = _EACH_S) -> None:
        self._session = session
        self._each_s = each_s
        self._readings: list[tuple[float, Any]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastload-doctor-gpu", daemon=True)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Read until it ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()

    def _watch(self) -> None:
        with self._session() as read:
            is_there = bool(read())
            while is_there and not self._stopping.wait(self._each_s):
                self._readings.append((time.perf_counter(), read()))

    def busy(self, span: tuple[float, float], uuid: str) -> tuple[float, ...]:
        """Return the utilisation (0 to 1) of a GPU at each reading of a span of `time.perf_counter`.

        The busiest GPU is taken where none has the uuid; empty where no GPU was used.
        """
        by_gpu: dict[str, list[float]] = {}
        for at, gpus in self._readings:
            if span[0] <= at <= span[1]:
                for gpu in gpus:
                    by_gpu.setdefault(gpu.uuid or str(gpu.index), []).append(gpu.utilization or 0.0)
        if not by_gpu:
            return ()
        busy = by_gpu.get(uuid) or max(by_gpu.values(), key=lambda each: sum(each) / len(each))
        return tuple(busy) if sum(busy) / len(busy) > 0.01 else ()


def uuid_of(device: torch.device | None) -> str:
    """Return the uuid of the training's GPU as NVML writes it; "" where that is not known."""
    with contextlib.suppress(Exception):
        if has_device():
            is_named = device is not None and device.type == "cuda"
            return f"GPU-{torch.cuda.get_device_properties(device if is_named else None).uuid}"
    return ""
