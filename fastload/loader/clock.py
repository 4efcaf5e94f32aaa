"""The clock of an epoch: stops the time of waits and steps while batches are handed out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastload.loader.times import EpochTimes, LoadTimes

# So many of the latest waits and steps are kept one by one.
_MOST_KEPT = 4096


class StepClock:
    """Stops the time of an epoch's waits and steps.

    The loader and the epoch's iterator share it, and the iterator calls it twice a batch (0.5 µs).

    Attributes:
        num_workers: How many workers load; 0: the training process.
        prefetch_factor: Batches asked of each worker in advance; None without workers.
        copying_s: What copies to the device took so far, in seconds.
        waits_s: The latest waits, without the first batch's.
        steps_s: What followed each of these.
        batches: How many batches were handed out.
        batch_size: Samples in the first of them; 0 before.
        batch_bytes: Bytes of its tensors.
        latest_wait_s: The latest wait, in seconds.
        first_wait_s: The wait for the first batch.
    """

    def __init__(self) -> None:
        self._loading: Callable[[], tuple[LoadTimes, ...]] | None = None
        self.num_workers = 0
        self.prefetch_factor: int | None = None
        self.copying_s = 0.0
        self.waits_s: deque[float] = deque(maxlen=_MOST_KEPT)
        self.steps_s: deque[float] = deque(maxlen=_MOST_KEPT)
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
        """Begins an epoch, or a part of one that is loaded in another way.

        Args:
            num_workers: See the attribute.
            prefetch_factor: See the attribute.
            loading: Called for what making the batches took each process; None where nothing is known.
        """
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self._loading = loading

    def settle(self) -> None:
        """Keeps what making the batches took until now, because the processes will be gone."""
        if self._loading is not None:
            times = self._loading()
            self._loading = lambda: times

    def ask(self) -> None:
        """Notes that the training asks for a batch."""
        self._asked = time.perf_counter()
        if self.batches:
            step = self._asked - self._handed
            self._stepping_s += step
            self.steps_s.append(step)

    def hand(self, batch: Any) -> None:
        """Notes that it gets one."""
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
        """What all waits took so far, the first included."""
        return self.first_wait_s + self._waiting_s

    def seconds(self) -> float:
        """What all waits and steps took so far, without the first wait."""
        return self._waiting_s + self._stepping_s

    def loading(self) -> tuple[LoadTimes, ...]:
        """What making the batches took each process."""
        return () if self._loading is None else self._loading()

    def times(self) -> EpochTimes | None:
        """What the epoch's steps took so far; None before the first batch."""
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
    """How many samples a batch seems to hold, and how many bytes its tensors and arrays have.

    The number of samples is the first dimension of the first tensor or array that has one, else 1. Only
    what is known not to run anybody's code is looked into, each container once: a batch may contain itself.
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
            parts.extend(reversed(_held(part)))
    return samples or 1, size


def _held(part: Any) -> list[Any]:
    if type(part) is dict:
        return list(part.values())
    # By the base's own iterator: that of a subclass is somebody's code.
    for kind in (list, tuple):
        if issubclass(type(part), kind):
            return list(kind.__iter__(part))
    return []


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested
