"""Runs that share copies, follow one another or are killed: each fetches what is missing, and only that."""

import itertools
import time

import pytest

import fastload
from fastload.shards.manifest import read_manifest
from tests.commands import start_python
from tests.remote.test_reading import labels_and_sums, same_samples

EPOCH = """
import sys, fastload
dataset = fastload.PackedDataset(sys.argv[1], cache=fastload.Cache("disk", sys.argv[2]))
for batch in fastload.DataLoader(dataset, batch_size=8, num_workers=0):
    pass
"""


def loader_of(url, cache, rank, ranks, batch_size=4):
    dataset = fastload.PackedDataset(url, cache=cache)
    sampler = fastload.ShardedSampler(dataset, ranks, rank, seed=3, ends="exact", window=1)
    return fastload.DataLoader(dataset, batch_size, sampler=sampler, num_workers=0)


def copied(cache):
    return {path.name for path in cache.folder.rglob("shard-*.h5") if ".partial" not in str(path)}


def test_a_run_after_a_killed_one_keeps_its_copies_and_fetches_the_others(server, url, packed, cache):
    # The manifest, the answer about ranges, two shards, half of the third.
    server.faults.extend([None, None, None, None, "stall"])
    server.stall_s = 1.0
    with start_python("-c", EPOCH, url, cache.folder) as process:
        while server.faults:
            time.sleep(0.01)
        process.kill()
    complete = copied(cache)
    assert len(complete) == 2
    before = {file: server.sent(file) for file in complete}
    assert same_samples(fastload.PackedDataset(url, cache=cache), fastload.PackedDataset(packed))
    assert {file: server.sent(file) for file in complete} == before


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_epoch_left_within_a_shard_goes_on_elsewhere_with_the_shards_that_are_left(
    server, url, packed, tmp_path, ranks
):
    seen, state = [], None
    for rank in range(2):
        loader = loader_of(url, fastload.Cache("disk", tmp_path / "first"), rank, 2)
        seen += labels_and_sums(itertools.islice(loader, 3))
        state = loader.state_dict()
    finished = 24 // read_manifest(packed).shards[0].records
    other = fastload.Cache("disk", tmp_path / "other")
    for rank in range(ranks):
        loader = loader_of(url, other, rank, ranks)
        loader.load_state_dict(state)
        seen += labels_and_sums(loader)
    local = fastload.PackedDataset(packed)
    assert sorted(seen) == labels_and_sums([(image[None], [label]) for image, label in local])
    assert finished > 0
    assert len(copied(other)) <= len(local.shard_sizes) - finished


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_ranks_of_a_machine_copy_the_shards_that_they_need_together(
    server, url, packed, cache, monkeypatch, ranks
):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    loader = loader_of(url, cache, 0, ranks)
    assert len(labels_and_sums(loader)) == 64 // ranks
    assert copied(cache) == {shard.file for shard in read_manifest(packed).shards}
    assert server.sent(".h5") == read_manifest(packed).size_bytes


def test_workers_that_load_ahead_of_the_copies_fetch_nothing_twice(server, url, packed, cache):
    dataset = fastload.PackedDataset(url, cache=cache)
    sampler = fastload.ShardedSampler(dataset, window=1)
    loader = fastload.DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=2)
    assert len(labels_and_sums(loader)) == len(dataset)
    assert server.sent(".h5") == read_manifest(packed).size_bytes
