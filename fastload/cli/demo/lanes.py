"""A side of the race with its running workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from fastload.cli.demo.sides import BATCH_SIZE, Side
from fastload.images.opencv import cv2


class _Epochs(torch.utils.data.Sampler[int]):
    """Indices of as many samples as a turn needs: one shuffled epoch after another, cut at the end."""

    def __init__(self, length: int, seed: int) -> None:
        self.count = 0
        self._length = length
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        left = self.count
        while left:
            epoch = torch.randperm(self._length, generator=self._generator)[:left]
            left -= len(epoch)
            yield from epoch.tolist()


class Lane:
    """One side with its workers, which live as long as it does."""

    def __init__(self, side: Side, workers: int, seed: int) -> None:
        self.side = side
        self._sampler = _Epochs(len(side.dataset), seed)  # type: ignore[arg-type]
        self._loader = side.loader(
            side.dataset,
            batch_size=BATCH_SIZE,
            sampler=self._sampler,
            num_workers=workers,
            persistent_workers=True,
            worker_init_fn=_one_thread,
            generator=torch.Generator().manual_seed(seed),
        )

    def batches(self, count: int) -> Iterator[Any]:
        """The next batches, asked for when this is called."""
        self._sampler.count = count * BATCH_SIZE
        return iter(self._loader)

    def start(self, batches: int) -> float:
        """Starts the workers and loads a first batch on each; returns the seconds to the first."""
        began = time.perf_counter()
        loading = self.batches(batches)
        next(loading)
        startup_s = time.perf_counter() - began
        for _ in loading:
            pass
        return startup_s

    def load(self, batches: int) -> float:
        """Loads batches and does nothing with them; returns images a second."""
        began = time.perf_counter()
        for _ in self.batches(batches):
            pass
        return batches * BATCH_SIZE / (time.perf_counter() - began)


def _one_thread(worker: int) -> None:
    """As torch does with its own threads in a worker: the workers are what runs in parallel."""
    cv2.setNumThreads(0)
