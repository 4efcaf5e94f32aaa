"""cache="auto" on a slow and on a fast disk: the choice, and the later reads of the disk."""

import random
import shutil
import sys
import tempfile

import numpy as np
import pytest
import torch

from fastload import FolderDataset, PackedDataset, pack
from fastload.datasets.cache.choosing import Measured
from fastload.datasets.cache.options import Cache
from tests.datasets.cache.programs import plenty
from tests.folders import class_folders
from tests.slow_disk import slow_disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd and FUSE are Linux's")

COUNT = 40


@pytest.fixture
def folder(tmp_path):
    return class_folders(tmp_path / "photos", COUNT)


def used(dataset, **options):
    return dataset.use_cache(Cache("auto"), room=plenty, **options)


def test_slow_disk_is_read_once(folder):
    with slow_disk(folder, bytes_per_s=3e5, latency_s=0.002) as mount:
        dataset = FolderDataset(mount)
        report = used(dataset)
        assert report.kind == "ram"
        assert report.share == 1
        assert "your disk reads samples 0." in report.reason
        for _ in range(3):
            list(dataset)
        assert dataset.cached.ready == 1
        assert dataset.cached.hits >= 2 * COUNT
        dataset.close_cache()


def test_cache_of_another_process_is_joined(folder):
    with slow_disk(folder, bytes_per_s=3e5, latency_s=0.002) as mount:
        first, other = FolderDataset(mount), FolderDataset(mount)
        assert used(first).kind == "ram"
        report = used(other)
        assert (report.kind, report.reason) == (
            "ram",
            "another of your processes chose it for this dataset",
        )
        first.close_cache()
        other.close_cache()


def test_shards_on_a_slow_disk_are_read_once(folder, tmp_path):
    pack(folder, tmp_path / "packed" / "photos.fl", encode="keep", workers=1)
    with slow_disk(tmp_path / "packed", bytes_per_s=3e5, latency_s=0.002) as mount:
        dataset = PackedDataset(mount / "photos.fl")
        report = used(dataset)
        assert (report.kind, report.form) == ("ram", "encoded")
        list(dataset)
        misses = dataset.cached.misses
        list(dataset)
        assert dataset.cached.misses == misses <= COUNT
        dataset.close_cache()


def test_model_slower_than_the_disk_needs_no_cache(folder):
    dataset = FolderDataset(folder)
    report = used(dataset, measured=Measured(prepare_samples_per_s=1_000.0, step_samples_per_s=2.0))
    assert report.kind is None
    assert report.reason.endswith("times as fast as the model uses them")


def test_dataset_in_memory_needs_no_cache(folder, tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        shutil.copytree(folder, place, dirs_exist_ok=True)
        assert "in memory already" in used(FolderDataset(place)).reason


def test_measuring_does_not_change_random_states(folder):
    def states():
        return random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()

    before = states()
    used(FolderDataset(folder, transform=np.copy))
    assert states() == before
