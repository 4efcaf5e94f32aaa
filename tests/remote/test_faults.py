"""Faults of the server and of the network: nothing wrong is handed out, and nothing hangs."""

import random
import re
import shutil

import pytest
import torch

import fastload
from fastload.shards import remote
from fastload.shards.container import ShardEntry
from fastload.shards.remote import RemoteFolder
from tests.remote.conftest import RECORDS
from tests.remote.server import FAULTS, serving


def opened(server, cache, timeout_s=4.0):
    folder = RemoteFolder(f"{server.url}/photos.fl", timeout_s=timeout_s)
    dataset = fastload.PackedDataset(folder, cache=cache)
    dataset._records.folder.ignores_ranges(dataset._records.manifest.shards[0])  # not what the faults are for
    return dataset


@pytest.fixture
def replaceable(packed, tmp_path):
    """A server of a copy of the dataset, which a test may change."""
    shutil.copytree(packed, tmp_path / "served" / "photos.fl")
    with serving(tmp_path / "served") as server:
        yield server


CASES = [(fault, is_whole) for fault in (*FAULTS, 429) for is_whole in (True, False)]


@pytest.mark.parametrize(("fault", "is_whole"), CASES)
def test_a_passing_fault_is_tried_again(server, packed, cache, fault, is_whole):
    dataset = opened(server, cache)
    if is_whole:
        dataset._records.remote._requested[:] = RECORDS
    server.faults.append(fault)
    assert torch.equal(dataset[0][0], fastload.PackedDataset(packed)[0][0])
    assert not server.faults


def test_a_flipped_bit_in_a_range_is_noticed_each_time_it_is_fetched(server, packed, cache):
    dataset = opened(server, cache)
    dataset[0]
    dataset[1]
    server.faults.append("flip")
    assert torch.equal(dataset[0][0], fastload.PackedDataset(packed)[0][0])
    dataset._records.remote._requested[:] = 0  # still by ranges
    dataset[1]
    server.faults.extend(["flip"] * 20)
    with pytest.raises(fastload.DamageError, match="record 0"):
        dataset[0]


@pytest.mark.parametrize("fault", ["error", "reset", "truncate", "stall"])
def test_a_lasting_fault_is_an_error_within_the_timeout(server, cache, fault):
    dataset = opened(server, cache, timeout_s=0.5)
    server.stall_s = 0.3
    server.faults.extend([fault] * 100)
    with pytest.raises(fastload.RemoteError, match=r"shard-00000.h5: \d+ attempts failed in .* begin again"):
        dataset[0]


def test_a_fault_that_lasts_is_told_once_before_the_timeout(server, cache, caplog, monkeypatch):
    monkeypatch.setattr(remote, "_SILENCE_S", 0.2)
    server.is_lost = True
    with pytest.raises(fastload.RemoteError, match="attempts failed"):
        opened(server, cache, timeout_s=2.0)
    [told] = caplog.messages
    assert re.search(r"^http://.*/manifest\.json: .*Error.*: trying again for up to 2 s$", told)


def test_an_outage_is_no_missing_file(server, cache):
    dataset = opened(server, cache, timeout_s=0.5)
    folder = dataset._records.folder
    server.is_lost = True
    dataset._records.remote._requested[:] = RECORDS
    for read in (lambda: dataset[0], lambda: folder.size_of("shard-00000.h5")):
        with pytest.raises(fastload.RemoteError, match=r"attempts failed in .*Error") as found:
            read()
        assert not isinstance(found.value, fastload.RemoteMissingError)


def test_a_shard_that_is_gone_is_missing(replaceable):
    folder = RemoteFolder(f"{replaceable.url}/photos.fl")
    with pytest.raises(fastload.RemoteMissingError):
        folder.size_of("shard-00099.h5")


@pytest.mark.parametrize("share", [0.5, -1.0], ids=["short body", "status 416"])
def test_an_object_that_became_shorter_is_named_at_once(replaceable, cache, share):
    dataset = opened(replaceable, cache, timeout_s=60.0)
    dataset[0]
    last = dataset.shard_sizes[0] - 1
    begin, end = dataset._records._open[0]._image_range("image", last)
    path = replaceable.folder / "photos.fl" / "shard-00000.h5"
    path.write_bytes(path.read_bytes()[: begin + int(share * (end - begin))])
    sent = len(replaceable.requests)
    with pytest.raises(fastload.DamageError, match=r"shard-00000.h5: the manifest says .* the server has"):
        dataset[last]
    assert len(replaceable.requests) - sent <= 1  # it is not tried again


REFUSALS = {
    400: fastload.RemoteError,
    401: fastload.AccessError,
    403: fastload.AccessError,
    404: fastload.RemoteMissingError,
}


