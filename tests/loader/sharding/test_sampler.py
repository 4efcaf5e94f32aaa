"""ShardedSampler: each sample once an epoch over all ranks, continued on any number of them."""

from __future__ import annotations

import copy
import sys
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastload.errors import OptionError
from fastload.loader.sharded_sampler import ShardedSampler

WEIGHTS = st.lists(st.sampled_from([0.5, 1, 1.5, 2, 3]), min_size=1, max_size=16)


def samplers(samples: int, weights: Any, **options: Any) -> list[ShardedSampler]:
    return [
        ShardedSampler(range(samples), len(weights), rank, weights=weights, **options)
        for rank in range(len(weights))
    ]


@given(st.integers(0, 300), WEIGHTS, st.booleans())
def test_exact_ends_give_each_sample_once(samples, weights, shuffle):
    ranks = [list(each) for each in samplers(samples, weights, ends="exact", shuffle=shuffle)]
    assert sorted(sample for rank in ranks for sample in rank) == list(range(samples))


@given(st.integers(1, 300), WEIGHTS, st.sampled_from(["pad", "drop"]))
def test_other_ends_obey_the_weights(samples, weights, ends):
    ranks = samplers(samples, weights, ends=ends)
    counts = [len(list(copy.copy(each))) for each in ranks]
    assert counts == [len(each) for each in ranks] == [each.num_samples for each in ranks]
    assert all(
        count * weights[0] == counts[0] * weight for count, weight in zip(counts, weights, strict=True)
    )
    seen = Counter(sample for each in ranks for sample in each)
    surplus = sum(counts) - samples
    if ends == "drop":
        assert surplus <= 0
        assert max(seen.values(), default=1) == 1
    else:
        assert surplus >= 0
        assert len(seen) == samples
        assert sum(seen.values()) == samples + surplus
    assert abs(surplus) < ranks[0]._share.round_size


