"""Interrupted packing of a Python dataset, which starts over: its samples may have changed unnoticed."""

import numpy as np
import pytest

from fastload import PackedDataset, SourceError, pack
from tests.folders import pixels

COUNT = 200


class Photos:
    """Photos that can make packing stop near the end."""

    def __init__(self, version, stops=False):
        self.version = version
        self.stops = stops

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if self.stops and index == COUNT - 1:
            raise RuntimeError("stopped")
        return pixels(1000 * self.version + index), index


def packed(dataset, dest):
    return pack(dataset, dest, encode="raw", shard_size=20_000, workers=1)


def test_interrupted_packing_of_a_dataset_leaves_nothing_and_starts_over(tmp_path):
    dest = tmp_path / "photos.fl"
    with pytest.raises(SourceError, match="stopped"):
        packed(Photos(1, stops=True), dest)
    assert not list(tmp_path.iterdir())
    assert packed(Photos(2), dest).resumed == 0
    dataset = PackedDataset(dest)
    for index in range(COUNT):
        np.testing.assert_array_equal(dataset[index][0].permute(1, 2, 0), Photos(2)[index][0])


def test_a_dataset_without_samples_is_refused(tmp_path):
    with pytest.raises(SourceError, match="list: has no records"):
        pack([], tmp_path / "photos.fl")
    assert not list(tmp_path.iterdir())
