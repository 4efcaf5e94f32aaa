"""Changes of a dataset are detected without running any of its code."""

from __future__ import annotations

import array
import random
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch

from fastload.loader.dataset_state import fingerprint
from tests.loader.datasets import Holder


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


CHANGES = {
    "a counter": (lambda: 0, lambda holder: setattr(holder, "thing", 1)),
    "a dict that grows": (dict, lambda holder: holder.thing.update(a=1)),
    "an ordered dict": (OrderedDict, lambda holder: holder.thing.update(a=1)),
    "a large dict whose value changes": (
        lambda: dict.fromkeys(range(1000)),
        lambda holder: holder.thing.update({500: "new"}),
    ),
    "a set that grows": (set, lambda holder: holder.thing.add(1)),
    "a long list made in advance": (
        lambda: [None] * 50_000,
        lambda holder: holder.thing.__setitem__(7, b"x"),
    ),
    "a list in a tuple": (lambda: ([],), lambda holder: holder.thing[0].append(1)),
    "a deque": (lambda: deque(maxlen=3), lambda holder: holder.thing.append(1)),
    "an array": (lambda: np.zeros(100), lambda holder: holder.thing.__setitem__(3, 1)),
    "a tensor": (lambda: torch.zeros(100), lambda holder: holder.thing.add_(1)),
    "Python's generator": (lambda: random.Random(0), lambda holder: holder.thing.random()),
    "NumPy's generator": (lambda: np.random.default_rng(0), lambda holder: holder.thing.random()),
    "NumPy's old generator": (lambda: np.random.RandomState(0), lambda holder: holder.thing.rand()),
    "torch's generator": (torch.Generator, lambda holder: torch.rand(1, generator=holder.thing)),
    "an object's attribute": (lambda: Holder(inner=1), lambda holder: holder.thing.__dict__.update(inner=2)),
    "an object with slots": (Slotted, lambda holder: setattr(holder.thing, "count", 1)),
    "a bytearray": (lambda: bytearray(10), lambda holder: holder.thing.__setitem__(2, 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_is_seen(name):
    make, change = CHANGES[name]
    holder = Holder(thing=make(), other="x")
    before = fingerprint(holder)
    assert fingerprint(holder) == before
    change(holder)
    assert fingerprint(holder) != before


def test_random_states_are_left_alone():
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    fingerprint(Holder(random=random, numpy=np.random, thing=[1, 2]))
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_cycles_and_huge_objects_end():
    holder = Holder(thing=[Holder(number=number) for number in range(60)])
    holder.__dict__["itself"] = holder
    holder.__dict__["large"] = [[(str(i), i)] for i in range(300_000)]
    fingerprint(holder)


def test_mapped_file_is_not_read(tmp_path):
    path = tmp_path / "numbers"
    np.arange(1000).tofile(path)
    mapped = np.memmap(path, np.int64, "r+")
    held = [mapped, np.arange(1000)]
    before = fingerprint(held)
    mapped[20] = 7
    assert fingerprint(held) == before
    held[1][20] = 7
    assert fingerprint(held) != before


def test_inherited_slots_are_searched():
    class Counter:
        __slots__ = ("count",)

    class Special(Counter):
        __slots__ = ()

    special = Special()
    special.count = 1
    before = fingerprint(special)
    special.count = 2
    assert fingerprint(special) != before


def test_inference_tensors_and_list_subclasses_are_searched_safely():
    class Lazy(list):
        def __getitem__(self, index):
            raise AssertionError

        def __len__(self):
            raise AssertionError

    with torch.inference_mode():
        tensor = torch.ones(3)
    held = [tensor, Lazy("abc")]
    assert fingerprint(held) == fingerprint(held)


def test_array_of_the_standard_library_shows_its_values():
    holder = Holder(thing=array.array("l", [1, 2]))
    before = fingerprint(holder)
    holder.thing[1] = 3
    assert fingerprint(holder) != before
