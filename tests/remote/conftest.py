import cv2
import fsspec
import numpy as np
import pytest

import fastload
from tests.remote.server import serving, serving_s3

RECORDS = 64


def make_dataset(folder, **options):
    """Pack random images in several shards."""
    rng = np.random.default_rng(0)
    source = folder / "photos"
    for number in range(RECORDS):
        place = source / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (48, 64, 3), np.uint8)
        assert cv2.imwrite(str(place / f"{number:02d}.png"), pixels)
    options = {"encode": "keep", "workers": 1, "shard_size": 80_000, **options}
    fastload.pack(source, folder / "photos.fl", **options)
    return folder / "photos.fl"


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """A packed dataset of several shards; nobody writes to it."""
    return make_dataset(tmp_path_factory.mktemp("remote"))


@pytest.fixture
def server(packed):
    with serving(packed.parent) as server:
        yield server


@pytest.fixture
def cache(tmp_path):
    return fastload.Cache("disk", folder=tmp_path / "cache")


@pytest.fixture
def url(server):
    return f"{server.url}/photos.fl"


@pytest.fixture(scope="session")
def bucket(packed):
    """The URL of the dataset in a bucket, and the options to reach it."""
    with serving_s3() as options:
        system = fsspec.filesystem("s3", **options)
        for path in packed.iterdir():
            system.put_file(str(path), f"bucket/photos.fl/{path.name}")
        yield "s3://bucket/photos.fl", options
