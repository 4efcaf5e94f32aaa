"""Strategies that measure nothing: in the training process, in workers, on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastload.datasets.cache.resident import Resident
from fastload.loader import _torch
from fastload.loader._caching import LoaderCache
from fastload.loader._iterators import SingleProcessIterator, WorkersIterator
from fastload.loader._measurements import PlannedValue
from fastload.loader._strategy import EpochIterator, EpochStart, EpochStrategy, LoaderView, WorkerOptions
from fastload.loader._transport.filling import SeededIndices, innermost
from fastload.loader._tuning.plan import Plan, explicit_plan
from fastload.loader._tuning.prefetching import PrefetchRule
from fastload.loader._tuning.strategy import TunedStrategy


def choose_strategy(view: LoaderView) -> EpochStrategy:
    """Return the strategy for a loader's arguments."""
    if _torch.missing:
        return SingleProcessStrategy(view, _torch.explanation())
    if "num_workers" not in view.explicit:
        return TunedStrategy(view)
    return WorkersStrategy(view) if view.explicit["num_workers"] else SingleProcessStrategy(view)


class SingleProcessStrategy:
    """Loads in the training process, with the user's options; `reason` says why, if the user did not ask."""

    def __init__(self, view: LoaderView, reason: str = "") -> None:
        self.explicit = view.explicit
        self._reason = reason

    @property
    def options(self) -> WorkerOptions:
        workers = self.explicit.get("num_workers", 0)
        return WorkerOptions(
            workers,
            self.explicit.get("prefetch_factor", 2) if workers else None,
            bool(self.explicit.get("pin_memory", False)),
            bool(self.explicit.get("persistent_workers", False)),
        )

    @property
    def plan(self) -> Plan:
        return explicit_plan(self.explicit, self._reason)

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        if cache is not None:
            cache.decide(view.dataset, None)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        return SingleProcessIterator(view, replace(start, options=self.options))


class WorkersStrategy(SingleProcessStrategy):
    """Loads in as many workers as the user has set; decides at most the number of batches in advance."""

    def __init__(self, view: LoaderView) -> None:
        super().__init__(view)
        is_prefetch_open = "prefetch_factor" not in view.explicit and view.in_order and not view.is_iterable
        self._prefetching = PrefetchRule(view.explicit) if is_prefetch_open else None

    @property
    def options(self) -> WorkerOptions:
        if self._prefetching is None:
            return super().options
        return replace(super().options, prefetch_factor=self._prefetching.prefetch_factor)

    @property
    def plan(self) -> Plan:
        rule = self._prefetching
        if rule is None:
            return super().plan
        return replace(super().plan, prefetch_factor=PlannedValue(rule.prefetch_factor, rule.reason))

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        watch = None if self._prefetching is None else self._prefetching.watch(view)
        return WorkersIterator(view, replace(start, options=self.options, watch=watch))


class DeviceStrategy(SingleProcessStrategy):
    """Makes batches on the device that holds the dataset."""

    def __init__(self, view: LoaderView, resident: Resident) -> None:
        super().__init__(view, "batches are made on the device, where the dataset lies")
        self._resident = resident

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        iterator = SingleProcessIterator(view, replace(start, reads_samples=False))

        def make(seeded: SeededIndices) -> Any:
            return self._resident.batch(innermost(view.dataset, seeded.indices)[1], seeded.seed)

        iterator.make_with(make)
        return iterator
