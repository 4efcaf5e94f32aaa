"""Worker processes of packing: their messages, and that none is left behind."""

import multiprocessing
import os
import signal
import time

import pytest

from fastload.errors import PackError, SourceError
from fastload.images.encodings import encoding_named
from fastload.packing.encoding.chunk import Chunk, Recipe, WriteTask
from fastload.packing.options import PackOptions
from fastload.packing.running.workers import WorkerPool
from fastload.shards.schema import Field
from fastload.sources import DatasetSource
from tests.folders import pixels


class Dataset:
    def __init__(self, started):
        self.started = started

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index == 500:
            raise ValueError("five hundred")
        if index == 600:
            self.started.touch()
            time.sleep(60)
        return pixels(index, 8, 8), index


@pytest.fixture
def dataset(tmp_path):
    return Dataset(tmp_path / "started")


@pytest.fixture
def pool(tmp_path, dataset):
    source = DatasetSource(dataset)
    fields = (Field("image", "image", encoding="raw"), *source.fields)
    pool = WorkerPool(Recipe(source, fields, encoding_named("raw"), PackOptions()), 1, tmp_path)
    yield pool
    pool.close()
    assert not [child for child in multiprocessing.active_children() if "fastload" in child.name]


def child():
    [process] = [each for each in multiprocessing.active_children() if "fastload" in each.name]
    return process


def next_event(pool):
    [event] = pool.events()
    return event


def test_worker_encodes_then_writes_to_the_given_places(pool, tmp_path):
    (tmp_path / "payload").write_bytes(bytes(10))
    for start, stop in ((10, 13), (13, 14)):
        pool.encode((start, stop))
        event = next_event(pool)
        assert isinstance(event, Chunk)
        assert event.indices == list(range(start, stop))
    pool.write(WriteTask(10, tmp_path / "payload", 10))
    assert next_event(pool) == 10
    pool.write(WriteTask(13, tmp_path / "other", 0))
    with pytest.raises(PackError, match=r"other: cannot be written \(No such file"):
        next_event(pool)
    written = (tmp_path / "payload").read_bytes()
    assert written == bytes(10) + b"".join(pixels(index, 8, 8).tobytes() for index in (10, 11, 12))


def test_worker_has_room_for_two_chunks_until_they_are_written(pool, tmp_path):
    (tmp_path / "payload").touch()
    assert pool.has_room()
    pool.encode((0, 1))
    assert pool.has_room()
    pool.encode((1, 2))
    assert not pool.has_room()
    next_event(pool)
    assert not pool.has_room()
    pool.write(WriteTask(0, tmp_path / "payload", 0))
    while not isinstance(next_event(pool), int):
        pass
    assert pool.has_room()


def test_error_of_a_worker_is_raised_although_another_task_is_sent_first(pool):
    pool.encode((499, 502))
    child().join(timeout=20)
    with pytest.raises(SourceError, match="five hundred"):
        pool.encode((0, 2))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_worker_is_reported_with_its_exit_code(pool, dataset, number):
    pool.encode((600, 601))
    while not dataset.started.exists():  # a signal to a process that is being forked may be lost
        time.sleep(0.01)
    process = child()
    os.kill(process.pid, number)
    with pytest.raises(PackError, match=rf"packing process {process.pid} died \(exit code -{number.value}"):
        next_event(pool)


def test_closing_kills_a_worker_in_the_middle_of_a_task(pool):
    pool.encode((600, 601))
    process = child()
    pool.close()
    assert process.exitcode == -signal.SIGKILL
