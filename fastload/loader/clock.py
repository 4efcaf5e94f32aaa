"""Clock of an epoch: the times of waits for batches and of the steps between them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastload.loader._times import EpochTimes, LoadTimes

# The number of latest waits and steps that are stored one by one.
_LATEST = 4096


class StepClock:
    """Measures an epoch's waits and steps; the iterator calls it twice per batch (0.5 µs).

    The attributes are those of EpochTimes, so far; latest_wait_s is the latest wait, the first included.
    """

    def __init__(self) -> None:
        self._loading: Callable[[], tuple[LoadTimes, ...]] | None = None
        self.num_workers = 0
        self.prefetch_factor: int | None = None
        self.copying_s = 0.0
        self.waits_s: deque[float] = deque(maxlen=_LATEST)
        self.steps_s: deque[float] = deque(maxlen=_LATEST)
        self.batches = self.batch_size = self.batch_bytes = 0
        self._samples = 0
        self.latest_wait_s = 0.0
        self.first_wait_s = self._waiting_s = self._stepping_s = 0.0
        self._asked = self._handed = 0.0

    def begin(
        self,
        num_workers: int,
        prefetch_factor: int | None,
        loading: Callable[[], tuple[LoadTimes, ...]] | None,
    ) -> None:
        """Begin an epoch, or a part of one with other workers; `loading` returns each process's times."""
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self._loading = loading

    def settle(self) -> None:
        """Store the load times until now, because the processes are about to end."""
        if self._loading is not None:
            times = self._loading()
            self._loading = lambda: times

    def ask(self) -> None:
        """Record that the training asks for a batch."""
        self._asked = time.perf_counter()
        if self.batches:
            step = self._asked - self._handed
            self._stepping_s += step
            self.steps_s.append(step)

    def hand(self, batch: Any) -> None:
        """Record that the training receives a batch."""
        self._handed = time.perf_counter()
        wait = self.latest_wait_s = self._handed - self._asked
        if self.batches:
            self._waiting_s += wait
            self.waits_s.append(wait)
        else:
            self.first_wait_s = wait
            self.batch_size, self.batch_bytes = size_of(batch)
        self.batches += 1
        self._samples += self.batch_size

    @property
    def waited_s(self) -> float:
        """The sum of all waits so far, including the first."""
        return self.first_wait_s + self._waiting_s

    def seconds(self) -> float:
        """Return the sum of all waits and steps so far, without the first wait."""
        return self._waiting_s + self._stepping_s

    def loading(self) -> tuple[LoadTimes, ...]:
        """Return the load times of each process so far."""
        return () if self._loading is None else self._loading()

    def times(self) -> EpochTimes | None:
        """Return the epoch's times so far; None before the first batch."""
        if not self.batches:
            return None
        return EpochTimes(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            batch_size=self.batch_size,
            batches=self.batches,
            samples=self._samples,
            batch_bytes=self.batch_bytes,
            first_wait_s=self.first_wait_s,
            waiting_s=self._waiting_s,
            stepping_s=self._stepping_s,
            copying_s=self.copying_s,
            waits_s=tuple(self.waits_s),
            steps_s=tuple(self.steps_s),
            loading=self.loading(),
        )


def size_of(batch: Any) -> tuple[int, int]:
    """Return a batch's samples, and the bytes of its tensors and arrays.

    The number of samples is the first dimension of the first tensor or array that has one, else 1. Only
    built-in containers are searched, because others could run user code; each once, as a batch may contain
    itself.
    """
    samples, size = 0, 0
    parts = [batch]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if type(part) is np.ndarray or (type(part) is torch.Tensor and _is_dense(part)):
            size += part.nbytes
            if not samples and part.ndim:
                samples = part.shape[0]
        elif id(part) not in seen:
            seen.add(id(part))
            parts.extend(reversed(_elements(part)))
    return samples or 1, size


def _elements(part: Any) -> list[Any]:
    if type(part) is dict:
        return list(part.values())
    # The base class's own iterator: that of a subclass is user code.
    for kind in (list, tuple):
        if issubclass(type(part), kind):
            return list(kind.__iter__(part))
    return []


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested
