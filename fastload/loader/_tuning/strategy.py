"""Strategy of a loader whose number of workers was left unset."""

from __future__ import annotations

from dataclasses import replace

import torch

from fastload.loader._caching import LoaderCache, is_filling
from fastload.loader._iterators import SingleProcessIterator, WorkersIterator
from fastload.loader._iterators.switching import last_line
from fastload.loader._strategy import EpochIterator, EpochStart, LoaderView, WorkerOptions
from fastload.loader._tuning.epoch import TunedIterator
from fastload.loader._tuning.plan import Plan
from fastload.loader._tuning.tuner import Tuner


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
        return self.tuner.options

    @property
    def plan(self) -> Plan:
        """The decisions so far."""
        return self.tuner.plan

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        """Take up what the epoch before left."""
        self._cache = cache
        self.tuner.prepare(view, is_filling(view.dataset))
        if self.tuner.is_settled and cache is not None:
            cache.decide(view.dataset, self.tuner.measured.single_process)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        """Return an epoch's iterator."""
        options = self.tuner.options
        seeds_batches = self._is_map_style and not self.tuner.is_off
        start = replace(start, seeds_batches=seeds_batches, options=options)
        # Once the number of workers is settled, those that live on are torch's.
        if options.persistent_workers and options.num_workers:
            generator = view.generator or torch.default_generator
            state = generator.get_state()
            try:
                return WorkersIterator(view, start)
            except Exception as error:
                generator.set_state(state)
                self.tuner.forbid_workers(f"workers cannot be started: {last_line(error)}")
            start = replace(start, options=self.tuner.options)
        if self.tuner.is_final:
            return SingleProcessIterator(view, start)
        return TunedIterator(view, start, self.tuner, self._cache)
