"""Datasets to cache, and a folder for their stores that no other test uses."""

import gc
import os

import pytest

from fastload import Cache
from fastload.datasets.cache.disk import DiskCache
from fastload.datasets.cache.disk_filling import fill_copy
from tests.datasets.conftest import packed, photos, thumbnails  # noqa: F401


@pytest.fixture
def place(tmp_path):
    """A folder for stores, which must be empty at the end."""
    folder = tmp_path / "stores"
    folder.mkdir()
    yield folder
    if os.listdir(folder):
        gc.collect()  # a dataset leaves its cache when it is collected
    assert os.listdir(folder) == []


@pytest.fixture
def cache(place):
    """Return a function `cache(kind, form)` whose stores are in this test's folder."""
    return lambda kind="ram", form=None: Cache(kind, place, form)


@pytest.fixture
def caches(tmp_path):
    """A folder for caches on the disk."""
    return tmp_path / "caches"


@pytest.fixture
def no_process(monkeypatch):
    """Fill no cache in the background."""
    monkeypatch.setattr(DiskCache, "_fill", lambda self, source: None)


@pytest.fixture
def on_disk(caches, no_process):
    """Return a function that sets a dataset's cache and fills it at once."""

    def on_disk(dataset, form=None):
        dataset.use_cache(Cache("disk", caches, form))
        disk = dataset._cache
        lock = disk.place.folder.lock(disk.place.name)
        fill_copy(disk._source, disk.place, lambda: True)
        lock.release()
        disk._next_check_s = 0.0
        disk.refresh()
        assert dataset.cached.state == "complete"
        return dataset

    return on_disk
