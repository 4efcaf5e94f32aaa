"""Samples drawn by weights or classes: their frequencies, the same on any ranks and after any resume."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset

import fastload
from fastload.errors import OptionError
from fastload.loader.sharded_sampler import ShardedSampler
from tests.folders import class_folders


class Labelled:
    def __init__(self, targets: Any) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> int:
        return index


def drawn(weights: Any, ranks: int = 1, epoch: int = 0, **options: Any) -> list[list[int]]:
    """Return the samples of each rank in an epoch."""
    found = []
    for rank in range(ranks):
        sampler = ShardedSampler(range(len(weights)), ranks, rank, sample_weights=weights, **options)
        sampler.set_epoch(epoch)
        found.append(list(sampler))
    return found


def test_samples_come_in_proportion_to_their_weights():
    weights = np.random.default_rng(0).random(1000) * (np.arange(1000) % 3 != 0)
    draws = np.concatenate([drawn(weights, epoch=epoch)[0] for epoch in range(200)])
    counts = np.bincount(draws, minlength=1000)
    expected = weights / weights.sum() * len(draws)
    drawable = weights > 0
    assert not counts[~drawable].any()
    deviations = (counts - expected)[drawable] / np.sqrt(expected[drawable])
    assert 0.9 < float(np.square(deviations).mean()) < 1.1  # 1 for independent draws


@given(st.lists(st.sampled_from([0, 0.5, 1, 3]), min_size=1, max_size=80).filter(any), st.integers(1, 7))
def test_the_draws_do_not_depend_on_the_number_of_ranks(weights, ranks):
    [whole] = drawn(weights, ends="exact")
    parts = drawn(weights, ranks, ends="exact")
    assert [
        sample for each in itertools.zip_longest(*parts) for sample in each if sample is not None
    ] == whole
    assert all(weights[sample] for sample in whole)


def test_epochs_and_seeds_draw_differently():
    weights = [1.0] * 50
    draws = [drawn(weights, epoch=0), drawn(weights, epoch=1), drawn(weights, seed=1)]
    assert len({tuple(each[0]) for each in draws}) == 3


def test_an_epoch_is_resumed_on_other_ranks_with_the_draws_that_were_left():
    weights = np.arange(100.0)
    [whole] = drawn(weights, ends="exact")

    def loader_of(rank: int, ranks: int, weights: Any = weights) -> Any:
        sampler = ShardedSampler(range(100), ranks, rank, ends="exact", sample_weights=weights)
        return fastload.DataLoader(range(100), 5, sampler=sampler, num_workers=0)

    done = []
    for rank in range(4):
        loader = loader_of(rank, 4)
        done += [int(sample) for batch in itertools.islice(loader, 2) for sample in batch]
        state = loader.state_dict()
    rest = []
    for rank in range(2):
        loader = loader_of(rank, 2)
        loader.load_state_dict(state)
        rest += [int(sample) for batch in loader for sample in batch]
    assert sorted(done) == sorted(whole[:40])
    assert sorted(rest) == sorted(whole[40:])
    other = loader_of(0, 2, weights[::-1])
    other.load_state_dict(state)
    with pytest.raises(OptionError, match="sample_weights"):
        next(iter(other))


@pytest.mark.parametrize("labels", [[0] * 90 + [7] * 9 + [-1], ["a"] * 99 + ["b"]])
def test_balanced_draws_each_class_equally_often(labels):
    sampler = ShardedSampler(Labelled(labels), 1, 0, sample_weights="balanced")
    draws = [labels[sample] for _ in range(100) for sample in sampler]
    shares = [draws.count(label) / len(draws) for label in set(labels)]
    assert shares == pytest.approx([1 / len(shares)] * len(shares), abs=0.03)


def test_balanced_knows_the_classes_of_packed_datasets_and_of_their_parts(tmp_path):
    class_folders(tmp_path / "photos")
    fastload.pack(tmp_path / "photos", tmp_path / "photos.fl")
    dataset = fastload.PackedDataset(tmp_path / "photos.fl")
    part = ConcatDataset([dataset, Subset(dataset, [0, len(dataset) - 1])])
    labels = [*dataset.targets, dataset.targets[0], dataset.targets[-1]]
    counts = np.bincount(labels)
    for whole, weights in (
        (part, 1 / counts[labels]),
        (dataset, 1 / np.bincount(dataset.targets)[dataset.targets]),
    ):
        balanced = list(ShardedSampler(whole, 1, 0, sample_weights="balanced"))
        assert balanced == list(ShardedSampler(whole, 1, 0, sample_weights=weights))


@pytest.mark.parametrize(
    "weights", [torch.arange(9.0), torch.arange(9, dtype=torch.float64), tuple(range(9))]
)
def test_weights_may_be_a_tensor_or_a_sequence(weights):
    assert drawn(weights) == drawn(np.arange(9.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weights": [1.0] * 8}, "must be 9 finite numbers of at least 0, one for each sample, got 8"),
        ({"sample_weights": [1.0] * 8 + [-1]}, "of at least 0"),
        ({"sample_weights": [1.0] * 8 + [float("nan")]}, "finite"),
        ({"sample_weights": [0.0] * 9}, "must not all be 0"),
        ({"sample_weights": ["x"] * 9}, "must be numbers, got list"),
        ({"sample_weights": torch.ones(9, requires_grad=True)}, "a CPU tensor"),
        ({"sample_weights": "classes"}, 'numbers or "balanced"'),
        ({"sample_weights": "balanced"}, "a dataset whose `targets` are a class for each sample, got range"),
        ({"sample_weights": [1.0] * 9, "shuffle": False}, "leave window and shuffle unset"),
    ],
)
def test_other_weights_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        ShardedSampler(range(9), 1, 0, **options)


def test_an_empty_dataset_has_no_draws():
    assert list(ShardedSampler(range(0), 1, 0, sample_weights=[])) == []
