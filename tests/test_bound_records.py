"""No record is taken for another: exchanged shards, rows and manifests are detected."""

import os
import shutil
from dataclasses import replace

import h5py
import lmdb
import numpy as np
import pytest
import torch.utils.data

import fastload
from fastload.cli.main import main
from fastload.errors import DamageError
from fastload.shards.manifest import read_manifest
from tests.commands import run_python
from tests.folders import encoded, pixels

SHARD_BYTES = 9 * (3 * 24 * 32 + len("ant/0000.png"))
COUNT = 56


def folder_of(root, classes, seed, count=COUNT):
    """Images of one size: shards of all such folders have one size too."""
    for number in range(count):
        folder = root / classes[number % len(classes)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:04d}.png").write_bytes(encoded(pixels(seed + number), ".png"))
    return root


def packed(root, name, container, classes=("ant", "bee", "cat"), seed=0, **options):
    photos = folder_of(root / f"{name}-photos", classes, seed)
    options = {"format": container, "encode": "raw", "shard_size": SHARD_BYTES, "workers": 1} | options
    fastload.pack(photos, root / f"{name}.fl", **options)
    return root / f"{name}.fl"


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def originals(request, tmp_path_factory):
    """Two datasets whose shards have equal sizes, and a third with other names of classes."""
    root = tmp_path_factory.mktemp("originals")
    return {
        "one": packed(root, "one", request.param),
        "two": packed(root, "two", request.param, seed=1000),
        "renamed": packed(root, "renamed", request.param, classes=("xnt", "yee", "zat")),
    }


@pytest.fixture
def copies(originals, tmp_path):
    return {name: shutil.copytree(path, tmp_path / path.name) for name, path in originals.items()}


def shards(path):
    return sorted(path.glob("shard-*"))


def contents(path):
    dataset = fastload.PackedDataset(path, verify="never")
    return [(image.numpy().tobytes(), label) for image, label in (dataset[i] for i in range(len(dataset)))]


def reads(dataset, indices):
    """Every way to a record's bytes, each by itself."""
    loader = fastload.DataLoader(torch.utils.data.Subset(dataset, indices), batch_size=2, num_workers=0)
    plain = torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, indices), batch_size=2)
    return {
        "sample": lambda: [dataset[index] for index in indices],
        "record": lambda: [dataset.read(index) for index in indices],
        "batches": lambda: list(loader),
        "torch": lambda: list(plain),
        "targets": lambda: fastload.PackedDataset.targets.func(dataset),  # not what was read before
    }


def assert_every_way_is_refused(dataset, indices):
    for name, read in reads(dataset, indices).items():
        with pytest.raises(DamageError):
            pytest.fail(f"{name}: {str(read())[:50]}")


def swap(first, second):
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def rewrite(target, source):
    """Has a file hold another one's bytes in place: who has it open or mapped sees them."""
    data = source.read_bytes()
    with target.open("r+b") as file:
        file.write(data)
        file.truncate()


def test_swapped_shards_are_refused(copies):
    first, second = shards(copies["one"])[:2]
    assert first.stat().st_size == second.stat().st_size
    swap(first, second)
    assert_every_way_is_refused(fastload.PackedDataset(copies["one"]), range(5))
    assert {damage.file for damage in fastload.verify(copies["one"]).damages} == {first.name, second.name}


@pytest.mark.parametrize("other", ["two", "renamed"])
def test_a_shard_of_another_dataset_is_refused(copies, other):
    for mine, its in zip(shards(copies["one"]), shards(copies[other]), strict=True):
        assert mine.stat().st_size == its.stat().st_size
        shutil.copy(its, mine)
    assert_every_way_is_refused(fastload.PackedDataset(copies["one"]), range(COUNT))


@pytest.mark.parametrize("other", ["two", "renamed"])
def test_a_manifest_beside_the_shards_of_another_dataset_is_refused(copies, other, tmp_path):
    shutil.copy(copies[other] / "manifest.json", copies["one"] / "manifest.json")
    assert_every_way_is_refused(fastload.PackedDataset(copies["one"]), range(COUNT))
    assert main(["unpack", str(copies["one"]), str(tmp_path / "out")]) == 1
    assert not list((tmp_path / "out").rglob("*.png"))
    assert main(["verify", "--quiet", str(copies["one"])]) == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_a_dataset_that_another_process_overwrites_is_not_mixed_with_the_new_one(copies, is_open, tmp_path):
    path = copies["one"]
    wanted = contents(path)
    first_shard_records = read_manifest(path).shards[0].records
    dataset = fastload.PackedDataset(path)
    opened = [dataset[index] for index in range(5)] if is_open else []
    photos = folder_of(tmp_path / "new", ("xnt", "yee", "zat"), seed=0)
    container = read_manifest(path).container
    code = (
        "import sys, fastload; fastload.pack(*sys.argv[1:], overwrite=True, encode='raw', workers=1, "
        f"format={container!r}, shard_size={SHARD_BYTES})"
    )
    done = run_python("-c", code, photos, path)
    assert done.returncode == 0, done.stderr
    assert [(image.numpy().tobytes(), label) for image, label in opened] == wanted[: len(opened)]
    first_closed = first_shard_records if is_open else 0
    for index in range(COUNT):
        if index < first_closed:  # its file was open: it has no name any more, but is what it was
            image, label = dataset[index]
            assert (image.numpy().tobytes(), label) == wanted[index]
        else:
            with pytest.raises(DamageError, match="replaced since it was opened"):
                dataset[index]
    with pytest.raises(DamageError):
        dataset.targets  # noqa: B018
    assert fastload.PackedDataset(path).classes == ["xnt", "yee", "zat"]


