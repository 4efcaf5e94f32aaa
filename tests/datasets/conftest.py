"""Folders of pictures, and what was packed of them."""

import pytest

import fastload
from tests.datasets.plainly import folder_of

SIZES = [(60, 85), (97, 64), (33, 120), (128, 128), (75, 75), (64, 90)]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("photos") / "photos", SIZES, 24)


@pytest.fixture(scope="session")
def thumbnails(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("thumbs") / "thumbs", [(32, 32)], 40, ".png")


@pytest.fixture(scope="session")
def packed(photos, thumbnails, tmp_path_factory):
    """Gives `packed(folder name, encoding, container)`: the path, packed once."""
    root, made = tmp_path_factory.mktemp("packed"), {}

    def path_of(name, encoding, container="hdf5"):
        key = f"{name}-{encoding}-{container}"
        if key not in made:
            made[key] = root / f"{key}.fl"
            source = {"photos": photos, "thumbnails": thumbnails}[name]
            options = {"encode": encoding, "format": container, "shard_size": 30_000}
            fastload.pack(source, made[key], workers=1, **options)
        return made[key]

    return path_of