@pytest.mark.parametrize("before", range(1, 17))
def test_any_number_of_ranks_continues_where_others_stopped(before):
    samples = 61
    for step in range(samples // before + 1):
        done, state = _steps(samplers(samples, [1] * before, ends="exact", shuffle=False), step)
        for after in range(1, 17):
            ranks = samplers(samples, [1] * after, ends="exact", shuffle=False)
            rest = []
            for rank in ranks:
                rank.load_state_dict(state)
                rest += list(rank)
            assert sorted(done + rest) == list(range(samples))


def _steps(ranks: list[ShardedSampler], steps: int) -> tuple[list[int], dict[str, Any]]:
    """Return the samples of all ranks in some steps of one sample each, and the state after them."""
    state = ranks[0].state_dict()
    done = [sample for rank in ranks for sample in list(rank)[:steps]]
    return done, {**state, "position": min(steps * ranks[0].step_size(1), len(ranks[0].dataset))}


def test_iterations_are_epochs():
    sampler = ShardedSampler(range(50), 2, 0)
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert sampler.epoch == 1


def test_a_loaded_position_survives_set_epoch_of_the_same_epoch():
    sampler = ShardedSampler(range(50), 2, 0)
    whole = list(sampler)
    sampler.load_state_dict({**ShardedSampler(range(50), 2, 0).state_dict(), "position": 20})
    sampler.set_epoch(0)
    assert len(sampler) == len(whole), "frameworks count on an epoch's length"
    assert list(sampler) == whole[10:]
    sampler.set_epoch(0)
    assert list(sampler) == whole


def test_a_billion_samples_cost_no_more_than_ten_thousand():
    """Neither memory nor the number of calls is in proportion to the dataset."""

    def begun(samples: int) -> tuple[int, int]:
        """Returns calls and bytes of making a sampler, continuing an epoch and taking one sample."""
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        tracemalloc.start()
        sys.setprofile(count)
        sampler = ShardedSampler(range(samples), 1000, 999)
        sampler.load_state_dict({**sampler.state_dict(), "position": samples // 2})
        next(iter(sampler))
        len(sampler)
        sys.setprofile(None)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return calls, peak_bytes

    begun(10_000)
    calls, _ = begun(10_000_000)
    of_a_billion, peak_bytes = begun(1_000_000_000)
    # A thousand ranks' weights are counted, and places of 4,096 samples are computed in advance.
    assert of_a_billion < 1.2 * calls
    assert peak_bytes < 1_000_000


def test_order_does_not_depend_on_the_number_of_ranks():
    alone = list(ShardedSampler(range(60), 1, 0, seed=3))
    for ranks in (2, 3, 5):
        parts = [list(each) for each in samplers(60, [1] * ranks, seed=3)]
        assert [parts[place % ranks][place // ranks] for place in range(60)] == alone


def test_weighted_ranks_have_the_gradient_of_one_process():
    """DistributedDataParallel's mean over ranks, with `loss_scale`, equals the mean over all samples."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(50, 3, dtype=torch.float64), torch.randn(50, dtype=torch.float64)
    model = torch.nn.Linear(3, 1, dtype=torch.float64)

    def gradient(indices: list[int], scale: float = 1.0) -> torch.Tensor:
        loss = (model(inputs[indices])[:, 0] - targets[indices]).square().mean() * scale
        (found,) = torch.autograd.grad(loss, model.weight)
        return found

    batch_sizes = (4, 8, 8, 8)
    ranks = samplers(50, (0.5, 1, 1, 1), ends="exact")
    parts = [list(rank) for rank in ranks]
    order = list(ShardedSampler(range(50), 1, 0))
    for step in range(2):
        batches = [
            part[step * size : (step + 1) * size] for part, size in zip(parts, batch_sizes, strict=True)
        ]
        scales = [rank.loss_scale(size, step) for rank, size in zip(ranks, batch_sizes, strict=True)]
        averaged = sum(
            gradient(batch, scale) for batch, scale in zip(batches, scales, strict=True) if batch
        ) / len(ranks)
        torch.testing.assert_close(averaged, gradient(order[step * 28 : (step + 1) * 28]))
    assert ranks[0].loss_scale(4) == pytest.approx(4 * 4 / 28)


def test_ranks_come_from_a_mesh():
    class Mesh:
        ndim = 1

        def size(self) -> int:
            return 3

        def get_local_rank(self) -> int:
            return 2

    assert list(ShardedSampler(range(9), mesh=Mesh(), shuffle=False)) == [2, 5, 8]


def test_one_process_is_one_rank(monkeypatch):
    assert list(ShardedSampler(range(3), shuffle=False)) == [0, 1, 2]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match=r"init_process_group\(\) first"):
        list(ShardedSampler(range(3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ends": "stop"}, "ends must be one of"),
        ({"weights": (1, 2, 3)}, "one for each of 2 ranks, got 3"),
        ({"weights": (1, 0)}, "weights must be positive numbers"),
        ({"weights": 0.5}, "weights must be positive numbers"),
        ({"weights": "12"}, "weights must be positive numbers"),
        ({"weights": torch.ones(2, 1)}, "give a list, or an array"),
        ({"weights": (1, float("nan"))}, "weights must be positive numbers"),
        ({"window": 2}, "window needs a dataset in shards"),
        ({"window": 0}, "number of shards, at least 1"),
        ({"seed": -1}, "seed must be an integer"),
        ({"rank": 2}, "rank must be from 0"),
        ({"rank": None}, "given together"),
        ({"rank": "1"}, "rank must be an integer"),
        ({"num_replicas": 2.0}, "num_replicas must be an integer"),
        ({"mesh": 3, "num_replicas": None, "rank": None}, "mesh must be a DeviceMesh of one dimension"),
        ({"dataset": iter(())}, "dataset must have a length"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        ShardedSampler(**{"dataset": range(9), "num_replicas": 2, "rank": 0, **options})


@pytest.mark.parametrize("epoch", ["3", -1, 1.0, None, True])
def test_an_epoch_is_a_number(epoch):
    sampler = ShardedSampler(range(9), 2, 0)
    with pytest.raises(OptionError, match="epoch must be an integer of at least 0"):
        sampler.set_epoch(epoch)


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple])
def test_weights_may_be_an_array_or_a_tensor(make):
    ranks = [ShardedSampler(range(9), 2, rank, weights=make([1.0, 2.0]), shuffle=False) for rank in (0, 1)]
    assert [list(rank) for rank in ranks] == [[0, 3, 6], [1, 2, 4, 5, 7, 8]]


def test_a_seed_may_be_of_numpy():
    assert list(ShardedSampler(range(9), seed=np.int64(3))) == list(ShardedSampler(range(9), seed=3))


def test_batch_sizes_must_be_in_proportion():
    with pytest.raises(OptionError, match="a multiple of 2 on rank 1"):
        ShardedSampler(range(9), 2, 1, weights=(1, 2)).loss_scale(3)
    with pytest.raises(OptionError, match="batch_size must be an integer"):
        ShardedSampler(range(9), 2, 1).loss_scale("2")


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"samples": 10}, {"version": 9}, {"position": None}, {"position": -5}, {"epoch": "x"}],
)
def test_another_orders_state_is_refused(change):
    sampler = ShardedSampler(range(9), 2, 0)
    with pytest.raises(OptionError):
        sampler.load_state_dict({**sampler.state_dict(), **change})


def test_a_state_of_windows_is_of_the_same_shards():
    class Shards(list):
        shard_sizes = (10, 10)

    sampler = ShardedSampler(Shards(range(20)), 1, 0, window=1)
    state = sampler.state_dict()
    sampler.dataset.shard_sizes = (5, 15)
    with pytest.raises(OptionError, match="saved by a ShardedSampler with shards="):
        sampler.load_state_dict(state)


@pytest.mark.parametrize("sizes", ["s", None, 20, ["a", "b"], [10.0, 10.0], [[10], [5, 5]], lambda: [20]])
def test_shard_sizes_for_another_purpose_are_refused(sizes):
    class Garments(list):
        shard_sizes = sizes

    with pytest.raises(OptionError, match=r"shard_sizes of Garments must be .* leave window unset"):
        ShardedSampler(Garments(range(20)), 1, 0, window=1)


@pytest.mark.parametrize(
    ("sampler", "advice"),
    [
        (torch.utils.data.WeightedRandomSampler([1.0] * 9, 9), r"dataset, sample_weights=weights\) draws"),
        (torch.utils.data.SubsetRandomSampler(range(9)), "would be ignored: share out a Subset"),
        (torch.utils.data.RandomSampler(range(9)), "RandomSampler, whose order would be ignored"),
    ],
)
def test_the_order_of_another_sampler_is_not_ignored(sampler, advice):
    with pytest.raises(OptionError, match=advice):
        ShardedSampler(sampler, 2, 0)
