"""The files behind a dataset, found without reading a sample."""

from types import SimpleNamespace

import numpy as np
import pytest

import fastload
from fastload.doctor.watching.dataset_files import DataFiles, files_of, folder_of, storage_of
from tests.doctor.situations import make_photos


class Sized(SimpleNamespace):
    """A dataset of a thousand samples, with any attributes."""

    def __len__(self):
        return 1000


@pytest.fixture
def photos(tmp_path):
    return sorted(map(str, make_photos(tmp_path / "photos", 3, 64, 64).iterdir()))


def test_each_image_is_one_sample_however_often_it_is_drawn(photos):
    found = files_of(Sized(paths=photos))
    assert (found.paths, found.are_shards, found.are_images) == (photos, False, True)
    assert files_of(SimpleNamespace(dataset=Sized(samples=[(path, 0) for path in photos]))).paths == photos


def test_file_names_are_relative_to_the_root(photos, tmp_path):
    names = [path.rpartition("/")[2] for path in photos]
    assert files_of(Sized(root=tmp_path / "photos", rows=[{"image": name} for name in names])).paths == photos


def test_the_folder_is_that_of_the_wrapped_dataset(tmp_path):
    assert folder_of(SimpleNamespace(dataset=Sized(root=tmp_path))) == str(tmp_path)
    assert folder_of(Sized(names=[])) == ""


def test_lists_without_files_are_skipped(photos):
    found = files_of(
        Sized(names=["no", "file"], numbers=[1], odd=["\0"], arrays=[np.zeros(3)], photos=photos)
    )
    assert found.paths == photos
    assert files_of(Sized(names=["no", "file"])).paths == []


def test_the_store_of_some_files_counts_all_samples(photos):
    store = storage_of(DataFiles(photos), 3000)
    assert store.samples == 3000
    assert store.size_bytes > 3000 * 64
    assert storage_of(DataFiles([]), 3) is None


def test_a_packed_dataset_is_read_as_its_shards(tmp_path, photos):
    fastload.pack(tmp_path / "photos", tmp_path / "photos.fl", workers=1)
    found = files_of(fastload.PackedDataset(tmp_path / "photos.fl"))
    assert found.are_shards
    assert [path.rpartition("/")[2].partition("-")[0] for path in found.paths] == ["shard"]
    assert storage_of(found, 3).samples == 3
