"""A loader that was told nothing finds out how to load, and nobody sees it do so."""

from __future__ import annotations

import copy
import io
import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Sampler, TensorDataset

import fastload
from fastload.errors import OptionError
from fastload.tuning.unsaid import Unsaid
from tests.tuning.datasets import (
    AtHomeAlone,
    Counting,
    Deadly,
    Drawing,
    HoldingAFile,
    Lacking,
    Remembering,
    Slow,
    Unpicklable,
)


@pytest.fixture(autouse=True)
def _plans_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def _hasty(monkeypatch):
    """Settles on less evidence than would be wise."""
    monkeypatch.setattr("fastload.tuning.tuner._ENOUGH_S", 0.3)
    monkeypatch.setattr("fastload.tuning.tuner._WORTH_KEEPING_S", 0.1)
    monkeypatch.setattr("fastload.tuning.window._WINDOW_S", 0.05)


def numbers(batches):
    return [int(number) for batch in batches for number in batch]


def kept_plans(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.json"))


def tried(loader):
    return {trial.num_workers for trial in loader.plan.measured.trials}


def test_slow_samples_get_workers_and_the_order_is_torchs():
    torch.manual_seed(1)
    order = numbers(torch.utils.data.DataLoader(range(900), batch_size=10, shuffle=True))
    torch.manual_seed(1)
    loader = fastload.DataLoader(Slow(900), batch_size=10, shuffle=True)
    assert numbers(loader) == order
    assert tried(loader) - {0}


@pytest.mark.parametrize("said", [{}, {"num_workers": 2}, {"num_workers": 0}])
def test_loader_that_has_measured_is_pickled_and_its_state_is_plain(said):
    loader = fastload.DataLoader(Slow(300), batch_size=8, **said)
    list(loader)
    iterator = iter(loader)
    next(iterator)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    for copied in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        assert ("num_workers" in said) == (copied.plan.num_workers.reason == "as you said")
        copied.load_state_dict(state)
        assert numbers(copied) == list(range(8, 300))


def test_each_sample_is_read_once_in_each_epoch_of_trials(tmp_path):
    dataset = Slow(600, log=tmp_path / "reads")
    loader = fastload.DataLoader(dataset, batch_size=8, shuffle=True)
    for epoch in (1, 2):
        assert sorted(numbers(loader)) == list(range(600))
        reads = Counter(map(int, (tmp_path / "reads").read_text().split()))
        assert reads == Counter(dict.fromkeys(range(600), epoch))
    assert tried(loader) - {0}


@pytest.mark.parametrize("length", [1, 7, 5000])
def test_cheap_samples_are_loaded_without_workers_as_by_torch(length):
    states = []
    for kind in (torch.utils.data.DataLoader, fastload.DataLoader):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        loader = kind(TensorDataset(torch.arange(length)), batch_size=3, shuffle=True)
        orders = [[int(n) for (batch,) in loader for n in batch] for _ in range(3)]
        states.append((orders, torch.rand(2).tolist(), random.random(), np.random.rand()))
    assert states[0] == states[1]
    assert loader.plan.num_workers.value == 0


@pytest.mark.parametrize("kind", [Counting, Remembering, Drawing])
def test_dataset_that_reading_changes_keeps_the_training_process(kind):
    loader = fastload.DataLoader(kind(length=200), batch_size=5, shuffle=True)
    assert sorted(numbers(loader)) == list(range(200))
    assert loader.plan.num_workers.value == 0
    assert "reading changes the dataset" in loader.plan.num_workers.reason
    assert getattr(loader.dataset, "reads", 200) == 200


def test_dataset_that_holds_a_file_open_keeps_the_training_process(tmp_path):
    loader = fastload.DataLoader(HoldingAFile(tmp_path / "numbers", length=300), batch_size=5, shuffle=True)
    assert sorted(numbers(loader)) == list(range(300))
    assert "holds open" in loader.plan.num_workers.reason
    loader.dataset.file.close()


@pytest.mark.parametrize("kind", [AtHomeAlone, Deadly])
def test_batches_that_workers_cannot_make_are_made_by_the_training_process(kind, tmp_path):
    loader = fastload.DataLoader(kind(length=600), batch_size=6, shuffle=True)
    for _ in range(2):
        assert sorted(numbers(loader)) == list(range(600))
    plan = loader.plan
    assert plan.num_workers.value == 0
    assert "failed where the training process does not" in plan.num_workers.reason
    assert not kept_plans(tmp_path)


def test_error_of_a_sample_is_raised_as_without_workers_and_the_epoch_goes_on():
    loader = fastload.DataLoader(Lacking(), batch_size=8)
    iterator, seen, errors = iter(loader), [], []
    while True:
        try:
            seen += [int(number) for number in next(iterator)]
        except StopIteration:
            break
        except KeyError as error:
            errors.append(error)
    assert [error.args for error in errors] == [("four hundred is missing",)]
    assert tried(loader) - {0}
    lost = set(range(600)) - set(seen)
    assert lost == set(range(400, 408))
    assert seen == sorted(seen)


def test_unpicklable_dataset_is_loaded_without_workers_where_these_are_spawned():
    dataset = Unpicklable(length=2000, seconds=0.02)
    loader = fastload.DataLoader(dataset, batch_size=2, multiprocessing_context="spawn")
    iterator = iter(loader)
    assert numbers(next(iterator) for _ in range(30)) == list(range(60))
    plan = loader.plan
    assert plan.num_workers.value == 0
    assert "pickle" in plan.num_workers.reason


def test_epoch_left_in_a_trial_is_resumed_at_the_next_batch():
    for stop in (3, 40, 75):
        torch.manual_seed(2)
        whole = numbers(torch.utils.data.DataLoader(range(1000), batch_size=10, shuffle=True))
        torch.manual_seed(2)
        loader = fastload.DataLoader(Slow(1000, seconds=0.002), batch_size=10, shuffle=True)
        iterator = iter(loader)
        first = numbers(next(iterator) for _ in range(stop))
        state = loader.state_dict()
        del iterator
        other = fastload.DataLoader(Slow(1000, seconds=0.002), batch_size=10, shuffle=True)
        other.load_state_dict(state)
        assert first + numbers(other) == whole


def test_epoch_that_is_left_early_leaves_no_process():
    loader = fastload.DataLoader(Slow(), batch_size=8)
    before = set(multiprocessing.active_children())
    for number, _ in enumerate(loader):
        if number == 60:
            break
    assert set(multiprocessing.active_children()) <= before


def test_two_epochs_at_once_give_all_batches_of_both():
    loader = fastload.DataLoader(Slow(600), batch_size=6)
    pairs = list(zip(loader, loader, strict=True))
    assert numbers(first for first, _ in pairs) == list(range(600))
    assert numbers(second for _, second in pairs) == list(range(600))


def test_batches_held_over_changes_of_workers_stay_what_they_were():
    loader = fastload.DataLoader(Slow(1500), batch_size=10)
    held = list(loader)
    assert numbers(held) == list(range(1500))
    assert len(tried(loader)) >= 2


@pytest.mark.parametrize(
    "said", [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 5}]
)
def test_what_was_said_is_done(said):
    loader = fastload.DataLoader(Slow(200, seconds=0.001), batch_size=4, **said)
    assert numbers(loader) == list(range(200))
    assert loader.num_workers == said["num_workers"]
    assert loader.plan.num_workers.value == said["num_workers"]
    assert loader.plan.num_workers.reason == "as you said"
    assert loader.last_epoch.num_workers == said["num_workers"]
    assert tried(loader) <= {said["num_workers"]}


