"""Explicit workers prefetch eight batches in total, and each makes the same batches as in torch."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

import fastload
from tests.loader.tuning.simulation import limits


class Failing(Dataset[Any]):
    """A dataset that fills batches, and cannot read ahead."""

    def __len__(self) -> int:
        return 6

    def fetch_into(self, indices: Any, out: Any) -> Any:
        return torch.tensor(indices)

    def prefetch(self, indices: Any) -> None:
        raise OSError("stale file handle")


class Uneven(Dataset[Any]):
    """Every sixteenth sample takes long; each sample says which worker made it."""

    def __len__(self) -> int:
        return 96

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
    assert loader.prefetch_factor == loader.last_epoch.prefetch_factor == 4
    assert "8 prefetched batches" in loader.plan.prefetch_factor.reason


def test_prefetch_factor_that_was_set_stays():
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2, prefetch_factor=3)
    list(loader)
    assert loader.last_epoch.prefetch_factor == 3


def test_switched_off_tuning_prefetches_as_torch_does(monkeypatch):
    monkeypatch.setenv("FASTLOAD_PLAN", "off")
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2)
    list(loader)
    assert loader.last_epoch.prefetch_factor == 2


def test_prefetching_stays_within_memory(monkeypatch):
    few = limits(most_batches=6)
    monkeypatch.setattr("fastload.loader.strategies.read_limits", lambda context, size: few)
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2)
    list(loader)
    assert loader.last_epoch.prefetch_factor == 2


def test_loader_with_persistent_workers_is_freed_with_its_last_reference():
    loader = fastload.DataLoader(Uneven(), batch_size=2, num_workers=2, persistent_workers=True)
    next(iter(loader))
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_while_reading_ahead_does_not_end_an_epoch(workers):
    loader = fastload.DataLoader(Failing(), batch_size=2, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
