"""Tuners that decide what a test says, in place of what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fastload
from fastload.loader.strategy import LoaderView
from fastload.loader.tuning.plan import Trial
from fastload.loader.tuning.search import Candidate
from fastload.loader.tuning.strategy import TunedStrategy
from fastload.loader.tuning.tuner import Tuner
from tests.loader.tuning.simulation import alone, limits


class Deciding(Tuner):
    """Tries one candidate after the other, however they do, and stays with the last."""

    def __init__(self, view: LoaderView, candidates: Sequence[Candidate]) -> None:
        super().__init__(view)
        self._candidates = candidates
        self.is_checked = True

    def next(self) -> Candidate | None:
        tried = len(self._measured.trials)
        return self._candidates[tried] if tried < len(self._candidates) else None

    def best(self) -> Candidate:
        return self._candidates[-1] if self._candidates else Candidate(0, 0)

    def to_start(self, num_workers: int) -> int:
        return num_workers


def strategy_of(loader: Any) -> TunedStrategy:
    """Returns a loader's strategy, without waiting for its first epoch."""
    strategy = loader._choose_strategy()
    assert isinstance(strategy, TunedStrategy)
    return strategy


def trying(loader: fastload.DataLoader, *candidates: tuple[int, int]) -> fastload.DataLoader:
    """Has a loader load some batches alone, then some in each of some ways."""
    strategy_of(loader).tuner = Deciding(loader._view(), [Candidate(*each) for each in candidates])
    return loader


def planned(loader: fastload.DataLoader, workers: int, prefetch: int = 2) -> fastload.DataLoader:
    """Has a loader begin as a plan says that was kept."""
    tuner = strategy_of(loader).tuner
    trial = Trial(workers, prefetch if workers else 0, 10, 0.01, 0.0)
    tuner._change(limits=limits(), alone=alone(1.0), trials=(trial,))
    tuner._is_settled = tuner.is_checked = True
    return loader