@pytest.mark.parametrize("other", ["two", "renamed"])
def test_a_file_overwritten_while_it_is_mapped_is_refused(copies, other):
    dataset = fastload.PackedDataset(copies["one"])
    assert len([dataset[index] for index in range(COUNT)]) == COUNT  # checked once, all of them
    assert dataset.targets
    for mine, its in zip(shards(copies["one"]), shards(copies[other]), strict=True):
        rewrite(mine, its)
    assert_every_way_is_refused(dataset, range(5))
    assert_every_way_is_refused(fastload.PackedDataset(copies["one"]), range(5))


def test_a_restored_file_is_read_again(copies, originals):
    dataset = fastload.PackedDataset(copies["one"])
    wanted = dataset[0][0]
    first, second = shards(copies["one"])[:2]
    rewrite(first, second)
    with pytest.raises(DamageError):
        dataset[0]
    rewrite(first, shards(originals["one"])[0])
    assert torch.equal(dataset[0][0], wanted)


def swap_rows_of_hdf5(path):
    with h5py.File(path, "r+") as file:
        for name in ("image/data", "image/shape", "image/grid", "label", "crc32c"):
            rows = file[name][()]
            rows[[0, 1]] = rows[[1, 0]]
            file[name][...] = rows
        keys, offsets = file["key/data"][()], file["key/offsets"][()].tolist()
        first, second = keys[: offsets[1]].copy(), keys[offsets[1] : offsets[2]].copy()
        assert len(first) == len(second)
        keys[: offsets[1]], keys[offsets[1] : offsets[2]] = second, first
        file["key/data"][...] = keys


def swap_rows_of_lmdb(path):
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 28) as environment,
        environment.begin(write=True) as transaction,
    ):
        count = int(transaction.get(b"records"))
        for key, value in list(transaction.cursor()):
            name = key.decode()
            if name.endswith("/00000000"):
                other = name[:-1] + "1"
                second = transaction.get(other.encode())
                transaction.put(other.encode(), value)
                transaction.put(key, second)
            elif name in ("label", "crc32c", "image/shape", "image/grid"):
                rows = np.frombuffer(value, np.uint8).reshape(count, -1).copy()
                rows[[0, 1]] = rows[[1, 0]]
                transaction.put(key, rows.tobytes())


def test_rows_swapped_with_all_their_columns_are_refused(tmp_path):
    for container, swap_rows in (("hdf5", swap_rows_of_hdf5), ("lmdb", swap_rows_of_lmdb)):
        path = packed(tmp_path, container, container, classes=("a", "b"))
        shard = shards(path)[0]
        dataset = fastload.PackedDataset(path, verify="never")
        before = [dataset[index][0] for index in (0, 1, 2)]
        del dataset
        swap_rows(shard)
        reseal(path, shard)
        swapped = fastload.PackedDataset(path, verify="never")
        assert torch.equal(swapped[0][0], before[1])
        del swapped
        dataset = fastload.PackedDataset(path)
        for index in (0, 1):
            with pytest.raises(DamageError, match="checksum"):
                dataset[index]
        assert torch.equal(dataset[2][0], before[2])


def reseal(path, shard):
    """Has the manifest state the size that a shard has now."""
    manifest, size = read_manifest(path), shard.stat().st_size
    changed = [
        replace(each, size_bytes=size) if each.file == shard.name else each for each in manifest.shards
    ]
    (path / "manifest.json").write_bytes(replace(manifest, shards=tuple(changed)).to_bytes())


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_workers_of_a_loader_refuse_a_dataset_that_was_replaced(copies, start):
    dataset = fastload.PackedDataset(copies["one"])
    assert dataset[0]
    shutil.rmtree(copies["one"])
    shutil.copytree(copies["two"], copies["one"])
    loader = fastload.DataLoader(dataset, batch_size=20, num_workers=1, multiprocessing_context=start)
    with pytest.raises(DamageError):
        list(loader)


def test_a_reader_of_a_removed_dataset_names_the_file(copies):
    dataset = fastload.PackedDataset(copies["one"])
    loader = fastload.DataLoader(dataset, batch_size=20, num_workers=0)
    assert len(list(loader)) == 3
    shutil.rmtree(copies["one"])
    with pytest.raises(DamageError, match=r"cannot be read \(No such file"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_shard_is_detected_when_the_next_epoch_begins(copies, workers):
    dataset = fastload.PackedDataset(copies["one"])
    loader = fastload.DataLoader(dataset, batch_size=20, num_workers=workers, persistent_workers=workers > 0)
    assert len(list(loader)) == 3
    shard = shards(copies["one"])[1]
    os.truncate(shard, shard.stat().st_size // 2)
    with pytest.raises(DamageError, match=r"shard-00001.*size"):
        list(loader)


def test_a_modified_shard_is_checked_again_in_the_next_epoch(copies):
    dataset = fastload.PackedDataset(copies["one"])
    loader = fastload.DataLoader(dataset, batch_size=20, num_workers=0)
    assert len(list(loader)) == 3
    shard = shards(copies["one"])[0]
    data = shard.read_bytes()
    place = data.find(bytes(dataset.read(1).stored("image")))
    with shard.open("r+b") as file:
        file.seek(place)
        file.write(bytes([data[place] ^ 1]))
    os.utime(shard, ns=(0, 0))
    with pytest.raises(DamageError, match=r"record 1 .*checksum"):
        list(loader)


def test_the_same_dataset_in_new_files_is_read_on(copies, originals):
    dataset = fastload.PackedDataset(copies["one"])
    loader = fastload.DataLoader(dataset, batch_size=20, num_workers=0)
    before = [labels.tolist() for _, labels in loader]
    shutil.rmtree(copies["one"])
    shutil.copytree(originals["one"], copies["one"])
    assert [labels.tolist() for _, labels in loader] == before
