"""Errors for objects that cannot be sent to new worker processes name the argument and the reason."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fastload
from fastload.loader.transport.picklable import why_not_picklable
from tests.commands import run_python
from tests.loader.datasets import Rows
from tests.loader.tuning.deciding import planned
from tests.loader.tuning.seen import numbers


class Holding(Rows):
    """Rows with another attribute."""

    def __init__(self, **held: Any) -> None:
        super().__init__(6, 4)
        vars(self).update(held)

    def __getitem__(self, index: int) -> Any:
        return index


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside: Any) -> None:
        self.inside = inside


class Careful(Holding):
    """Rows that are pickled without the unpicklable part."""

    def __getstate__(self) -> dict[str, Any]:
        return {"length": self.length, "size": self.size}


def local() -> Any:
    class Local:
        pass

    return Local()


double = lambda value: 2 * value  # noqa: E731

PARTS = {
    "lambda": (lambda: {"transform": SimpleNamespace(steps=[len, lambda x: x])}, "lambda"),
    "file": (lambda: {"files": {"a": [open(__file__)]}}, "TextIOWrapper"),  # noqa: SIM115
    "local": (lambda: {"made": local()}, "Local"),
    "partial": (lambda: {"transform": functools.partial(pow, 2, mod=threading.Lock())}, "lock"),
    "bound": (lambda: {"transform": Holding(lock=threading.Lock()).__len__}, "lock"),
    "slots": (lambda: {"box": Slotted((1, threading.Lock()))}, "lock"),
    "generator": (lambda: {"numbers": (number for number in ())}, "generator"),
}


@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize("part", PARTS)
def test_reason_is_that_of_pickle(part):
    make, kind = PARTS[part]
    assert kind in why_not_picklable(Holding(rows=torch.zeros(5), **make()))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="pickle notes places from Python 3.14 on")
def test_reason_tells_the_place_where_pickle_notes_it():
    assert "transform" in why_not_picklable(Holding(transform=double))


def test_objects_that_only_new_processes_can_receive_are_not_named():
    context = multiprocessing.get_context("spawn")
    held = {"lock": context.Lock(), "queue": context.Queue(), "rows": torch.zeros(3)}
    assert why_not_picklable(Holding(**held)) == ""
    assert why_not_picklable(Careful(transform=double, file=threading.Lock())) == ""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dataset", {"dataset": Holding(transform=double)}),
        ("collate_fn", {"collate_fn": lambda samples: samples}),
        ("worker_init_fn", {"worker_init_fn": lambda worker: None}),
    ],
)
def test_error_names_the_part_that_cannot_be_sent(method, name, options):
    options = {"dataset": Holding(), "multiprocessing_context": method, **options}
    with pytest.raises(
        fastload.UnpicklableError, match=f"started by {method} .*{name} cannot be pickled"
    ) as caught:
        iter(fastload.DataLoader(num_workers=1, **options))
    error = caught.value
    for kind in (pickle.PicklingError, AttributeError, TypeError):
        assert isinstance(error, kind)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("persistent", [False, True])
def test_tuned_loader_does_without_workers(persistent):
    runs = []
    for dataset in (Holding(transform=double), Holding()):
        torch.manual_seed(1)
        workers = 1 if hasattr(dataset, "transform") else 0
        loader = fastload.DataLoader(
            dataset, multiprocessing_context="spawn", persistent_workers=persistent, shuffle=True
        )
        planned(loader, workers)
        runs.append([numbers(loader) for _ in range(2)])
    assert runs[0] == runs[1]
    plan = planned(fastload.DataLoader(Holding(transform=double), multiprocessing_context="spawn"), 1)
    list(plan)
    assert plan.plan.num_workers.value == 0
    assert "dataset cannot be pickled" in plan.plan.num_workers.reason


SPAWNING = """
import torch, fastload
class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.zeros(3)
list(fastload.DataLoader(Photos(), num_workers=1, multiprocessing_context="spawn"))
"""


def test_a_script_that_is_not_guarded_is_told(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNING)
    errors = run_python(tmp_path / "train.py").stderr
    assert "spawn import the script, which must be protected by 'if __name__ == \"__main__\":'" in errors


def test_a_class_of_a_notebook_is_told():
    errors = run_python("-c", SPAWNING).stderr
    assert "cannot import what is defined in a notebook or an interactive session" in errors
