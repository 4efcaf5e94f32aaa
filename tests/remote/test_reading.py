"""Reading a packed dataset from a URL: the same samples, no byte more than the rule allows."""

import pickle
import threading

import pytest
import torch
import torch.utils.data

import fastload
from fastload.cli.main import main
from fastload.shards import remote
from fastload.shards.manifest import read_manifest
from tests.commands import start_python
from tests.remote.conftest import make_dataset
from tests.remote.server import serving


def same_samples(one, other):
    pairs = [(one[index], other[index]) for index in range(len(other))]
    return all(torch.equal(a[0], b[0]) and a[1] == b[1] for a, b in pairs)


def labels_and_sums(batches):
    return sorted(
        (int(label), int(image.sum()))
        for images, labels in batches
        for image, label in zip(images, labels, strict=True)
    )


def test_samples_and_targets_equal_those_of_the_folder(url, packed, cache):
    remote, local = fastload.PackedDataset(url, cache=cache), fastload.PackedDataset(packed)
    assert remote.targets == local.targets
    assert same_samples(remote, local)


def test_one_sample_fetches_a_small_part_of_its_shard(tmp_path, cache):
    packed = make_dataset(tmp_path, shard_size=1 << 30)
    with serving(tmp_path) as server:
        fastload.PackedDataset(f"{server.url}/photos.fl", cache=cache)[0]
        assert server.sent(".h5") < packed.joinpath("shard-00000.h5").stat().st_size / 4


