"""Tunings that decide what a test wants instead of what is measured."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import fastload
from fastload.loader._measurements import SINGLE_PROCESS, Candidate, Decision, Trial, TuningSettings
from fastload.loader._strategies import TunedStrategy
from fastload.loader._tuning.tuning import Tuning
from tests.loader.tuning.simulation import limits, single_process_cost


class HastyLoader(fastload.DataLoader[Any]):
    """Tries workers in short epochs, settles on less evidence than would be wise, and on two at most."""

    _tuning_settings = TuningSettings(window_s=0.05, budget_share=0.1, most_workers=2)


class SteadyLoader(fastload.DataLoader[Any]):
    """Tries candidates in short epochs, and keeps its plan: times of trivial samples vary most."""

    _tuning_settings = TuningSettings(window_s=1e-9, least_windows=-math.inf, changed=math.inf)


@dataclass(frozen=True)
class Deciding(Tuning):
    """Tries one candidate after the other, however fast they are, and keeps the last."""

    candidates: tuple[Candidate, ...] = ()

    def decide(self) -> Decision:
        if self.single_process is None:
            return Decision(SINGLE_PROCESS, None)
        # The first trial is without workers, whose cost is measured first.
        tried = len(self.trials) - 1
        return Decision(self.candidates[-1], (*self.candidates, None)[min(tried, len(self.candidates))])

    def is_behind(self, workers: int) -> bool:
        return False


@dataclass(frozen=True)
class Planned(Tuning):
    """A settled plan."""

    candidate: Candidate = SINGLE_PROCESS

    def decide(self) -> Decision:
        return Decision(SINGLE_PROCESS if self.why_no_workers else self.candidate, None)

    def is_behind(self, workers: int) -> bool:
        return False


def strategy_of(loader: Any) -> TunedStrategy:
    """Return a loader's strategy, without waiting for its first epoch."""
    strategy = loader._choose_strategy()
    assert isinstance(strategy, TunedStrategy)
    return strategy


def changed(tuning: Tuning, kind: type[Tuning], **values: Any) -> Tuning:
    """Return a tuning that decides as another kind does."""
    known = {field.name: getattr(tuning, field.name) for field in dataclasses.fields(tuning)}
    return kind(**{**known, **values})


def trying(loader: fastload.DataLoader, *candidates: tuple[int, int]) -> fastload.DataLoader:
    """Make a loader load some batches in the training process, then some with each candidate."""
    tuner = strategy_of(loader).tuner
    wanted = tuple(Candidate(*each) for each in candidates)
    tuner.state = changed(tuner.state, Deciding, candidates=wanted, is_dataset_checked=True)
    return loader


def planned(loader: fastload.DataLoader, workers: int, prefetch: int = 2) -> fastload.DataLoader:
    """Make a loader begin with a settled plan."""
    tuner = strategy_of(loader).tuner
    prefetch = prefetch if workers else 0
    tuner.state = changed(
        tuner.state,
        Planned,
        candidate=Candidate(workers, prefetch),
        limits=limits(),
        # No time is less than half of this.
        single_process=single_process_cost(-1.0),
        trials=(Trial(workers, prefetch, 10, 0.01, 0.0),),
        is_settled=True,
        is_dataset_checked=True,
    )
    return loader