def test_prefetch_factor_may_be_said_without_num_workers():
    loader = fastload.DataLoader(Slow(700), batch_size=8, prefetch_factor=3)
    assert numbers(loader) == list(range(700))
    assert {trial.prefetch_factor for trial in loader.plan.measured.trials} <= {3, 0}
    assert loader.prefetch_factor == 3


def test_persistent_workers_may_be_said_without_num_workers():
    loader = fastload.DataLoader(Slow(900), batch_size=8, persistent_workers=True)
    for _ in range(3):
        assert numbers(loader) == list(range(900))
    assert loader.plan.persistent_workers.value is True


@pytest.mark.usefixtures("_hasty")
def test_persistent_workers_follow_a_plan_that_was_kept():
    loader = fastload.DataLoader(Slow(900), batch_size=8, persistent_workers=True)
    while not loader.plan.is_settled:
        assert numbers(loader) == list(range(900))
    again = fastload.DataLoader(Slow(900), batch_size=8, persistent_workers=True)
    pids = []
    for _ in range(2):
        assert numbers(again) == list(range(900))
        pids.append({process.pid for process in multiprocessing.active_children()})
    assert "kept" in again.plan.origin
    assert pids[0] == pids[1] != set()


def test_loader_made_anew_with_persistent_workers_gives_every_epoch_whole():
    loader = fastload.DataLoader(Slow(900), batch_size=8, persistent_workers=True)
    loader.num_workers = Unsaid(3)  # as another one left it
    for _ in range(3):
        assert numbers(loader) == list(range(900))


class Endless(Sampler[list[int]]):
    """Batches without a length."""

    def __iter__(self):
        for first in range(0, 1200, 6):
            yield list(range(first, first + 6))


def test_batch_sampler_without_a_length():
    loader = fastload.DataLoader(Slow(1200), batch_sampler=Endless())
    for _ in range(2):
        assert numbers(loader) == list(range(1200))
    assert tried(loader) - {0}


def test_worker_that_dies_while_the_training_computes_is_done_without():
    loader = fastload.DataLoader(Slow(900), batch_size=6)
    before = set(multiprocessing.active_children())
    seen, victims = [], []
    for batch in loader:
        seen += numbers([batch])
        workers = set(multiprocessing.active_children()) - before
        if workers and not victims and len(seen) > 450:
            victims = [process.pid for process in workers]
            os.kill(victims[0], signal.SIGKILL)
            time.sleep(0.3)
    assert victims
    assert seen == list(range(900))


