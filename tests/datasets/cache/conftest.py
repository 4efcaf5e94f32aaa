"""Datasets to cache, and a folder for their stores that no other test uses."""

import gc
import os

import pytest

from fastload import Cache
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
