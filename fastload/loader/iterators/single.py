"""Single-process iterator that records times and progress."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastload.datasets.batch import HostMemory
from fastload.loader import torch_private
from fastload.loader.arguments import LoaderView
from fastload.loader.clock import STAT_COUNT, StatsRecorder, count_samples, load_times
from fastload.loader.iterators.base import EpochIterator, EpochStart, TorchView
from fastload.loader.resume.drawing import start_state
from fastload.loader.transport.making import BatchMaker, SeedingFetcher


class SingleProcessIterator(EpochIterator, torch_private.SingleProcessBase):
    """Loads batches in the training process."""

    _dataset_fetcher: Any
    _sampler_iter: Iterator[object]

    def __init__(self, view: LoaderView, start: EpochStart) -> None:
        self._view = view
        self.progress = start.progress
        self._device = view.device
        torch_view = TorchView(view, start, self)
        if torch_view.stateful is not None:
            self.progress.dataset.state = torch_view.stateful.state
        self._finish = torch_view.finish
        self.clock = start.clock
        self._sums = [0.0] * STAT_COUNT
        self._recorder = StatsRecorder(self._sums)
        self.begin_clock()
        torch_view.collate_fn = _timed(torch_view.make, self._recorder)
        super().__init__(torch_view)
        self.epoch_seed()
        fetcher = SeedingFetcher(self._dataset_fetcher, view.thread, torch_view.draws_nothing)
        self._dataset_fetcher = fetcher
        self._dataset = view.dataset
        start.progress.seeds.is_drawn = torch_view.order.draws_at_once
        self._profile_name = f"enumerate(DataLoader)#{torch_private.SingleProcessBase.__name__}.__next__"
        self._replay(view.is_iterable, super()._next_data)
        start.progress.handed.done = 0

    def begin_clock(self) -> None:
        """Make the clock show no workers, and the cost of batches from now on."""
        sums, before = self._sums, self._sums.copy()
        self.clock.begin(0, None, lambda: load_times(np.subtract([sums], before)))

    def draw_first(self) -> None:
        """Draw the first batch's indices, as torch's iterator does with workers."""
        self.progress.seeds.is_drawn = True
        first = list(itertools.islice(self._sampler_iter, 1))
        self._sampler_iter = itertools.chain(first, self._sampler_iter)

    def _next_data(self) -> Any:
        self.clock.ask()
        batch = self._next_batch()
        self.clock.hand(batch)
        return batch

    def _next_batch(self) -> object:
        self._recorder.begin()
        self._note_draw()
        try:
            batch = super()._next_data()
        except StopIteration:
            self.progress.is_finished = True
            raise
        except Exception:
            self.progress.handed.done += 1
            raise
        self.progress.handed.done += 1
        batch = batch if self._device is None else self._moved_to(self._device, batch)
        self._recorder.end()
        return batch

    def _note_draw(self) -> None:
        """Record the random states of the order: no earlier, because other code may have drawn numbers."""
        if not self.progress.seeds.is_drawn:
            self.progress.seeds.note_draw(start_state(self._view))


def _timed(make: BatchMaker, recorder: StatsRecorder) -> Callable[[object], object]:
    """Return the training process's `collate_fn`, which records when it is called."""
    memory = HostMemory(make.finishes_on_device)

    def collate(fetched: object) -> object:
        recorder.fetched(count_samples(fetched, make.is_batched))
        return make(fetched, memory)

    return collate