def test_a_shard_is_fetched_whole_once_half_of_it_is_asked_for(server, url, packed, cache):
    dataset = fastload.PackedDataset(url, cache=cache)
    size = read_manifest(packed).shards[0].size_bytes
    count = dataset.shard_sizes[0]
    for index in range(count // 2 - 1):
        dataset[index]
    before = server.sent()
    dataset[count // 2 - 1]
    assert server.sent() - before == size
    for index in range(count):
        dataset[index]
    assert server.sent() - before == size


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_copies_each_shard_once_and_ends_its_thread(
    server, url, packed, cache, num_workers, shuffle
):
    expected = labels_and_sums(torch.utils.data.DataLoader(fastload.PackedDataset(packed), batch_size=8))
    for _ in range(2):
        dataset = fastload.PackedDataset(url, cache=cache)
        loader = fastload.DataLoader(dataset, batch_size=8, shuffle=shuffle, num_workers=num_workers)
        assert labels_and_sums(loader) == expected
        assert not [each for each in threading.enumerate() if "reading ahead" in each.name]
    sizes = {shard.file: shard.size_bytes for shard in read_manifest(packed).shards}
    for file, size in sizes.items():
        # Whole, and at most the half that was asked for before.
        assert size <= server.sent(file) < 2 * size


def test_an_epoch_left_early_leaves_no_thread(url, cache):
    loader = fastload.DataLoader(fastload.PackedDataset(url, cache=cache), batch_size=8, num_workers=0)
    for _ in loader:
        break
    assert not [each for each in threading.enumerate() if "reading ahead" in each.name]


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_torchs_loader_reads_in_workers(url, packed, cache, context):
    dataset = fastload.PackedDataset(url, cache=cache)
    dataset[0]  # open in this process, before workers are started
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=8, num_workers=2, multiprocessing_context=context
    )
    assert labels_and_sums(loader) == labels_and_sums(
        torch.utils.data.DataLoader(fastload.PackedDataset(packed), batch_size=8)
    )


def test_a_pickled_dataset_reads_the_same(url, packed, cache):
    dataset = fastload.PackedDataset(url, cache=cache)
    assert same_samples(pickle.loads(pickle.dumps(dataset)), fastload.PackedDataset(packed))


def test_lmdb_shards_are_read_from_copies(tmp_path, cache):
    packed = make_dataset(tmp_path, format="lmdb")
    with serving(tmp_path) as server:
        dataset = fastload.PackedDataset(f"{server.url}/photos.fl", cache=cache)
        loader = fastload.DataLoader(dataset, batch_size=8, num_workers=2)
        expected = torch.utils.data.DataLoader(fastload.PackedDataset(packed), batch_size=8)
        assert labels_and_sums(loader) == labels_and_sums(expected)


def test_a_small_cache_stays_within_its_bound_and_every_sample_comes(url, packed, tmp_path):
    size = 2 * max(shard.size_bytes for shard in read_manifest(packed).shards)
    cache = fastload.Cache("disk", folder=tmp_path, size=size)
    dataset = fastload.PackedDataset(url, cache=cache)
    expected = labels_and_sums(torch.utils.data.DataLoader(fastload.PackedDataset(packed), batch_size=8))
    for _ in range(2):
        assert labels_and_sums(fastload.DataLoader(dataset, batch_size=8, num_workers=0)) == expected
        stored = sum(path.stat().st_size for path in tmp_path.rglob("shard-*.h5"))
        assert 0 < stored <= size


def test_without_room_for_a_copy_records_are_read_by_ranges(server, url, packed, tmp_path):
    cache = fastload.Cache("disk", folder=tmp_path, size=1000)
    batches = [
        labels_and_sums(torch.utils.data.DataLoader(dataset, batch_size=16))
        for dataset in (fastload.PackedDataset(url, cache=cache), fastload.PackedDataset(packed))
    ]
    assert batches[0] == batches[1]
    assert not list(tmp_path.rglob("shard-*"))


def test_without_room_lmdb_shards_are_an_error_that_names_the_cache(tmp_path):
    make_dataset(tmp_path, format="lmdb")
    with serving(tmp_path) as server:
        cache = fastload.Cache("disk", folder=tmp_path, size=1000)
        dataset = fastload.PackedDataset(f"{server.url}/photos.fl", cache=cache)
        with pytest.raises(fastload.RemoteError, match=r"no room for its .*fastload\.Cache"):
            dataset[0]


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_a_cache_of_two_shards_is_enough_for_a_process_that_reads_all(tmp_path, container):
    local = fastload.PackedDataset(make_dataset(tmp_path, format=container))
    size = 2 * max(shard.size_bytes for shard in read_manifest(tmp_path / "photos.fl").shards)
    with serving(tmp_path) as server:
        cache = fastload.Cache("disk", folder=tmp_path, size=size)
        dataset = fastload.PackedDataset(f"{server.url}/photos.fl", cache=cache)
        for _ in range(2):
            assert same_samples(dataset, local)


def test_two_processes_fetch_each_shard_once(server, url, packed, tmp_path):
    program = (
        "import sys, fastload; cache = fastload.Cache('disk', sys.argv[2]);"
        "dataset = fastload.PackedDataset(sys.argv[1], cache=cache);"
        "dataset._records.remote._requested.fill(1 << 20); [dataset[index] for index in range(len(dataset))]"
    )
    processes = [start_python("-c", program, url, tmp_path) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert server.sent(".h5") == read_manifest(packed).size_bytes


def test_a_killed_fetchers_draft_is_replaced(url, packed, cache, tmp_path):
    dataset = fastload.PackedDataset(url, cache=cache)
    for index in range(len(dataset)):
        dataset[index]
    del dataset  # and its locks
    for path in (tmp_path / "cache" / "fastload").glob("*.fl"):
        draft = path.with_name(f".{path.name}.partial")
        path.rename(draft)
        next(draft.iterdir()).write_bytes(b"half")
    assert same_samples(fastload.PackedDataset(url, cache=cache), fastload.PackedDataset(packed))
    assert not list((tmp_path / "cache" / "fastload").glob(".*"))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_from_a_server_without_ranges_each_shard_is_copied_once(server, url, packed, cache, num_workers):
    server.has_ranges = False
    local, dataset = fastload.PackedDataset(packed), fastload.PackedDataset(url, cache=cache)
    torch.testing.assert_close(dataset[0][0], local[0][0], rtol=0, atol=0)
    loader = fastload.DataLoader(dataset, batch_size=8, shuffle=True, num_workers=num_workers)
    for _ in range(2):
        assert labels_and_sums(loader) == labels_and_sums(torch.utils.data.DataLoader(local, batch_size=8))
    asked = server.sent("shard-00000.h5") - read_manifest(packed).shards[0].size_bytes
    assert server.sent(".h5") == read_manifest(packed).size_bytes + asked


def test_without_ranges_no_more_is_sent_than_the_shard_and_what_was_on_its_way(tmp_path, cache):
    packed = make_dataset(tmp_path, shard_size=1 << 30)
    with serving(tmp_path) as server:
        server.has_ranges, server.bytes_per_s = False, 10 << 20  # so that what nobody reads is not sent
        fastload.PackedDataset(f"{server.url}/photos.fl", cache=cache)[0]
        size = packed.joinpath("shard-00000.h5").stat().st_size
        assert size < server.sent(".h5") < 1.5 * size


def test_without_ranges_and_room_for_a_copy_the_error_says_both(server, url, tmp_path):
    server.has_ranges = False
    cache = fastload.Cache("disk", folder=tmp_path, size=1000)
    with pytest.raises(fastload.RemoteError, match=r"no room for its .* answers requests for ranges"):
        fastload.PackedDataset(url, cache=cache)[0]


def test_a_shard_in_several_groups_of_parts_is_verified_without_ranges(server, url, monkeypatch):
    monkeypatch.setattr(remote, "_PART_BYTES", 4_000)
    server.has_ranges = False
    assert main(["verify", url]) == 0


def test_memory_urls_work(packed, cache):
    import fsspec

    system = fsspec.filesystem("memory")
    system.put(str(packed), "/photos.fl", recursive=True)
    try:
        dataset = fastload.PackedDataset("memory://photos.fl", cache=cache)
        assert same_samples(dataset, fastload.PackedDataset(packed))
    finally:
        system.rm("/photos.fl", recursive=True)


def test_an_unusable_cache_folder_is_replaced_with_a_warning(url, packed, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="remote shards are cached in"):
        dataset = fastload.PackedDataset(url, cache=fastload.Cache("disk", folder=tmp_path / "file"))
    assert same_samples(dataset, fastload.PackedDataset(packed))


def test_storage_options_are_refused_for_a_folder(packed):
    with pytest.raises(fastload.OptionError, match="are for a URL"):
        fastload.PackedDataset(packed, storage_options={})


def test_a_missing_package_is_named_with_its_pip_command():
    with pytest.raises(fastload.LibraryMissingError, match="pip install ocifs"):
        fastload.PackedDataset("oci://bucket/photos.fl")


def test_an_unknown_protocol_is_named():
    with pytest.raises(fastload.OptionError, match="nonsense"):
        fastload.PackedDataset("nonsense://bucket/photos.fl")


def test_a_copy_damaged_on_this_disk_is_fetched_again(url, packed, cache, tmp_path):
    dataset = fastload.PackedDataset(url, cache=cache)
    for index in range(len(dataset)):
        dataset[index]
    del dataset
    for number, path in enumerate((tmp_path / "cache").rglob("shard-*.h5")):
        data = path.read_bytes()
        path.write_bytes(data[:-100] if number % 2 else b"x" * len(data))
    assert same_samples(fastload.PackedDataset(url, cache=cache), fastload.PackedDataset(packed))
