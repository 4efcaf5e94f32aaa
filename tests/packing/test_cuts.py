"""Cuts between shards: from predicted sizes, each about as large as wanted."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload import pack
from fastload.packing.encoding.assemble import cuts_of, predict_sizes
from fastload.shards.manifest import read_manifest
from tests.folders import encoded, pixels


class Listed:
    """A source of records whose sizes are known from the listing, or are not."""

    def __init__(self, sizes, count=None):
        self.sizes, self.count = sizes, count

    def __len__(self):
        return self.count or len(self.sizes)

    def sizes_bytes(self):
        return None if self.sizes is None else np.array(self.sizes, np.int64)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200), st.integers(1, 50_000))
def test_every_record_is_in_one_shard_and_shards_are_of_one_size(sizes, shard_bytes):
    cuts = cuts_of(np.array(sizes), shard_bytes)
    assert (cuts[0], cuts[-1]) == (0, len(sizes))
    assert cuts == sorted(set(cuts))
    shards = min(len(sizes), -(-sum(sizes) // shard_bytes))
    assert len(cuts) - 1 <= shards
    for begin, end in itertools.pairwise(cuts):
        assert sum(sizes[begin:end]) <= sum(sizes) / shards + 2 * max(sizes)


def test_no_shard_has_more_records_than_are_packed_in_bounded_memory():
    sizes = np.random.default_rng(0).integers(1, 9000, 1_000_000)
    counts = np.diff(cuts_of(sizes, 1 << 32))
    assert counts.max() <= 1 << 18
    assert len(counts) == 4


def test_records_larger_than_a_shard_get_shards_of_their_own():
    assert cuts_of(np.full(50, 1000), 1) == list(range(51))


def test_sizes_follow_those_of_the_files():
    listed = np.random.default_rng(0).integers(100, 100_000, 1000)
    measured = {index: int(listed[index]) // 2 + 300 for index in range(0, 1000, 50)}
    predicted = predict_sizes(Listed(listed), measured)
    np.testing.assert_allclose(predicted, listed / 2 + 300, atol=2)


@pytest.mark.parametrize(
    ("listed", "measured"),
    [
        (None, {0: 900, 5: 1100}),  # not known before they are read
        ([7] * 10, {0: 900, 5: 1100}),
        ([10, 20] * 5, {0: 1100, 5: 900}),  # a smaller file does not take more
    ],
)
def test_sizes_are_the_mean_where_the_files_do_not_tell(listed, measured):
    assert set(predict_sizes(Listed(listed, 10), measured).tolist()) == {1000}


def test_sizes_are_never_negative():
    predicted = predict_sizes(Listed([10, 1000, 2000]), {1: 100, 2: 400})
    assert predicted.tolist() == [2, 167, 333]


def test_source_of_which_no_sampled_record_can_be_packed_gets_one_shard():
    assert cuts_of(predict_sizes(Listed(None, 10), {}), 4096) == [0, 10]


@pytest.mark.parametrize("encode", ["keep", "jpeg", "raw"])
def test_shards_of_photos_are_about_as_large_as_wanted(tmp_path, encode):
    rng = np.random.default_rng(1)
    for number in range(400):
        path = tmp_path / "photos" / f"class{number % 4}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(pixels(number, *rng.integers(20, 60, 2).tolist())))
    result = pack(tmp_path / "photos", tmp_path / "x.fl", encode=encode, shard_size="100KB")
    sizes = [shard.size_bytes for shard in read_manifest(tmp_path / "x.fl").shards]
    assert len(sizes) > 5
    assert sum(sizes) == result.size_bytes
    for size in sizes:
        assert 50_000 < size < 180_000
