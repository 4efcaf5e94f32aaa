"""Limit on open shards: the oldest shards are closed, and reopened when they are read."""

import pytest

from fastload.shards import shard
from fastload.shards.records import RecordReader
from tests.shards.test_records import FIELDS, row_of, write_dataset


def test_oldest_shards_are_closed_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(shard, "_open", shard.deque())
    monkeypatch.setattr(shard, "max_open_shards", lambda container: 2)
    folder = write_dataset(tmp_path / "five.fl", "hdf5", FIELDS, [[row_of(index)] for index in range(5)])
    reader = RecordReader(folder)
    assert [reader.read(index)["label"] for index in range(5)] == list(range(5))
    assert [reader.is_open(number) for number in range(5)] == [False, False, False, True, True]
    assert reader.read(0)["label"] == 0


@pytest.mark.parametrize(("limit", "most"), [(None, 256), (1, 1), (1024, 512), (1 << 20, 32_000)])
def test_open_shards_take_half_of_the_descriptors_but_no_more_than_can_be_mapped(monkeypatch, limit, most):
    monkeypatch.setattr(shard, "descriptor_limit", lambda: limit)
    assert shard.max_open_shards("lmdb") == most
