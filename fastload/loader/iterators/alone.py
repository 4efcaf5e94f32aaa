"""Loading in the training process: torch's iterator, with its time stopped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import (
    _SingleProcessDataLoaderIter,
)

from fastload.loader.clock import StepClock
from fastload.loader.iterators.start import Start
from fastload.loader.iterators.view import View, arrived, epoch_seed, profile_name, replay
from fastload.loader.resume import Mark, Progress, has_drawn, start_state
from fastload.loader.times import LoadTimes
from fastload.loader.transport.filling import (
    BatchMaker,
    OrdinaryMemory,
)
from fastload.loader.transport.ledger import (
    FIELDS,
    WORTH_ASKING_S,
    Ledger,
    samples_in,
    times_of,
)
from fastload.loader.transport.seeding import SeedingFetcher


class SingleProcessIterator(_SingleProcessDataLoaderIter):
    """Loads in the training process.

    Args:
        loader: The DataLoader.
        start: What it begins with.

    Attributes:
        clock: Of the epoch.
    """

    def __init__(self, loader: Any, start: Start) -> None:
        self._progress = start.progress
        self._device = start.device
        view = View(loader, start, self)
        self._stateful = view.stateful
        self._finish = view.finish
        sums = np.zeros(FIELDS)
        self._ledger = Ledger(sums)
        self.clock = start.clock
        self._loading = _LoadingAlone(start.clock, sums)
        self.clock.begin(0, None, self._loading)
        view.collate_fn = _NotedCollate(view.make, self._ledger)
        watched = None
        if type(loader._index_sampler) is not BatchSampler:
            view._index_sampler = watched = _Watched(view._index_sampler, loader, start.progress)
        super().__init__(view)
        epoch_seed(self)
        if start.seeds_batches:
            self._dataset_fetcher = SeedingFetcher(self._dataset_fetcher, loader._thread, view.draws_nothing)
        self._dataset = loader.dataset
        self._loader_to_draw: Any = None if watched is not None and watched.has_drawn else loader
        start.progress.is_drawn = self._loader_to_draw is None
        self._profile_name = profile_name(_SingleProcessDataLoaderIter)
        replay(self, super()._next_data, start.progress)
        start.progress.done = 0

    def draw_first(self) -> None:
        """Makes the sampler draw what it draws at the epoch's beginning."""
        self._loader_to_draw = None
        first = list(itertools.islice(self._sampler_iter, 1))
        self._sampler_iter = itertools.chain(first, self._sampler_iter)

    def _next_data(self) -> Any:
        self.clock.ask()
        batch = self._next_batch()
        self.clock.hand(batch)
        return batch

    def _next_batch(self) -> Any:
        if 0.0 < self.clock.latest_wait_s < WORTH_ASKING_S:
            return self._made()
        ledger = self._ledger
        ledger.begin()
        batch = self._made()
        ledger.end()
        return batch

    def _note_draw(self) -> None:
        """Notes what the order is drawn from: only now, and others may have drawn since the epoch began."""
        if self._loader_to_draw is not None:
            self._progress.note_draw(start_state(self._loader_to_draw))
            self._loader_to_draw = None

    def _made(self) -> Any:
        self._note_draw()
        try:
            batch = super()._next_data()
        except StopIteration:
            self._progress.is_finished = True
            raise
        except Exception:
            self._progress.done += 1
            raise
        self._progress.done += 1
        if self._stateful is not None:
            self._progress.note(Mark(self._progress.done, (), 0, self._stateful.state() or None))
        return batch if self._device is None else arrived(batch, self._device, self._finish, self.clock)


class _Watched:
    """An index sampler that may draw its order when it is asked for an iterator; most do so later.

    Args:
        sampler: The sampler.
        loader: The DataLoader.
        progress: Of the epoch.

    Attributes:
        has_drawn: Whether it has drawn so.
    """

    def __init__(self, sampler: Any, loader: Any, progress: Progress) -> None:
        self._sampler = sampler
        self._loader = loader
        self._progress = progress
        self.has_drawn = False

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = iter(self._sampler)
        self.has_drawn = has_drawn(self._loader, self._progress.start)
        return iterator

    def __len__(self) -> int:
        return len(self._sampler)


class _LoadingAlone:
    """What making batches takes the training process: all that it waits for them.

    Args:
        clock: The epoch's.
        sums: A ledger of those batches that took long; of the others, all counts as CPU time.
    """

    def __init__(self, clock: StepClock, sums: NDArray[np.float64]) -> None:
        self._clock = clock
        self._sums = sums
        self.begin()

    def begin(self) -> None:
        """Leaves out what has been waited for until now: others made it."""
        self._batches, self._waited_s = self._clock.batches, self._clock.waited_s
        self._sums[:] = 0

    def __call__(self) -> tuple[LoadTimes, ...]:
        [long] = times_of(self._sums[None])
        batches = self._clock.batches - self._batches
        waited_s = self._clock.waited_s - self._waited_s
        cpu_s = max(0.0, waited_s - long.busy_s) + long.cpu_s
        samples = batches * self._clock.batch_size
        return (LoadTimes(batches, samples, waited_s, cpu_s, long.delayed_s, long.collate_s),)


class _NotedCollate:
    """A `collate_fn` of the training process, which notes when it is called, and with how much.

    Args:
        make: Makes a batch of what was fetched.
        ledger: Where that is noted.
    """

    def __init__(self, make: BatchMaker, ledger: Ledger) -> None:
        self._make = make
        self._ledger = ledger
        self._memory = OrdinaryMemory(make.finishes_on_device)

    def __call__(self, fetched: Any) -> Any:
        self._ledger.fetched(samples_in(fetched))
        return self._make(fetched, self._memory)
