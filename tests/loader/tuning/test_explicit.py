"""Explicit parameters are obeyed, whatever would be faster."""

from __future__ import annotations

import pytest

from fastload.loader.arguments import Unset
from tests.commands import run_python
from tests.loader.tuning.datasets import Slow
from tests.loader.tuning.deciding import HastyLoader
from tests.loader.tuning.seen import numbers


def tried(loader):
    return {trial.num_workers for trial in loader.plan.measured.trials}


@pytest.mark.parametrize(
    "explicit", [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 5}]
)
def test_explicit_parameters_are_obeyed(explicit):
    loader = HastyLoader(Slow(200, seconds=0.001), batch_size=4, **explicit)
    assert numbers(loader) == list(range(200))
    assert loader.num_workers == explicit["num_workers"]
    assert loader.plan.num_workers.value == explicit["num_workers"]
    assert loader.plan.num_workers.reason == "set by you"
    assert loader.last_epoch.num_workers == explicit["num_workers"]
    assert not tried(loader)


def test_prefetch_factor_may_be_set_without_num_workers():
    loader = HastyLoader(Slow(300), batch_size=8, prefetch_factor=3)
    assert numbers(loader) == list(range(300))
    assert loader.last_epoch.prefetch_factor in (3, None)  # None: no workers
    assert loader.prefetch_factor == 3


def test_persistent_workers_may_be_set_without_num_workers():
    loader = HastyLoader(Slow(300), batch_size=8, persistent_workers=True)
    for _ in range(3):
        assert numbers(loader) == list(range(300))
    assert loader.plan.persistent_workers.value is True


def test_recreated_loader_with_persistent_workers_gives_complete_epochs():
    loader = HastyLoader(Slow(300), batch_size=8, persistent_workers=True)
    loader.num_workers = Unset(3)  # as copied from another loader
    for _ in range(3):
        assert numbers(loader) == list(range(300))


def test_number_of_workers_set_in_the_attribute_is_obeyed():
    loader = HastyLoader(Slow(100), batch_size=8)
    list(loader)
    loader.num_workers = 1
    assert numbers(loader) == list(range(100))
    assert loader.num_workers == 1
    assert loader.plan.num_workers.reason == "set by you"
    assert loader.last_epoch.num_workers == 1


def test_start_method_may_be_set_after_an_epoch():
    code = (
        "import multiprocessing, fastload\n"
        "list(fastload.DataLoader(range(10)))\n"
        "multiprocessing.set_start_method('spawn')"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr


def test_loader_recreated_from_its_attributes_is_still_tuned():
    loader = HastyLoader(Slow(300), batch_size=8)
    list(loader)
    names = ("dataset", "batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
    again = HastyLoader(**{name: getattr(loader, name) for name in names})
    assert isinstance(again.num_workers, Unset)
    assert again.plan.num_workers.reason != "set by you"
    assert again.plan.prefetch_factor.reason != "set by you"
