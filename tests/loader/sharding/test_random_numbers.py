"""Random numbers of ranks: different ones, which a resume does not make equal."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import fastload
from tests.loader.datasets import Draws

WORKERS = {"deciding": {}, "workers": {"num_workers": 2}}


def loader_of(rank: int, options: Any, ranks: int = 2, batch_size: int = 4) -> fastload.DataLoader[Any]:
    dataset = Draws(40)
    sampler = fastload.ShardedSampler(dataset, ranks, rank, shuffle=False)
    return fastload.DataLoader(dataset, batch_size, sampler=sampler, **options)


def draws(batches: Any) -> list[list[float]]:
    return [batch.flatten().tolist() for batch in batches]


def are_apart(*ranks: list[list[float]]) -> bool:
    """Return whether no rank drew a number of another one."""
    sets = [set(itertools.chain(*rank)) for rank in ranks]
    return all(one.isdisjoint(other) for one, other in itertools.combinations(sets, 2))


@pytest.mark.parametrize("workers", WORKERS)
def test_ranks_draw_different_numbers_and_the_first_those_of_one_process(workers):
    options = {"seed": 0, **WORKERS[workers]}
    first, second, third = (draws(loader_of(rank, options, 3)) for rank in range(3))
    assert are_apart(first, second, third)
    alone = fastload.DataLoader(Draws(14), 4, **options)
    assert draws(alone) == first
    # Ranks of one replica, by tensor parallelism, have the same number.
    assert draws(loader_of(1, options, 3)) == second


@pytest.mark.parametrize("taken", [0, 2])
@pytest.mark.parametrize("seeding", ["seed", "global", "generator"])
@pytest.mark.parametrize("workers", WORKERS)
def test_ranks_that_load_the_state_of_one_draw_different_numbers(workers, seeding, taken):
    def options() -> Any:
        seeds = {"seed": 0, "generator": torch.Generator().manual_seed(1)}
        return WORKERS[workers] | ({seeding: seeds[seeding]} if seeding in seeds else {})

    loader = loader_of(0, options())
    list(loader)
    list(itertools.islice(loader, taken))
    state = loader.state_dict()
    rest, following = [], []
    for rank in (0, 1, 1):
        loader = loader_of(rank, options())
        loader.load_state_dict(state)
        rest.append(draws(loader))
        following.append(draws(loader))
    assert are_apart(*rest[:2], *following[:2])
    assert (rest[1], following[1]) == (rest[2], following[2])


def test_each_rank_continues_its_numbers_from_the_state_of_any():
    def loader(rank: int) -> fastload.DataLoader[Any]:
        return loader_of(rank, {"seed": 0})

    whole = [draws(loader(rank)) for rank in range(2)]
    states = []
    for rank in range(2):
        begun = loader(rank)
        list(itertools.islice(begun, 2))
        states.append(begun.state_dict())
    for rank, state in itertools.product(range(2), states):
        resumed = loader(rank)
        resumed.load_state_dict(state)
        assert draws(resumed) == whole[rank][2:]
