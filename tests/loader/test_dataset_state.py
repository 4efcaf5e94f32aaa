"""Datasets that workers must not read: reading changes them, or they hold objects bound to the process."""

from __future__ import annotations

import functools
import itertools
import logging
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import cv2
import h5py
import lmdb
import numpy as np
import pytest

import fastload
from fastload.loader.dataset_state import DatasetState, bound_to_process, file_positions, fingerprint
from tests.loader.datasets import Holder


def test_datasets_of_this_library_look_the_same_after_reading(tmp_path):
    for number in range(4):
        assert cv2.imwrite(str(tmp_path / f"{number}.png"), np.zeros((8, 8, 3), np.uint8))
    dataset = fastload.FolderDataset(tmp_path)
    before = DatasetState(dataset)
    assert [dataset[index][1] for index in range(4)] == [-1, -1, -1, -1]
    assert before.change_by_loading() == ""


def moved(before: dict[int, int]) -> list[int]:
    """Return the descriptors of files that were read since then."""
    return [number for number, position in file_positions().items() if before.get(number, 0) != position]


def test_file_that_was_read_is_detected(tmp_path):
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
def test_state_outside_the_attributes_is_detected(kind):
    dataset = kind()
    before = DatasetState(dataset)
    dataset[7]
    assert "loading changes the dataset" in before.change_by_loading()


def test_dataset_that_only_reads_shows_no_change():
    dataset = Reads()
    before = DatasetState(dataset)
    dataset[7]
    assert before.change_by_loading() == ""
    assert before.change_by_training() == ""
    dataset.epoch = 3
    assert "the training changes the dataset" in before.change_by_training()


def test_changes_name_the_object_that_changed():
    dataset, collate, sampler = Reads(), Holder(count=0), Holder(count=0)
    collate.dataset = sampler.dataset = dataset
    for name, owner in (("dataset", dataset), ("collate_fn", collate), ("sampler", sampler)):
        before = DatasetState(dataset, collate, sampler)
        owner.count = 1
        assert f"the training changes the {name}" in before.change_by_training()


def test_objects_bound_to_the_process_are_found(tmp_path):
    with ThreadPoolExecutor(1) as threads, socket.socket() as talk, open(tmp_path / "log", "w") as log:
        for held, words in (
            (threads, "threads"),
            (talk, "a socket"),
            (log, "a file"),
            ([{"f": log}], "a file"),
        ):
            holder = Holder()
            holder.held = held
            assert f"the dataset uses {words}" in DatasetState(holder).change_by_loading()
            assert f"the collate_fn uses {words}" in DatasetState([], holder).change_by_loading()


def squares():
    yield from (number * number for number in range(9))


@pytest.mark.parametrize("made", [squares(), iter([1, 2]), itertools.count(), zip([1], [2], strict=True)])
def test_dataset_with_an_iterator_gets_no_workers(made):
    assert "each of its values only once" in bound_to_process(Holder(thing=made))


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


def test_dataset_with_an_open_hdf5_file_gets_no_workers(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["images"] = np.arange(3)
        assert "an HDF5 file" in bound_to_process(Holder(thing=file))
        assert "an HDF5 file" in bound_to_process(Holder(thing=[file["images"]]))
        for low_level in (file.id, file["images"].id, file.create_group("more").id):
            assert "an HDF5 file" in bound_to_process(Holder(thing=low_level))


class Store:
    thing = None


_records = Store()


class ReadsGlobal:
    def __getitem__(self, index):
        return _records.thing["images"][index]


def test_hdf5_file_in_a_global_object_is_found(tmp_path, monkeypatch):
    assert bound_to_process(ReadsGlobal()) == ""
    with h5py.File(tmp_path / "data.h5", "w") as file:
        monkeypatch.setattr(_records, "thing", file)
        assert "an HDF5 file" in bound_to_process(ReadsGlobal())


def test_object_in_a_global_variable_may_change(monkeypatch):
    dataset = ReadsGlobal()
    before = fingerprint(dataset)
    # A counter of the training's, as far as anyone can tell.
    monkeypatch.setattr(_records, "count", 1, raising=False)
    assert fingerprint(dataset) == before


def test_dataset_with_a_database_or_pool_gets_no_workers(tmp_path):
    with lmdb.open(str(tmp_path / "data")) as environment:
        assert "database" in bound_to_process(Holder(thing=environment))
    with ThreadPool(1) as pool:
        assert "threads" in bound_to_process(Holder(thing=pool))
    own = threading.local()
    own.connection = sqlite3.connect(":memory:")
    assert "database" in bound_to_process(Holder(thing=own))
    own.connection.close()
