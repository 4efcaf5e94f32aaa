"""Permutations are bijections of any size, random ones, and the same in every release."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.loader.sharding import Permutation, ShuffledWindows


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_each_value_occurs_once(count, seed):
    assert sorted(Permutation(count, (seed, 0))(np.arange(count)).tolist()) == list(range(count))


@given(st.integers(1, 10**15), st.lists(st.integers(0, 10**15), min_size=1, max_size=50))
def test_any_part_equals_that_of_the_whole(count, positions):
    permutation = Permutation(count, (3, 1))
    positions = np.array([position % count for position in positions])
    together = permutation(positions)
    assert together.tolist() == [
        int(permutation(positions[each : each + 1])[0]) for each in range(len(positions))
    ]
    assert ((together >= 0) & (together < count)).all()


def test_a_billion_samples_need_no_table():
    permutation = Permutation(10**9, (0, 0))
    ends = permutation(np.array([0, 1, 2, 10**9 - 1]))
    assert len(set(ends.tolist())) == 4
    assert not hasattr(permutation, "__dict__")


@pytest.mark.parametrize("count", range(2, 7))
def test_all_permutations_are_equally_frequent(count):
    keys = 3000
    found = np.array([Permutation(count, (key, 5))(np.arange(count)) for key in range(keys)])
    frequencies = np.unique(found, axis=0, return_counts=True)[1].tolist()
    expected = keys / math.factorial(count)
    frequencies += [0] * (math.factorial(count) - len(frequencies))
    chi_squared = sum((frequency - expected) ** 2 / expected for frequency in frequencies)
    degrees = math.factorial(count) - 1
    # Beyond five deviations: one of three million random sequences.
    assert abs(chi_squared - degrees) < 5 * math.sqrt(2 * degrees)


def test_neighbours_are_strewn_over_the_whole():
    places = Permutation(100_000, (1, 0))(np.arange(100_000)).astype(float)
    steps = np.abs(np.diff(places))
    # The mean distance of two random numbers below n is n / 3.
    assert abs(steps.mean() / 100_000 - 1 / 3) < 0.01
    assert abs(np.corrcoef(np.arange(100_000), places)[0, 1]) < 0.02


def test_epochs_and_seeds_are_independent():
    orders = [Permutation(1000, key)(np.arange(1000)) for key in [(0, 0), (0, 1), (1, 0), (1, 1)]]
    for one in range(4):
        for other in range(one):
            # The number of equal places of two random orders is about 1.
            assert (orders[one] == orders[other]).sum() < 10


def test_order_stays_what_it_was():
    """States that older releases saved depend on it."""
    twenty = [18, 16, 5, 2, 19, 3, 8, 15, 13, 11, 17, 4, 10, 12, 0, 14, 7, 9, 6, 1]
    assert Permutation(20, (7, 3))(np.arange(20)).tolist() == twenty
    of_a_trillion = [252236928186, 110792884438, 307906981573]
    assert Permutation(10**12, (7, 3))(np.arange(3)).tolist() == of_a_trillion


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 5))
def test_windows_hold_whole_shards(counts, window, epoch):
    total = sum(counts)
    order = ShuffledWindows(counts, window, 1, epoch)
    samples = order(np.arange(total))
    assert sorted(samples.tolist()) == list(range(total))
    shard_of = np.repeat(np.arange(len(counts)), counts)[samples]
    begin, seen = 0, set()
    while begin < total:
        shards = set(shard_of[begin : begin + 1].tolist())
        # The window that begins here ends where its shards do.
        end = begin + 1
        while end < begin + sum(counts[shard] for shard in shards):
            shards.add(int(shard_of[end]))
            end += 1
        assert not shards & seen
        assert len(shards) <= window
        seen |= shards
        begin = end


def test_windows_differ_from_epoch_to_epoch():
    orders = [ShuffledWindows([50] * 20, 4, 0, epoch)(np.arange(1000)).tolist() for epoch in range(2)]
    assert orders[0] != orders[1]
    assert {sample // 50 for sample in orders[0][:200]} != {sample // 50 for sample in orders[1][:200]}
