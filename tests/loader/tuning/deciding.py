"""Tuners that decide what a test wants instead of what is measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import fastload
from fastload.loader._arguments import LoaderView
from fastload.loader._measurements import Candidate, Trial, TuningSettings
from fastload.loader._strategies import TunedStrategy
from fastload.loader._tuning.decide import Decision
from fastload.loader._tuning.tuner import Tuner
from tests.loader.tuning.simulation import limits, single_process_cost


class HastyLoader(fastload.DataLoader[Any]):
    """Tries workers in short epochs, settles on less evidence than would be wise, and on two at most."""

    _tuning_settings = TuningSettings(window_s=0.05, budget_share=0.1, most_workers=2)


class SteadyLoader(fastload.DataLoader[Any]):
    """Tries candidates in short epochs, and keeps its plan: times of trivial samples vary most."""

    _tuning_settings = TuningSettings(window_s=1e-9, least_windows=-math.inf, changed=math.inf)


class Deciding(Tuner):
    """Tries one candidate after the other, however fast they are, and keeps the last."""

    def __init__(self, view: LoaderView, candidates: Sequence[Candidate], settings: TuningSettings) -> None:
        super().__init__(view, settings)
        self._candidates = candidates
        self.is_dataset_checked = True

    def decide(self) -> Decision:
        if not self.is_baseline_known:
            return Decision(Candidate(0, 0), None)
        # The first trial is without workers, whose cost is measured first.
        tried = len(self.measured.trials) - 1
        return Decision(self._candidates[-1], (*self._candidates, None)[min(tried, len(self._candidates))])

    def is_behind(self, workers: int) -> bool:
        return False


def strategy_of(loader: Any) -> TunedStrategy:
    """Return a loader's strategy, without waiting for its first epoch."""
    strategy = loader._choose_strategy()
    assert isinstance(strategy, TunedStrategy)
    return strategy


def trying(loader: fastload.DataLoader, *candidates: tuple[int, int]) -> fastload.DataLoader:
    """Make a loader load some batches in the training process, then some with each candidate."""
    wanted = [Candidate(*each) for each in candidates]
    strategy_of(loader).tuner = Deciding(loader._view(), wanted, loader._tuning_settings)
    return loader


def planned(loader: fastload.DataLoader, workers: int, prefetch: int = 2) -> fastload.DataLoader:
    """Make a loader begin with a settled plan."""
    tuner = strategy_of(loader).tuner
    prefetch = prefetch if workers else 0

    def decide() -> Decision:
        forbidden = bool(tuner.measured.why_no_workers)
        return Decision(Candidate(0, 0) if forbidden else Candidate(workers, prefetch), None)

    tuner.decide = decide  # type: ignore[method-assign]
    tuner.is_behind = lambda workers: False  # type: ignore[method-assign]
    trial = Trial(workers, prefetch, 10, 0.01, 0.0)
    # No time is less than half of this.
    cost = single_process_cost(-1.0)
    tuner.measured = dataclasses.replace(
        tuner.measured, limits=limits(), single_process=cost, trials=(trial,)
    )
    tuner.is_settled = tuner.is_dataset_checked = True
    return loader
