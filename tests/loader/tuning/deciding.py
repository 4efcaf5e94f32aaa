"""Tunings that decide what a test wants instead of what is measured."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import fastload
from fastload.loader.measurements import Decision, Trial, TuningSettings
from fastload.loader.strategies import TunedStrategy
from fastload.loader.tuning.tuning import Tuning
from tests.loader.tuning.simulation import limits, single_process_cost


class HastyLoader(fastload.DataLoader[Any]):
    """Tries workers in short epochs, settles on less evidence than would be wise, and on two at most."""

    _tuning_settings = TuningSettings(window_s=0.05, budget_share=0.1, most_workers=2)


class SteadyLoader(fastload.DataLoader[Any]):
    """Tries candidates in short epochs, and keeps its plan: times of trivial samples vary most."""

    _tuning_settings = TuningSettings(window_s=1e-9, least_windows=-math.inf, changed=math.inf)


@dataclass(frozen=True)
class Given(Tuning):
    """Prefetches as many batches as a test wants, however fast it loads."""

    prefetch: tuple[int, ...] = ()
    wanted: tuple[int, ...] = ()

    def prefetch_of(self, workers: int) -> int:
        return dict(zip(self.wanted, self.prefetch, strict=True)).get(workers, 0)

    def is_behind(self) -> bool:
        return False


@dataclass(frozen=True)
class Deciding(Given):
    """Tries one number of workers after the other, and keeps the last."""

    def decide(self) -> Decision:
        if self.single_process is None:
            return Decision(0, None)
        # The first trial is without workers, whose cost is measured first.
        tried = len(self.trials) - 1
        return Decision(self.wanted[-1], (*self.wanted, None)[min(tried, len(self.wanted))])


@dataclass(frozen=True)
class Planned(Given):
    """A settled plan."""

    def decide(self) -> Decision:
        return Decision(0 if self.why_no_workers else self.wanted[0], None)


def strategy_of(loader: Any) -> TunedStrategy:
    """Return a loader's strategy, without waiting for its first epoch."""
    strategy = loader._choose_strategy()
    assert isinstance(strategy, TunedStrategy)
    return strategy


def changed(tuning: Tuning, kind: type[Tuning], **values: Any) -> Tuning:
    """Return a tuning that decides as another kind does."""
    known = {field.name: getattr(tuning, field.name) for field in dataclasses.fields(tuning)}
    known["settings"] = dataclasses.replace(tuning.settings, least_watched=10**9)  # no epoch drops it
    return kind(**{**known, **values})


def trying(loader: fastload.DataLoader, *wanted: tuple[int, int]) -> fastload.DataLoader:
    """Make a loader load some batches in the training process, then some with each number of workers.

    Each is given with its prefetch factor.
    """
    tuner = strategy_of(loader).tuner
    workers, prefetch = zip(*wanted, strict=True)
    tuner.tuning = changed(tuner.tuning, Deciding, wanted=workers, prefetch=prefetch, is_dataset_checked=True)
    return loader


def planned(loader: fastload.DataLoader, workers: int, prefetch: int = 2) -> fastload.DataLoader:
    """Make a loader begin with a settled plan."""
    tuner = strategy_of(loader).tuner
    tuner.tuning = changed(
        tuner.tuning,
        Planned,
        wanted=(workers,),
        prefetch=(prefetch,),
        limits=limits(),
        single_process=single_process_cost(0.01),
        trials=(Trial(workers, 10, 0.01, 0.0),),
        is_settled=True,
        is_dataset_checked=True,
    )
    return loader
