import cv2
import numpy as np
import pytest

import fastload
from tests.remote.server import serving

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
    moto_server = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = {"key": "testing", "secret": "testing", "endpoint_url": f"http://127.0.0.1:{port}"}
    system = s3fs.S3FileSystem(**options)
    system.mkdir("bucket")
    for path in packed.iterdir():
        system.put_file(str(path), f"bucket/photos.fl/{path.name}")
    yield "s3://bucket/photos.fl", options
    server.stop()
