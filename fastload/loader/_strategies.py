"""Strategies for loading an epoch: in one process, in workers, tuned, or on the device.

A loader has one strategy at a time. A strategy reads a view of the loader, returns iterators and plans, and
has no reference to the loader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import Subset

from fastload.datasets.resident import Resident
from fastload.datasets.within import is_plain_subset
from fastload.loader import _torch
from fastload.loader._arguments import LoaderView, WorkerOptions
from fastload.loader._caching import LoaderCache, is_filling
from fastload.loader._iterators.base import EpochIterator, EpochStart
from fastload.loader._iterators.single import SingleProcessIterator
from fastload.loader._iterators.workers import WorkersIterator
from fastload.loader._measurements import (
    DEFAULT_PREFETCH,
    DEFAULT_SETTINGS,
    TuningMeasurements,
    TuningSettings,
)
from fastload.loader._tuning.decide import prefetch_of
from fastload.loader._tuning.epoch import TunedIterator
from fastload.loader._tuning.limits import read_limits
from fastload.loader._tuning.plan import Plan, explicit_plan
from fastload.loader._tuning.switching import last_line
from fastload.loader._tuning.tuner import Tuner, is_switched_off
from fastload.loader.clock import StepClock


class SingleProcessStrategy:
    """Loads in the training process; `reason` says why, if the user did not ask for it.

    Attributes:
        explicit: The explicit parameters that the strategy was chosen for.
    """

    def __init__(self, view: LoaderView, reason: str = "") -> None:
        self.explicit = view.explicit
        self._reason = reason

    @property
    def options(self) -> WorkerOptions:
        """The values that the loader's attributes show; 0 workers until their number is settled."""
        workers = self.explicit.get("num_workers", 0)
        return WorkerOptions(
            workers,
            self.explicit.get("prefetch_factor", DEFAULT_PREFETCH) if workers else None,
            bool(self.explicit.get("pin_memory", False)),
            bool(self.explicit.get("persistent_workers", False)),
        )

    @property
    def plan(self) -> Plan:
        """Each choice and the measurement behind it, excluding the cache."""
        return explicit_plan(self.explicit, self._reason)

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        """Prepare the next epoch; called before each epoch, even with persistent workers.

        `cache="auto"` is decided here or, if the epoch measures, during the epoch.
        """
        if cache is not None:
            cache.decide(view.dataset, None)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        return SingleProcessIterator(view, replace(start, options=self.options))


class WorkersStrategy(SingleProcessStrategy):
    """Loads with the number of workers that the user has set; only the prefetch factor may be decided.

    Once the first batch shows that memory allows it, eight batches are prefetched in total. Each worker makes
    the same batches as in torch, so it draws the same random numbers.
    """

    def __init__(self, view: LoaderView) -> None:
        super().__init__(view)
        self._is_decided = (
            "prefetch_factor" in view.explicit or not view.in_order or view.is_iterable or is_switched_off()
        )
        self._prefetch_factor = int(view.explicit.get("prefetch_factor", DEFAULT_PREFETCH))

    @property
    def options(self) -> WorkerOptions:
        return replace(super().options, prefetch_factor=self._prefetch_factor)

    @property
    def plan(self) -> Plan:
        return explicit_plan(self.explicit, prefetch_factor=self._prefetch_factor)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        def choose_prefetch(clock: StepClock) -> int:
            limits = read_limits(view.multiprocessing_context, clock.batch_bytes)
            measured = TuningMeasurements(dict(self.explicit), limits)
            self._prefetch_factor = prefetch_of(measured, clock.num_workers)
            self._is_decided = True
            return self._prefetch_factor

        # Limits are read only once: it takes a millisecond, and they hardly change.
        choose = None if self._is_decided else choose_prefetch
        return WorkersIterator(view, replace(start, options=self.options, choose_prefetch=choose))


class DeviceStrategy(SingleProcessStrategy):
    """Makes batches on the device that holds the dataset."""

    def __init__(self, view: LoaderView, resident: Resident) -> None:
        super().__init__(view, "batches are made on the device, where the dataset is")
        self._resident = resident

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        return SingleProcessIterator(replace(view, dataset=self._on_device(view.dataset)), start)

    def _on_device(self, dataset: Any) -> Any:
        """Return the dataset on the device, within the same subsets."""
        if is_plain_subset(dataset):
            return Subset(self._on_device(dataset.dataset), dataset.indices)
        return self._resident


class TunedStrategy:
    """Loads in the fastest way found by measuring the epochs' own batches.

    `worker_init_fn` is not called, as in torch without workers: the batches must not depend on the plan.
    """

    def __init__(self, view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> None:
        self.explicit = view.explicit
        self.tuner = Tuner(view, settings)
        self._cache: LoaderCache | None = None

    @property
    def options(self) -> WorkerOptions:
        return self.tuner.options

    @property
    def plan(self) -> Plan:
        return self.tuner.plan

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        self._cache = cache
        self.tuner.prepare(view, is_filling(view.dataset))
        if self.tuner.is_settled and cache is not None:
            cache.decide(view.dataset, self.tuner.measured.single_process)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        view = replace(view, worker_init_fn=None)
        options = self.tuner.options
        seeds_batches = not view.is_iterable and not self.tuner.is_off
        start = replace(start, seeds_batches=seeds_batches, options=options)
        # Once the number of workers is settled, persistent workers are managed as in torch.
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


EpochStrategy = SingleProcessStrategy | TunedStrategy


def choose_strategy(view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> EpochStrategy:
    if _torch.missing:
        return SingleProcessStrategy(view, _torch.explanation())
    if "num_workers" not in view.explicit:
        return TunedStrategy(view, settings)
    return WorkersStrategy(view) if view.explicit["num_workers"] else SingleProcessStrategy(view)
