"""Plans are printed, cached for later runs, followed by them, and measured anew where they no longer fit."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os

import pytest

import fastload
from fastload.errors import OptionError
from fastload.loader._tuning import plan_cache
from tests.loader.tuning.datasets import Slow
from tests.loader.tuning.seen import cached_plans, numbers


@pytest.mark.usefixtures("_hasty")
def test_persistent_workers_follow_a_plan_from_the_cache():
    loader = fastload.DataLoader(Slow(900), batch_size=8, persistent_workers=True)
    while not loader.plan.is_settled:
        assert numbers(loader) == list(range(900))
    again = fastload.DataLoader(Slow(900), batch_size=8, persistent_workers=True)
    pids = []
    for _ in range(2):
        assert numbers(again) == list(range(900))
        pids.append({process.pid for process in multiprocessing.active_children()})
    assert "cached" in again.plan.origin
    assert pids[0] == pids[1] != set()


def test_nothing_is_tried_where_plans_are_off(monkeypatch):
    monkeypatch.setenv("FASTLOAD_PLAN", "off")
    loader = fastload.DataLoader(Slow(300), batch_size=8)
    assert numbers(loader) == list(range(300))
    assert loader.plan.num_workers.reason == "FASTLOAD_PLAN=off: nothing is tried"


def test_unknown_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv("FASTLOAD_PLAN", "of")
    with pytest.raises(OptionError, match='must be "off" or "fresh"'):
        iter(fastload.DataLoader(Slow(3)))


@pytest.mark.usefixtures("_hasty")
def test_plan_is_cached_and_followed_by_the_next_run(tmp_path, monkeypatch):
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    while not loader.plan.is_settled:
        list(loader)
    assert len(cached_plans(tmp_path)) == 1
    again = fastload.DataLoader(Slow(900), batch_size=8)
    iterator = iter(again)
    assert again.num_workers == loader.num_workers > 0
    assert again.plan.measured.limits.start_s == loader.plan.measured.limits.start_s
    assert "cached" in again.plan.origin
    assert numbers(iterator) == list(range(900))
    monkeypatch.setenv("FASTLOAD_PLAN", "fresh")
    fresh = fastload.DataLoader(Slow(900), batch_size=8)
    iter(fresh)
    assert fresh.num_workers == 0
    other = fastload.DataLoader(Slow(900), batch_size=16)
    monkeypatch.delenv("FASTLOAD_PLAN")
    iter(other)
    assert other.num_workers == 0


@pytest.mark.usefixtures("_hasty")
def test_damaged_plan_is_as_if_it_were_not_there(tmp_path):
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    while not loader.plan.is_settled:
        list(loader)
    (plan,) = cached_plans(tmp_path)
    sound = json.loads(plan.read_text())
    unsound = [copy.deepcopy(sound) for _ in range(4)]
    unsound[0]["num_workers"]["value"] = "x"
    unsound[1]["measured"]["single_process"]["load_s"] = -1
    unsound[2]["measured"]["trials"][0]["batches"] = 0
    unsound[3]["measured"]["trials"][0]["num_workers"] = -1
    for text in ("", "{}", "[1, 2", '{"num_workers": 3}', "null", *map(json.dumps, unsound)):
        plan.write_text(text)
        again = fastload.DataLoader(Slow(900), batch_size=8)
        iter(again)
        assert again.num_workers == 0


def test_plan_prints_as_a_table():
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    assert "nothing has been measured yet" in str(loader.plan)
    list(loader)
    text = str(loader.plan)
    for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache", "samples/s"):
        assert name in text


@pytest.mark.usefixtures("_hasty")
def test_search_ends_though_every_epoch_is_left():
    loader = fastload.DataLoader(Slow(4000), batch_size=8)
    for _ in range(8):
        for number, _batch in enumerate(loader):
            if number == 30:
                break
    assert loader.plan.is_settled
    assert loader.plan.num_workers.value > 0


def test_nothing_is_cached_where_there_is_no_home(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    loader = fastload.DataLoader(Slow(16), batch_size=8)
    assert numbers(loader) == list(range(16))
    plan_cache.write_plan(loader._view(), loader.plan)
    assert plan_cache.read_plan(loader._view()) is None
    plan_cache.forget_plan(loader._view())


def test_plan_of_the_time_before_a_cache_was_full_is_no_plan():
    loader = fastload.DataLoader(Slow(300), batch_size=8)
    list(loader)
    tuner = loader._strategy.tuner
    assert tuner.is_baseline_known
    tuner.prepare(loader._view(), is_filling=True)
    assert tuner.is_baseline_known
    tuner.prepare(loader._view(), is_filling=False)
    assert not tuner.is_baseline_known
    assert not tuner.is_settled
    assert numbers(loader) == list(range(300))


class Lighter(Slow):
    """Its samples take no time once `LIGHT` is set in the environment."""

    def __getitem__(self, index):
        return index if "LIGHT" in os.environ else super().__getitem__(index)


@pytest.mark.usefixtures("_hasty")
def test_plan_is_made_anew_where_samples_have_become_much_cheaper(monkeypatch):
    loader = fastload.DataLoader(Lighter(1800), batch_size=8)
    while not loader.plan.is_settled:
        list(loader)
    assert loader.plan.num_workers.value > 0
    monkeypatch.setenv("LIGHT", "1")
    for _ in range(3):
        assert numbers(loader) == list(range(1800))
    assert "measured again" in loader.plan.origin
