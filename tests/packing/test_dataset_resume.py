"""An interrupted packing of a Python dataset: it resumes only if the samples are still the same."""

import numpy as np
import pytest

from fastload import PackedDataset, SourceError, pack
from tests.folders import pixels

COUNT = 200


class Photos:
    """Photos of one version; their packing can be made to stop near the end."""

    def __init__(self, version, stops=False, is_random=False):
        self.version = version
        self.stops = stops
        self.is_random = is_random

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if self.stops and index == COUNT - 1:  # not one of those that the fingerprint covers
            raise RuntimeError("stopped")
        noise = np.random.randint(256) if self.is_random else 0
        return pixels(1000 * self.version + index) + np.uint8(noise), index


def packed(dataset, dest):
    options = {"encode": "raw", "shard_size": 20_000, "workers": 1}
    return pack(dataset, dest, **options)


@pytest.mark.parametrize(
    ("later", "goes_on"),
    [(Photos(1), True), (Photos(2), False), (Photos(1, is_random=True), False)],
    ids=["same", "changed", "random"],
)
def test_packing_resumes_only_with_the_same_samples(tmp_path, later, goes_on):
    dest = tmp_path / "photos.fl"
    with pytest.raises(SourceError, match="stopped"):
        packed(Photos(1, stops=True), dest)
    result = packed(later, dest)
    assert (result.resumed > 0) == goes_on
    if not later.is_random:
        dataset = PackedDataset(dest)
        for index in range(COUNT):
            np.testing.assert_array_equal(dataset[index][0].permute(1, 2, 0), later[index][0])


def test_a_random_dataset_starts_over_under_the_same_seed_too(tmp_path):
    dest = tmp_path / "photos.fl"
    np.random.seed(3)
    with pytest.raises(SourceError, match="stopped"):
        packed(Photos(1, stops=True, is_random=True), dest)
    np.random.seed(3)
    assert packed(Photos(1, is_random=True), dest).resumed == 0


def test_a_dataset_without_samples_is_refused(tmp_path):
    with pytest.raises(SourceError, match="list: must have at least one record, got none"):
        pack([], tmp_path / "photos.fl")
    assert not list(tmp_path.iterdir())
