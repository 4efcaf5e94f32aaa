"""Limit on open shards: the oldest shards are closed, and reopened when they are read."""

import sys

import pytest

from fastload.shards import shard
from fastload.shards.records import RecordReader
from tests.commands import run_python
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


LIMITED = """
import os, resource, sys, fastload
from fastload.shards.records import RecordReader
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[3])))
reader = RecordReader(sys.argv[1])
for index in range(len(reader)):
    assert reader.read(index)["label"] == index
print(sum(map(reader.is_open, range(len(reader)))), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
print(*fastload.DataLoader(fastload.PackedDataset(sys.argv[1]), num_workers=0).plan.limits)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_the_soft_limit_on_files_is_raised_and_the_plan_says_where_that_is_not_enough(tmp_path):
    folder = tmp_path / "many.fl"
    write_dataset(folder, "lmdb", FIELDS, [[row_of(index)] for index in range(60)])
    enough = run_python("-c", LIMITED, folder, "64", "512").stdout.splitlines()
    assert enough == ["60 512", ""]
    hdf5 = write_dataset(tmp_path / "mapped.fl", "hdf5", FIELDS, [[row_of(index)] for index in range(60)])
    mapped = run_python("-c", LIMITED, hdf5, "64", "64").stdout.splitlines()
    assert mapped == ["60 64", ""]  # their mappings keep no file open
    numbers, limits = run_python("-c", LIMITED, folder, "64", "100").stdout.splitlines()
    assert numbers == "50 100"
    assert "60 shards, and this process may keep 50 of them open" in limits