class Warning_(Slow):
    """Tells whether a warning becomes an error where it is read."""

    def __getitem__(self, index):
        super().__getitem__(index)
        try:
            warnings.warn("look here", UserWarning, stacklevel=1)
        except UserWarning:
            return torch.tensor(1)
        return torch.tensor(0)


def test_warnings_are_shown_by_workers_as_without():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loader = fastload.DataLoader(Warning_(700), batch_size=8)
        assert set(numbers(loader)) == {1}
    assert tried(loader) - {0}


def test_number_of_workers_set_in_the_attribute_is_done():
    loader = fastload.DataLoader(Slow(100), batch_size=8)
    list(loader)
    loader.num_workers = 1
    assert numbers(loader) == list(range(100))
    assert loader.num_workers == 1
    assert loader.plan.num_workers.reason == "as you said"
    assert loader.last_epoch.num_workers == 1


def test_start_method_may_be_set_after_an_epoch():
    code = (
        "import multiprocessing, fastload\n"
        "list(fastload.DataLoader(range(10)))\n"
        "multiprocessing.set_start_method('spawn')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_loader_made_anew_from_its_attributes_is_still_tuned():
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    list(loader)
    names = ("dataset", "batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
    again = fastload.DataLoader(**{name: getattr(loader, name) for name in names})
    assert isinstance(again.num_workers, Unsaid)
    assert again.plan.num_workers.reason != "as you said"
    assert again.plan.prefetch_factor.reason != "as you said"


def test_iterable_dataset_is_loaded_once_without_workers():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(20))

    loader = fastload.DataLoader(Stream(), batch_size=2)
    assert numbers(loader) == list(range(20))
    assert "iterable" in loader.plan.num_workers.reason


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
def test_plan_is_kept_and_followed_by_the_next_run(tmp_path, monkeypatch):
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    while not loader.plan.is_settled:
        list(loader)
    assert len(kept_plans(tmp_path)) == 1
    again = fastload.DataLoader(Slow(900), batch_size=8)
    iterator = iter(again)
    assert again.num_workers == loader.num_workers > 0
    assert "kept" in again.plan.origin
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
    (plan,) = kept_plans(tmp_path)
    sound = json.loads(plan.read_text())
    unsound = [copy.deepcopy(sound) for _ in range(4)]
    unsound[0]["num_workers"]["value"] = "x"
    unsound[1]["measured"]["alone"]["load_s"] = -1
    unsound[2]["measured"]["trials"][0]["batches"] = 0
    unsound[3]["measured"]["trials"][0]["num_workers"] = -1
    for text in ("", "{}", "[1, 2", '{"num_workers": 3}', "null", *map(json.dumps, unsound)):
        plan.write_text(text)
        again = fastload.DataLoader(Slow(900), batch_size=8)
        iter(again)
        assert again.num_workers == 0


@pytest.mark.usefixtures("_hasty")
def test_epochs_too_short_for_a_trial_are_trials_as_a_whole():
    loader = fastload.DataLoader(Slow(40, seconds=0.02), batch_size=2)
    for _ in range(20):
        assert numbers(loader) == list(range(40))
        if loader.plan.is_settled:
            break
    assert loader.plan.is_settled


def test_plan_prints_as_a_table():
    loader = fastload.DataLoader(Slow(900), batch_size=8)
    assert "nothing has been measured yet" in str(loader.plan)
    list(loader)
    text = str(loader.plan)
    for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache", "samples/s"):
        assert name in text


def test_daemonic_process_loads_by_itself(tmp_path):
    context = multiprocessing.get_context("fork")
    result = tmp_path / "result"

    def load():
        loader = fastload.DataLoader(Slow(400), batch_size=8)
        assert numbers(loader) == list(range(400))
        result.write_text(loader.plan.num_workers.reason)

    process = context.Process(target=load, daemon=True)
    process.start()
    process.join(60)
    assert "daemonic" in result.read_text()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_script_without_a_guard_is_run_once_where_workers_import_it(tmp_path, method):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing, os, sys
            with open({str(tmp_path / "runs")!r}, "a") as runs:
                runs.write("run\\n")
            multiprocessing.set_start_method({method!r})
            import fastload
            from tests.tuning.datasets import Slow
            loader = fastload.DataLoader(Slow(150, seconds=0.01), batch_size=4)
            print(sum(int(n) for batch in loader for n in batch))
            print(loader.plan.num_workers.reason)
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    total, reason = done.stdout.splitlines()
    assert int(total) == sum(range(150))
    assert "run your script again" in reason
    assert (tmp_path / "runs").read_text() == "run\n"


def test_times_of_the_last_epoch_add_up():
    loader = fastload.DataLoader(Slow(400), batch_size=8, num_workers=2)
    assert loader.last_epoch is None
    list(loader)
    times = loader.last_epoch
    assert (times.batches, times.batch_size, times.samples) == (50, 8, 400)
    assert sum(each.samples for each in times.loading) == 400
    assert sum(each.batches for each in times.loading) == 50
    assert all(0 < each.cpu_s <= each.busy_s * 1.05 for each in times.loading)
    assert 0.5 < times.waiting_share <= 1
