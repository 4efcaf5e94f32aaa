"""Reading ahead: the thread fetches what the epoch needs; others wait for it, but never for a dead one."""

import re
import subprocess
import time
from collections import Counter

import pytest
import torch
import torch.utils.data

import fastload
from fastload.loader.iterators import order
from fastload.shards.manifest import read_manifest
from fastload.shards.reading_ahead import ReadingAhead
from fastload.shards.remote import RemoteFolder
from tests.commands import start_python
from tests.remote.test_reading import labels_and_sums


def sizes_of(packed):
    return Counter(entry.size_bytes for entry in read_manifest(packed).shards)


def fetched(server):
    """Return the sizes of the parts of shards that were sent."""
    return Counter(size for path, size in server.requests if path.endswith(".h5"))


def test_workers_wait_for_the_thread_instead_of_fetching(server, url, packed, cache):
    dataset = fastload.PackedDataset(url, cache=cache)
    sampler = fastload.ShardedSampler(dataset, window=1)
    loader = fastload.DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=2)
    assert len(labels_and_sums(loader)) == len(dataset)
    assert fetched(server) == sizes_of(packed)
    assert len(server.clients) == 1


def test_later_batches_are_announced_while_an_epoch_goes_on(server, url, packed, cache, monkeypatch):
    monkeypatch.setattr(order, "_MOST_BATCHES", 4)
    dataset = fastload.PackedDataset(url, cache=cache)
    loader = fastload.DataLoader(dataset, batch_size=4, num_workers=2)
    assert len(labels_and_sums(loader)) == len(dataset)
    assert fetched(server) == sizes_of(packed)
    assert len(server.clients) == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_small_cache_gets_each_shard_whole_once_the_epoch_has_passed_others(
    server, url, packed, tmp_path, num_workers
):
    size = 3 * max(entry.size_bytes for entry in read_manifest(packed).shards)
    dataset = fastload.PackedDataset(url, cache=fastload.Cache("disk", folder=tmp_path, size=size))
    options = {"num_workers": 2, "prefetch_factor": 2} if num_workers else {"num_workers": 0}
    loader = fastload.DataLoader(dataset, batch_size=4, **options)
    for _ in loader:
        time.sleep(0.05)  # a training step, in which the thread notices the position
    assert fetched(server) == sizes_of(packed)


@pytest.mark.parametrize(("in_flight", "is_waited_for"), [(3, True), (2, False)])
def test_a_shard_that_batches_in_flight_need_half_of_is_waited_for(
    server, url, packed, cache, in_flight, is_waited_for
):
    dataset = fastload.PackedDataset(url, cache=cache)
    first, second = dataset.shard_sizes[:2]
    dataset._records.folder.ignores_ranges(read_manifest(packed).shards[0])  # not what stalls
    server.stall_s = 0.5
    server.faults.append("stall")
    ahead = ReadingAhead(dataset._records, lambda: 0, in_flight)
    ahead.want(0, range(first))
    for batch, index in enumerate(range(first, first + (second + 1) // 2)):
        ahead.want(batch, [index])
    while server.faults:
        time.sleep(0.001)
    dataset[first]  # while the thread fetches the first shard
    sent = server.sent("shard-00001.h5")
    assert (sent == read_manifest(packed).shards[1].size_bytes) == is_waited_for


class Announced(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index

    def fetch_into(self, indices, out):  # only datasets that can fill batches are told
        return NotImplemented

    def read_ahead(self, position, in_flight):
        self.in_flight = in_flight


@pytest.mark.parametrize(("workers", "prefetch_factor"), [(0, None), (2, 3)])
def test_datasets_are_told_how_many_batches_are_loaded_at_once(workers, prefetch_factor):
    dataset = Announced()
    loader = fastload.DataLoader(dataset, num_workers=workers, prefetch_factor=prefetch_factor)
    assert len(list(loader)) == 12
    assert dataset.in_flight == max(1, workers * (prefetch_factor or 0))


def test_workers_meet_the_error_that_ended_the_thread(server, url, cache):
    dataset = fastload.PackedDataset(url, cache=cache)
    server.faults.extend([None] + [403] * 20)
    loader = fastload.DataLoader(dataset, batch_size=4, num_workers=2)
    with pytest.raises(fastload.AccessError, match=r"shard-0000\d\.h5"):
        list(loader)


def test_whoever_waited_for_the_thread_does_not_try_for_as_long_again(server, cache):
    dataset = fastload.PackedDataset(RemoteFolder(f"{server.url}/photos.fl", timeout_s=1.0), cache=cache)
    server.faults.extend(["error"] * 100)
    loader = fastload.DataLoader(dataset, batch_size=4, num_workers=0)
    with pytest.raises(fastload.RemoteError, match=r"h5: \d+ attempts failed") as found:
        list(loader)
    attempts = int(re.search(r"(\d+) attempts", str(found.value))[1])
    assert 100 - len(server.faults) == attempts  # those of the thread alone
    server.faults.clear()
    assert len(dataset[0]) == 2


KILLED = """
import multiprocessing, os, signal, sys, fastload

def read():
    print("reading", flush=True)
    print(len(dataset[0]), flush=True)

dataset = fastload.PackedDataset(sys.argv[1], cache=fastload.Cache("disk", sys.argv[2]))
dataset._records.remote.announce([0])
process = multiprocessing.get_context("fork").Process(target=read)
process.start()
process.join(0.3)
assert process.is_alive()  # it waits
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_whose_parent_was_killed_fetches_itself(url, tmp_path):
    process = start_python("-c", KILLED, url, str(tmp_path), stdout=subprocess.PIPE)
    assert process.communicate(timeout=60)[0].split() == ["reading", "2"]
