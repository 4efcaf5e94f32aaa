"""Plans are printed, and measured again if they no longer fit."""

from __future__ import annotations

import multiprocessing
import os

import pytest

import fastload
from fastload.errors import OptionError
from tests.loader.tuning.datasets import Slow
from tests.loader.tuning.deciding import HastyLoader, planned
from tests.loader.tuning.seen import numbers


def test_persistent_workers_stay_once_the_plan_is_settled():
    loader = planned(fastload.DataLoader(Slow(100), batch_size=8, persistent_workers=True), 2)
    pids = []
    for _ in range(2):
        assert numbers(loader) == list(range(100))
        pids.append({process.pid for process in multiprocessing.active_children()})
    assert pids[0] == pids[1] != set()


def test_nothing_is_tried_if_plans_are_off(monkeypatch):
    monkeypatch.setenv("FASTLOAD_PLAN", "off")
    loader = fastload.DataLoader(Slow(300), batch_size=8)
    assert numbers(loader) == list(range(300))
    assert loader.plan.num_workers.reason == "FASTLOAD_PLAN=off: nothing is tried"


def test_unknown_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv("FASTLOAD_PLAN", "of")
    with pytest.raises(OptionError, match='must be "off", or not set'):
        iter(fastload.DataLoader(Slow(3)))


def test_plan_prints_as_a_table():
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    assert "nothing has been measured yet" in str(loader.plan)
    text = str(planned(loader, 2).plan)
    for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache", "samples/s"):
        assert name in text


@pytest.mark.soak
def test_search_ends_even_if_every_epoch_is_left_early():
    loader = HastyLoader(Slow(4000), batch_size=8)
    for _ in range(8):
        for number, _batch in enumerate(loader):
            if number == 30:
                break
    assert loader.plan.is_settled
    assert loader.plan.num_workers.value > 0


class Lighter(Slow):
    """Its samples take no time once `LIGHT` is set in the environment."""

    def __getitem__(self, index):
        return index if "LIGHT" in os.environ else super().__getitem__(index)


def test_plan_is_made_again_if_samples_become_much_cheaper(monkeypatch):
    loader = HastyLoader(Lighter(1800), batch_size=8)
    while not loader.plan.is_settled:
        list(loader)
    assert loader.plan.num_workers.value > 0
    monkeypatch.setenv("LIGHT", "1")
    for _ in range(3):
        assert numbers(loader) == list(range(1800))
    assert "measured again" in loader.plan.origin