@pytest.mark.parametrize(("status", "error"), REFUSALS.items())
def test_a_refusal_is_raised_at_once(server, cache, status, error):
    dataset = opened(server, cache)
    server.faults.extend([status] * 9)
    with pytest.raises(error, match=r"shard-00000\.h5"):
        dataset[0]
    assert len(server.faults) >= 7  # a shard is opened with two requests at once


def test_a_url_without_a_dataset_is_named(server):
    with pytest.raises(fastload.FormatError, match=r"nothing.fl: is not a packed dataset.*check the URL"):
        fastload.PackedDataset(f"{server.url}/nothing.fl")


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "ranges"])
@pytest.mark.parametrize("change", ["shorter", "other bytes", "other shard"])
def test_a_changed_object_is_an_error_that_names_it(replaceable, cache, change, is_whole):
    dataset = opened(replaceable, cache, timeout_s=1.0)
    path = replaceable.folder / "photos.fl" / "shard-00000.h5"
    data = path.read_bytes()
    changed = {
        "shorter": data[:-1000],
        "other bytes": bytes(data[:5000]) + b"\xff" * 20000 + data[25000:],
        "other shard": path.with_name("shard-00001.h5").read_bytes(),
    }
    path.write_bytes(changed[change])
    if is_whole:
        dataset._records.remote._requested[:] = RECORDS
    with pytest.raises(fastload.DamageError, match=r"http://.*shard-00000.h5"):
        [dataset[index] for index in range(2)]


def faulty_epochs(server, cache, packed, count, seed):
    """Load epochs with faults until `count` have been met; compare each sample."""
    draw = random.Random(seed)
    local = fastload.PackedDataset(packed)
    met = 0
    server.stall_s = 0.2
    while met < count:
        shutil.rmtree(cache.folder, ignore_errors=True)
        dataset = opened(server, cache, timeout_s=2.0)
        faults = [draw.choice([None, None, *FAULTS]) for _ in range(40)]
        server.faults.extend(faults)
        loader = fastload.DataLoader(dataset, batch_size=4, num_workers=0)
        try:
            for number, (images, _) in enumerate(loader):
                for place, image in enumerate(images):
                    assert torch.equal(image, local[4 * number + place][0])
        except (fastload.RemoteError, fastload.DamageError):
            pass  # several in a row
        met += sum(fault is not None for fault in faults) - sum(fault is not None for fault in server.faults)
        server.faults.clear()
    return met


def test_epochs_with_faults_hand_out_nothing_wrong(server, packed, cache):
    assert faulty_epochs(server, cache, packed, 10, 0) >= 10


@pytest.mark.soak
def test_a_hundred_faults_hand_out_nothing_wrong(server, packed, cache):
    for seed in (1, 2):
        assert faulty_epochs(server, cache, packed, 100, seed) >= 100


def shard_of(size_bytes):
    return ShardEntry("shard", 1, size_bytes, "00000000", {}, "0" * 32)


def test_a_slow_server_is_asked_for_what_it_can_send_before_a_stall(tmp_path):
    data = bytes(6 << 20)
    (tmp_path / "shard").write_bytes(data)
    with serving(tmp_path) as server:
        server.bytes_per_s = 4 << 20
        folder = RemoteFolder(server.url, timeout_s=4.0)  # a stall is a second without an answer
        assert b"".join(folder.parts(shard_of(len(data)))) == data
        assert len(server.clients) == 1  # a request that is given up loses its connection


@pytest.mark.parametrize("fault", [*FAULTS[:-1], 503])
def test_a_server_without_ranges_is_read_again_after_a_fault(tmp_path, fault):
    data = random.Random(0).randbytes(3 << 20)
    (tmp_path / "shard").write_bytes(data)
    with serving(tmp_path) as server:
        server.has_ranges, server.stall_s = False, 0.5
        folder = RemoteFolder(server.url, timeout_s=1.0)
        assert folder.ignores_ranges(shard_of(len(data)))
        server.faults.extend([fault, fault])
        assert b"".join(folder.parts(shard_of(len(data)))) == data


def test_a_slow_server_without_ranges_is_read_as_long_as_it_sends(tmp_path):
    (tmp_path / "shard").write_bytes(bytes(3 << 20))
    with serving(tmp_path) as server:
        server.has_ranges, server.bytes_per_s = False, 5 << 20
        folder = RemoteFolder(server.url, timeout_s=2.0)  # a stall is half a second without 1 MB
        assert sum(map(len, folder.parts(shard_of(3 << 20)))) == 3 << 20
        assert len(server.requests) == 2


def test_a_fast_server_is_soon_asked_for_all(tmp_path):
    (tmp_path / "shard").write_bytes(bytes(12 << 20))
    with serving(tmp_path) as server:
        parts = RemoteFolder(server.url).parts(shard_of(12 << 20))
        assert [len(part) >> 20 for part in parts] == [1, 11]
