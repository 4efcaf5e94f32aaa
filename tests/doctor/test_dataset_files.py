"""The files behind a dataset, found without asking it for a sample."""

from types import SimpleNamespace

import h5py
import lmdb
import numpy as np
import pytest

import fastload
from fastload.doctor.dataset_files import files_of, measure_store
from tests.doctor.situations import make_photos

LARGE = 2 << 20


class Sized(SimpleNamespace):
    """A dataset of so many samples, with whatever attributes."""

    samples_in_all = 1000

    def __len__(self):
        return self.samples_in_all


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, np.zeros(LARGE, np.uint8))
    return path


def hdf5_of(folder):
    path = folder / "images.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros(LARGE, np.uint8)
    return path


def test_a_mapped_array_is_its_file(large):
    mapped = np.load(large, mmap_mode="r")
    for array in (mapped, np.asarray(mapped)[3:], mapped.reshape(2, -1)):
        found = files_of(Sized(images=array))
        assert (found.paths, found.are_containers) == ([str(large)], True)


def test_an_array_in_memory_is_no_file():
    assert files_of(Sized(images=np.zeros(LARGE, np.uint8))).paths == []


def test_an_open_hdf5_file_and_what_is_in_it_are_the_file(tmp_path):
    path = hdf5_of(tmp_path)
    with h5py.File(path) as file:
        for held in (file, file["images"], {"train": file}):
            assert files_of(Sized(held=held)).paths == [str(path)]


def test_a_closed_hdf5_file_is_no_error(tmp_path):
    with h5py.File(hdf5_of(tmp_path)) as file:
        pass
    assert files_of(Sized(file=file)).paths == []


def test_an_lmdb_environment_is_its_file(tmp_path):
    with lmdb.open(str(tmp_path / "db"), map_size=8 << 20) as environment:
        with environment.begin(write=True) as transaction:
            transaction.put(b"0", bytes(LARGE))
        for held in (environment, str(tmp_path / "db")):
            assert files_of(Sized(held=held)).paths == [str(tmp_path / "db" / "data.mdb")]


def test_a_path_of_a_large_file_is_what_it_reads_and_that_of_a_small_one_is_not(large, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("a,b")
    assert files_of(Sized(labels=labels, images=large)).paths == [str(large)]
    assert files_of(Sized(labels=labels, name="a name", odd="\0")).paths == []


def test_fewer_large_files_than_samples_hold_many_each(large):
    found = files_of(Sized(shards=[str(large)]))
    assert (found.paths, found.are_containers) == ([str(large)], True)
    store = measure_store(found.paths, 1000, most_s=0.2, are_containers=found.are_containers)
    assert (store.samples, store.are_containers) == (1000, True)
    assert LARGE <= store.size_bytes < LARGE + 4096
    assert store.warm_per_s > 0


def test_of_samples_that_nobody_counts_photos_are_assumed(large):
    store = measure_store([str(large)], 0, most_s=0.2, are_containers=True)
    assert store.samples == LARGE // (128 << 10)


def test_images_are_a_sample_each_however_often_they_are_drawn(tmp_path):
    photos = sorted(map(str, make_photos(tmp_path / "photos", 3, 1200, 1600).iterdir()))
    found = files_of(Sized(paths=photos))
    assert (found.paths, found.are_containers) == (photos, False)


def test_a_packed_dataset_is_its_shards(tmp_path):
    photos = make_photos(tmp_path / "photos", 8, 64, 64)
    fastload.pack(photos, tmp_path / "photos.fl", workers=1)
    found = files_of(fastload.PackedDataset(tmp_path / "photos.fl"))
    assert found.are_containers
    assert [path.rpartition("/")[2].partition("-")[0] for path in found.paths] == ["shard"]
