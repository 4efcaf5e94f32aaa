"""The strategy of a loader whose number of workers was left unset."""

from __future__ import annotations

from dataclasses import replace

import torch

from fastload.loader.iterators import WorkersIterator
from fastload.loader.strategy import EpochIterator, EpochStart, LoaderView, WorkerOptions
from fastload.loader.tuning.caching import LoaderCache, is_filling
from fastload.loader.tuning.epoch import TunedIterator
from fastload.loader.tuning.plan import Plan
from fastload.loader.tuning.tuner import Tuner


class TunedStrategy:
    """Loads in the way that measurements of the epochs' own batches found best."""

    def __init__(self, view: LoaderView) -> None:
        self.explicit = view.explicit
        self.tuner = Tuner(view)
        self._is_map_style = not view.is_iterable
        self._cache: LoaderCache | None = None

    @property
    def options(self) -> WorkerOptions:
        """The decided values; without workers while their number is not settled."""
        options = self.tuner.options()
        return options if self.tuner.is_settled else replace(options, num_workers=0, prefetch_factor=None)

    @property
    def plan(self) -> Plan:
        """What was decided so far."""
        return self.tuner.plan

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        """Look for a plan of an earlier run, and take up what the epoch before left."""
        self._cache = cache
        self.tuner.open(view)
        self.tuner.take_up(is_filling(view.dataset))
        if self.tuner.is_settled and cache is not None:
            cache.decide(view.dataset, self.tuner.plan.measured.alone)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        """Return an epoch's iterator."""
        tuner = self.tuner
        start = replace(start, seeds_batches=self._is_map_style and not tuner.is_off, options=tuner.options())
        # Where it is settled how many workers there are, those that live on are torch's.
        if tuner.is_settled and start.options.persistent_workers and start.options.num_workers:
            generator = view.generator or torch.default_generator
            state = generator.get_state()
            try:
                return WorkersIterator(view, start)
            except Exception as error:
                generator.set_state(state)
                tuner.note_no_workers(error)
            start = replace(start, options=tuner.options())
        return TunedIterator(view, start, tuner, self._cache)
