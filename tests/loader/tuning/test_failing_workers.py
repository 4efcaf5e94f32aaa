"""Workers that fail are replaced by the training process, and the epoch continues."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
import weakref

import pytest
import torch

import fastload
from tests.loader.tuning.datasets import Deadly, Lacking, OnlyInItsProcess, Slow, Unpicklable
from tests.loader.tuning.deciding import HastyLoader, planned
from tests.loader.tuning.seen import numbers


def tried(loader):
    return {trial.num_workers for trial in loader.plan.measured.trials}


@pytest.mark.parametrize("kind", [pytest.param(OnlyInItsProcess, marks=pytest.mark.soak), Deadly])
def test_batches_that_workers_cannot_make_are_made_by_the_training_process(kind):
    loader = fastload.DataLoader(kind(length=600), batch_size=6, shuffle=True)
    for _ in range(2):
        assert sorted(numbers(loader)) == list(range(600))
    plan = loader.plan
    assert plan.num_workers.value == 0
    assert "failed where the training process does not" in plan.num_workers.reason


def test_error_of_a_sample_is_raised_as_without_workers_and_the_epoch_continues():
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


def test_iterator_is_freed_at_once_after_an_error_of_a_sample():
    gc.disable()
    try:
        iterator = iter(planned(fastload.DataLoader(Lacking(seconds=0.0), batch_size=401), 1))
        with contextlib.suppress(KeyError):
            next(iterator)
        gone = weakref.ref(iterator)
        del iterator
        assert gone() is None
    finally:
        gc.enable()


def test_unpicklable_dataset_is_loaded_without_workers_if_they_would_be_spawned():
    dataset = Unpicklable(length=20_000, seconds=0.02)
    loader = fastload.DataLoader(dataset, batch_size=2, multiprocessing_context="spawn")
    iterator = iter(loader)
    assert numbers(next(iterator) for _ in range(30)) == list(range(60))
    plan = loader.plan
    assert plan.num_workers.value == 0
    assert "pickle" in plan.num_workers.reason


def test_epoch_that_is_left_early_leaves_no_process():
    loader = fastload.DataLoader(Slow(), batch_size=8)
    before = set(multiprocessing.active_children())
    for number, _ in enumerate(loader):
        if number == 60:
            break
    assert set(multiprocessing.active_children()) <= before


def test_training_continues_without_a_worker_that_dies_during_a_step():
    loader = planned(fastload.DataLoader(Slow(900), batch_size=6), workers=2)
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
    """Returns whether a warning becomes an error in the process that reads."""

    def __getitem__(self, index):
        super().__getitem__(index)
        try:
            warnings.warn("look here", UserWarning, stacklevel=1)
        except UserWarning:
            return torch.tensor(1)
        return torch.tensor(0)


def test_warning_filters_apply_in_workers():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loader = HastyLoader(Warning_(300), batch_size=8)
        assert set(numbers(loader)) == {1}
    assert tried(loader) - {0}


def test_daemonic_process_starts_no_workers(tmp_path):
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
@pytest.mark.soak
def test_script_without_a_guard_is_run_only_once(tmp_path, method):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing, os, sys
            with open({str(tmp_path / "runs")!r}, "a") as runs:
                runs.write("run\\n")
            multiprocessing.set_start_method({method!r})
            import fastload
            from tests.loader.tuning.datasets import Slow
            loader = fastload.DataLoader(Slow(400, seconds=0.01), batch_size=4)
            print(sum(int(n) for batch in loader for n in batch))
            print(loader.plan.num_workers.reason)
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    total, reason = done.stdout.splitlines()
    assert int(total) == sum(range(400))
    assert "run your script again" in reason
    assert (tmp_path / "runs").read_text() == "run\n"
