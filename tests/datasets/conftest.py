"""Folders of images, and datasets packed from them."""

import cv2
import numpy as np
import pytest

import fastload
from tests.datasets.reference import CLASSES, folder_of

SIZES = [(60, 85), (97, 64), (33, 120), (128, 128), (75, 75), (64, 90)]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("photos") / "photos", SIZES, 24)


@pytest.fixture(scope="session")
def thumbnails(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("thumbs") / "thumbs", [(32, 32)], 40, ".png")


@pytest.fixture(scope="session")
def packed(photos, thumbnails, tmp_path_factory):
    """Return a function of (folder name, encoding, container) that returns the path, packed once."""
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


@pytest.fixture(scope="session")
def class_folder(tmp_path_factory):
    """Thirty smooth images of one size, JPEG and PNG, in three class folders."""
    root = tmp_path_factory.mktemp("classes") / "photos"
    rng = np.random.default_rng(7)
    for number in range(30):
        place = root / CLASSES[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 255, (6, 7, 3), np.uint8)
        pixels = cv2.resize(coarse, (48, 40), interpolation=cv2.INTER_CUBIC)
        assert cv2.imwrite(str(place / f"{number:02d}.{'png' if number % 4 else 'jpg'}"), pixels)
    return root


@pytest.fixture(scope="session", params=["hdf5", "lmdb"])
def packed_classes(request, class_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed_classes") / "photos.fl"
    fastload.pack(class_folder, path, format=request.param, encode="keep", workers=1, shard_size=8192)
    return path
