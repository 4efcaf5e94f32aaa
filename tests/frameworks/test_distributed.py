"""DistributedSampler: each rank gets its part, reshuffled each epoch, and goes on where it was left."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch.distributed
from torch.utils.data import DistributedSampler

import fastload
from tests.frameworks.batches import read
from tests.frameworks.distributed_ranks import trained

NUMBERS = range(37)


pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs a torch that was built with gloo",
)


@pytest.fixture(scope="module")
def ranks(run_programs, tmp_path_factory) -> list[Any]:
    """Returns the results of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    run_programs(*(("distributed_ranks", rank, folder) for rank in range(2)))
    return [read(folder / f"{rank}.json") for rank in range(2)]


def test_ranks_share_out_each_epoch(ranks):
    for epoch in range(3):
        seen = [number for rank in ranks for batch in rank["fastload"][epoch] for number in batch]
        # One comes twice, so that both have as many.
        assert sorted(set(seen)) == list(NUMBERS)
        assert len(seen) == 38


def test_set_epoch_reshuffles(ranks):
    for rank in ranks:
        first, second, third = rank["fastload"]
        assert first != second != third != first


def test_batches_are_torchs(ranks):
    for rank in ranks:
        assert rank["fastload"] == rank["torch"]


def test_state_goes_on_with_the_next_batch(ranks):
    for rank in ranks:
        _, second, third = rank["torch"]
        assert rank["resumed"] == [second[2:], third]


def test_weighted_ranks_learn_what_one_process_does(ranks):
    alone = trained(fastload.ShardedSampler(range(37), seed=3), 12, lambda model: model)
    for rank in ranks:
        assert rank["weighted"] == pytest.approx(alone, abs=1e-12)


def test_one_process_continues_an_epoch_of_two_ranks(ranks):
    seen = [number for rank in ranks for batch in rank["sharded"]["seen"] for number in batch]
    loader = fastload.DataLoader(range(37), 7, shuffle=True, seed=2, num_workers=1, sharded=True)
    loader.load_state_dict(torch.load(io.BytesIO(bytes.fromhex(ranks[1]["sharded"]["state"]))))
    seen += [number for batch in loader for number in batch.tolist()]
    assert sorted(seen) == list(NUMBERS)


def test_ranks_without_a_sampler_by_ranks_draw_different_numbers(ranks):
    first, second = (set(rank["draws"]) for rank in ranks)
    assert first.isdisjoint(second)


def test_tensor_parallel_ranks_of_a_replica_get_the_same_batches(run_programs, tmp_path):
    run_programs(*(("mesh_ranks", rank, tmp_path) for rank in range(4)))
    first, second, third, fourth = (read(tmp_path / f"{rank}.json") for rank in range(4))
    assert first == second
    assert third == fourth
    assert sorted(number for batch in first + third for number in batch) == list(range(40))


@pytest.mark.parametrize("workers", [0, 1])
def test_state_at_an_epochs_end_heeds_set_epoch(workers):
    def make() -> tuple[DistributedSampler, Any]:
        sampler = DistributedSampler(NUMBERS, 2, 0)
        return sampler, fastload.DataLoader(NUMBERS, batch_size=4, sampler=sampler, num_workers=workers)

    sampler, loader = make()
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append([batch.tolist() for batch in loader])
        if epoch == 0:
            state = loader.state_dict()

    sampler, loader = make()
    loader.load_state_dict(state)
    sampler.set_epoch(1)
    assert [batch.tolist() for batch in loader] == epochs[1]
