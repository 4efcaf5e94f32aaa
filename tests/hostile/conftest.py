"""A small packed dataset that each test may damage."""

import shutil

import pytest

import fastload
from tests.folders import class_folders


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def original(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    class_folders(root / "photos", count=12, size=(8, 8))
    options = {"format": request.param, "encode": "jpeg", "workers": 1, "shard_size": 4096}
    fastload.pack(root / "photos", root / "photos.fl", **options)
    return root / "photos.fl"


@pytest.fixture
def dataset(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy.fl")
