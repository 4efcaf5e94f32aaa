"""Changes of a dataset by reading are seen without running any of its code."""

from __future__ import annotations

import array
import functools
import itertools
import logging
import random
import socket
import sqlite3
import threading
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import cv2
import h5py
import lmdb
import numpy as np
import pytest
import torch

import fastload
from fastload.loader.dataset_state import DatasetState, bound_to_process, file_positions, fingerprint
from fastload.loader.tuning.plan_cache import describe


class Holder:
    """Holds things, and minds being asked anything."""

    def __init__(self, **things: Any) -> None:
        self.__dict__.update(things)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("code of the dataset was run")

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> Any:
        raise AssertionError("code of the dataset was run")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("code of the dataset was run")

    def __len__(self) -> int:
        raise AssertionError("code of the dataset was run")

    @property
    def computed(self) -> Any:
        raise AssertionError("code of the dataset was run")


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


def test_datasets_of_this_library_look_the_same_after_reading(tmp_path):
    for number in range(4):
        assert cv2.imwrite(str(tmp_path / f"{number}.png"), np.zeros((8, 8, 3), np.uint8))
    dataset = fastload.FolderDataset(tmp_path)
    before = DatasetState(dataset)
    assert [dataset[index][1] for index in range(4)] == [-1, -1, -1, -1]
    assert before.change_by_reading() == ""


def moved(before: dict[int, int]) -> list[int]:
    """The descriptors of files that were read through since."""
    return [number for number, position in file_positions().items() if before.get(number, 0) != position]


def test_file_that_was_read_through_is_seen(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    with path.open("rb") as file, path.open("rb") as untouched:
        before = file_positions()
        file.seek(50_000)
        file.read(10)
        assert moved(before) == [file.fileno()]
        untouched.tell()
    with path.open("rb") as file:
        before = file_positions()
        file.fileno()
        assert moved(before) == []


def test_file_that_is_written_to_does_not_count(tmp_path):
    with (tmp_path / "log").open("w") as log:
        before = file_positions()
        log.write("x" * 100_000)
        log.flush()
        assert moved(before) == []


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


def test_inherited_slots_are_looked_at():
    class Counter:
        __slots__ = ("count",)

    class Special(Counter):
        __slots__ = ()

    special = Special()
    special.count = 1
    before = fingerprint(special)
    special.count = 2
    assert fingerprint(special) != before


@pytest.mark.parametrize("make", [lambda step: lambda x: x + step, lambda step: functools.partial(max, step)])
def test_functions_that_do_the_same_look_the_same_to_a_plan(make):
    assert describe(make(1)) == describe(make(1))


def test_functions_that_differ_have_plans_of_their_own():
    functions = [lambda x: x + 1, lambda x: x + 2, lambda x: -x, max, min, functools.partial(max, 1)]
    assert len({str(describe(function)) for function in functions}) == len(functions)


COUNTED = 0
KEPT: dict[int, int] = {}


@functools.lru_cache(None)
def cached(index: int) -> int:
    return index


class CountsInItsClass:
    count = 0

    def __getitem__(self, index):
        type(self).count += 1


class CountsInItsModule:
    def __getitem__(self, index):
        global COUNTED
        COUNTED += 1


class KeepsInItsModule:
    def __getitem__(self, index):
        KEPT[index] = index


class Caches:
    def __getitem__(self, index):
        return cached(index)


class Closes:
    def __init__(self):
        count = [0]

        def add():
            count[0] += 1

        self.add = add

    def __getitem__(self, index):
        self.add()


class Marks:
    def __init__(self):
        self.records = [{"index": index} for index in range(1500)]

    def __getitem__(self, index):
        self.records[index]["seen"] = True


class Reads:
    def __init__(self):
        self.records = [{"index": index} for index in range(1500)]
        self.logger = logging.getLogger("reads")
        self.lock = threading.Lock()

    def __getitem__(self, index):
        self.logger.debug("%d", index)
        return self.records[index]["index"]


@pytest.mark.parametrize(
    "kind", [CountsInItsClass, CountsInItsModule, KeepsInItsModule, Caches, Closes, Marks]
)
def test_state_beside_the_attributes_is_seen(kind):
    dataset = kind()
    before = DatasetState(dataset)
    dataset[7]
    assert "reading changes the dataset" in before.change_by_reading()


def test_dataset_that_only_reads_has_no_footprint():
    dataset = Reads()
    before = DatasetState(dataset)
    dataset[7]
    assert before.change_by_reading() == ""
    assert before.change_by_training() == ""
    dataset.epoch = 3
    assert "the training changes the dataset" in before.change_by_training()


def test_what_belongs_to_the_process_is_found(tmp_path):
    with ThreadPoolExecutor(1) as threads, socket.socket() as talk, open(tmp_path / "log", "w") as log:
        for held, words in (
            (threads, "threads"),
            (talk, "a socket"),
            (log, "a file"),
            ([{"f": log}], "a file"),
        ):
            holder = Holder()
            holder.held = held
            assert words in DatasetState(holder).change_by_reading()


def test_inference_tensors_and_lists_of_ones_own_are_looked_at_without_harm():
    class Lazy(list):
        def __getitem__(self, index):
            raise AssertionError

        def __len__(self):
            raise AssertionError

    with torch.inference_mode():
        tensor = torch.ones(3)
    held = [tensor, Lazy("abc")]
    assert fingerprint(held) == fingerprint(held)
    assert describe(held) == describe(held)


def squares():
    yield from (number * number for number in range(9))


@pytest.mark.parametrize("made", [squares(), iter([1, 2]), itertools.count(), zip([1], [2], strict=True)])
def test_what_gives_each_value_once_keeps_workers_away(made):
    assert "each of its values once" in bound_to_process(Holder(thing=made))


def test_iterator_written_in_python_shows_its_position():
    class Positions:
        def __init__(self):
            self.position = 0

        def __next__(self):
            self.position += 1

    holder = Holder(thing=Positions())
    before = fingerprint(holder)
    assert bound_to_process(holder) == ""
    next(holder.thing)
    assert fingerprint(holder) != before


def test_open_hdf5_file_keeps_workers_away(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["images"] = np.arange(3)
        assert "an HDF5 file" in bound_to_process(Holder(thing=file))
        assert "an HDF5 file" in bound_to_process(Holder(thing=[file["images"]]))


def test_databases_and_pools_keep_workers_away(tmp_path):
    with lmdb.open(str(tmp_path / "data")) as environment:
        assert "database" in bound_to_process(Holder(thing=environment))
    with ThreadPool(1) as pool:
        assert "threads" in bound_to_process(Holder(thing=pool))
    own = threading.local()
    own.connection = sqlite3.connect(":memory:")
    assert "database" in bound_to_process(Holder(thing=own))
    own.connection.close()


def test_array_of_the_standard_library_shows_its_values():
    holder = Holder(thing=array.array("l", [1, 2]))
    before = fingerprint(holder)
    holder.thing[1] = 3
    assert fingerprint(holder) != before


def test_a_plan_is_that_of_what_functions_close_over_and_dicts_hold():
    def scaled(factor, offset=1):
        def scale(value, more=offset):
            return value * factor + more

        return scale

    assert describe(scaled(2)) == describe(scaled(2))
    assert describe(scaled(2)) != describe(scaled(3))
    assert describe(scaled(2)) != describe(scaled(2, offset=5))
    assert describe({"size": 224}) != describe({"size": 448})
