"""Counter-based random numbers: an image's numbers depend only on its key."""

import numpy as np
import pytest
import torch

from fastload.transforms.draws import EpochDraws, draws_for, fresh_draws, integers
from tests.transforms.samples import assert_same_distribution, keys


def numbers(seed, indices, place=None, count=3):
    with EpochDraws(seed):
        draws = draws_for(indices)
    return (draws if place is None else draws.at(place)).uniform(count)


def test_numbers_do_not_depend_on_the_batch():
    together = numbers(5, list(range(40)))
    np.testing.assert_array_equal(numbers(5, [7, 31, 2]), together[[7, 31, 2]])
    np.testing.assert_array_equal(np.concatenate([numbers(5, [index]) for index in range(40)]), together)


def test_numbers_do_not_depend_on_their_count():
    np.testing.assert_array_equal(numbers(5, range(9), count=20)[:, :3], numbers(5, range(9)))


def test_one_image_of_a_batch_keeps_its_numbers():
    draws = keys(5)
    for position in range(5):
        np.testing.assert_array_equal(draws.image(position).uniform(4), draws.uniform(4)[[position]])


def test_epochs_indices_and_positions_differ():
    parts = [numbers(seed, range(50), place) for seed in (0, 1, 2) for place in (None, 0, 1)]
    everything = np.concatenate(parts).ravel()
    assert len(np.unique(everything)) == everything.size


def test_numbers_are_uniform_and_independent():
    rows = numbers(11, range(20_000), place=2, count=6)
    assert ((rows >= 0) & (rows < 1)).all()
    for column in rows.T:
        assert_same_distribution(column, np.linspace(0, 1, 20_000, endpoint=False))
    # Correlations of independent columns are within 5 / sqrt(20,000).
    assert np.abs(np.corrcoef(rows.T) - np.eye(6)).max() < 0.036
    neighbours = np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]
    assert abs(neighbours) < 0.036


def test_positions_within_positions_are_independent():
    draws = keys(5000)
    inner, outer = draws.at(1).at(2).uniform(1)[:, 0], draws.at(2).at(1).uniform(1)[:, 0]
    assert abs(np.corrcoef(inner, outer)[0, 1]) < 0.08


def test_numbers_outside_an_epoch_come_from_torchs_generator():
    torch.manual_seed(1)
    first = draws_for([3, 4]).uniform(2)
    assert not np.array_equal(draws_for([3, 4]).uniform(2), first)
    torch.manual_seed(1)
    np.testing.assert_array_equal(fresh_draws(2).uniform(2), first)


def test_the_epoch_seed_ends_with_its_block():
    before = draws_for([1]).uniform(3)
    with EpochDraws(3):
        inside = draws_for([1]).uniform(3)
        with EpochDraws(4):
            assert not np.array_equal(draws_for([1]).uniform(3), inside)
        np.testing.assert_array_equal(draws_for([1]).uniform(3), inside)
    assert not np.array_equal(draws_for([1]).uniform(3), before)


@pytest.mark.parametrize("bound", [1, 2, 14, 1000])
def test_integers_are_equally_frequent(bound):
    counts = np.bincount(integers(keys(20_000).uniform(1)[:, 0], bound), minlength=bound)
    assert len(counts) == bound
    assert np.abs(counts - 20_000 / bound).max() <= 6 * np.sqrt(20_000 / bound)


def test_integers_stay_below_the_bound():
    almost = np.nextafter(1.0, 0.0)
    assert integers(np.array([almost]), (1 << 53) + 0).tolist() == [(1 << 53) - 1]
    assert integers(np.array([[almost, 0.0]]), np.array([[3, 1]])).tolist() == [[2, 0]]
