"""How early workers that were said are asked for batches is found out; who makes which is not changed."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

import fastload
from fastload.loader.tuning.plan import Measurements, Trial
from fastload.loader.tuning.search import Candidate, best_candidate, next_prefetch
from tests.loader.tuning.simulation import limits


def searched(batch_s: dict[int, float], waiting: float, most_batches: int = 1000) -> Candidate:
    measured = Measurements({"num_workers": 2}, limits(most_batches=most_batches))
    while (candidate := next_prefetch(measured, 2)) is not None:
        assert len(measured.trials) < 20
        seconds = batch_s[candidate.prefetch_factor]
        trial = Trial(*candidate, 4, 4 * seconds, 4 * seconds * waiting)
        measured = Measurements(measured.said, measured.limits, trials=(*measured.trials, trial))
    return best_candidate(measured)


@pytest.mark.parametrize(
    ("batch_s", "waiting", "expected"),
    [
        ({2: 0.1}, 0.0, 2),
        ({2: 0.1, 4: 0.1}, 0.5, 2),
        ({2: 0.1, 4: 0.08, 8: 0.0795}, 0.5, 4),
        ({2: 0.1, 4: 0.08, 8: 0.06}, 0.5, 8),
    ],
)
def test_more_is_asked_for_while_that_gains(batch_s, waiting, expected):
    assert searched(batch_s, waiting) == (2, expected)


def test_more_is_not_asked_for_than_there_is_room():
    assert searched({2: 0.1, 4: 0.05}, 0.5, most_batches=8) == (2, 2)


class Uneven(Dataset[Any]):
    """Every sixteenth sample takes long; each tells which worker made it."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.04 if index % 16 == 0 else 0.0005)
        return torch.tensor([index, get_worker_info().id])


@pytest.mark.parametrize("persistent", [False, True])
def test_each_worker_makes_what_it_makes_in_torch(persistent):
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2, persistent_workers=persistent)
    for _ in range(3):
        for number, batch in enumerate(loader):
            assert batch[:, 0].tolist() == [2 * number, 2 * number + 1]
            assert batch[:, 1].tolist() == [number % 2] * 2
    assert {trial.num_workers for trial in loader.plan.measured.trials} == {2}
    assert loader.plan.prefetch_factor.reason != "as you said"


def test_prefetch_factor_that_was_said_stays():
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2, prefetch_factor=3)
    list(loader)
    assert loader.last_epoch.prefetch_factor == 3
    assert not loader.plan.measured.trials


def test_loader_whose_workers_live_on_is_let_go_with_its_last_name():
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2, persistent_workers=True)
    next(iter(loader))
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()
