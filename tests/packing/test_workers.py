"""Worker processes of packing: their messages, and that none is left behind."""

import multiprocessing
import os
import signal
import time

import pytest

from fastload.errors import PackError, SourceError
from fastload.images.encodings import encoding_named
from fastload.packing.encoding.chunk import Chunk, Recipe, WriteTask
from fastload.packing.encoding.options import PackOptions
from fastload.packing.running.workers import Schedule, WorkerPool
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
    pool = WorkerPool(Recipe(source, fields, encoding_named("raw"), PackOptions()), 1, tmp_path, "disk")
    yield pool
    pool.close()
    assert not [child for child in multiprocessing.active_children() if "fastload" in child.name]


def child():
    [process] = [each for each in multiprocessing.active_children() if "fastload" in each.name]
    return process


def test_worker_encodes_then_writes_to_the_given_places(pool, tmp_path):
    (tmp_path / "payload").write_bytes(bytes(10))
    chunks, written = [], []
    for event in pool.events(Schedule([(10, 13), (20, 21)], 1)):
        if isinstance(event, Chunk):
            chunks.append(event)
            offset = 10 if event.start == 10 else 10 + 3 * 8 * 8 * 3
            pool.write(WriteTask(event.start, tmp_path / "payload", offset))
        else:
            written.append(event)
    assert [chunk.indices for chunk in chunks] == [[10, 11, 12], [20]]
    assert written == [10, 20]
    images = (pixels(index, 8, 8).tobytes() for index in (10, 11, 12, 20))
    assert (tmp_path / "payload").read_bytes() == bytes(10) + b"".join(images)


def test_a_file_that_cannot_be_written_is_named(pool, tmp_path):
    events = pool.events(Schedule([(13, 14)], 1))
    pool.write(WriteTask(next(events).start, tmp_path / "other", 0))
    with pytest.raises(PackError, match=r"other: cannot be written \(No such file"):
        next(events)


def test_worker_holds_two_chunks_until_they_are_written(pool, tmp_path):
    (tmp_path / "payload").touch()
    schedule = Schedule([(0, 1), (1, 2), (2, 3)], 1)
    events = pool.events(schedule)
    first = next(events)
    assert schedule.take() == (2, 3)  # not given to the worker yet
    schedule.give_back(2, 3)
    pool.write(WriteTask(first.start, tmp_path / "payload", 0))
    starts = []
    for event in events:
        if isinstance(event, Chunk):
            starts.append(event.start)
            pool.write(WriteTask(event.start, tmp_path / "payload", 0))
    assert starts == [1, 2]


class Then(Schedule):
    """A schedule that does something once the worker has the first run."""

    def __init__(self, runs, action):
        super().__init__(runs, 1)
        self.action, self.is_given = action, False

    def take(self):
        if self.is_given:
            self.action()
        self.is_given = True
        return super().take()


def test_error_of_a_worker_is_raised_although_another_task_is_sent_first(pool):
    events = pool.events(Then([(499, 502), (600, 602)], lambda: child().join(timeout=20)))
    with pytest.raises(SourceError, match="five hundred"):
        next(events)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_worker_is_reported_with_its_exit_code(pool, dataset, number):
    def kill():
        while not dataset.started.exists():  # a signal to a process that is being forked may be lost
            time.sleep(0.01)
        os.kill(process.pid, number)

    process = child()
    with pytest.raises(PackError, match=rf"packing process {process.pid} died \(exit code -{number.value}"):
        next(pool.events(Then([(600, 601)], kill)))


def test_closing_kills_a_worker_in_the_middle_of_a_task(pool, dataset):
    def interrupt():
        while not dataset.started.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    process = child()
    with pytest.raises(KeyboardInterrupt):
        next(pool.events(Then([(600, 601)], interrupt)))
    pool.close()
    assert process.exitcode == -signal.SIGKILL
