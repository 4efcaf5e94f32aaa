"""An order that is drawn when an iterator is asked for, or only with its first batch, is resumed too."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import fastload
from fastload.loader.resume.drawing import drawn_from, global_state
from tests.loader.test_resume import DATA, SAMPLINGS, GlobalShuffle, labels, saved, seed_all, take


class EagerBatches(GlobalShuffle):
    """Batches whose order is drawn when an iterator is asked for."""

    def __iter__(self) -> Any:
        order = random.sample(range(50), 50)
        return iter(torch.tensor(order)[torch.randperm(50)].view(-1, 2).tolist())

    def __len__(self) -> int:
        return 25


@pytest.mark.parametrize("workers", [0, 2, None])
def test_batch_sampler_that_draws_at_once_goes_on_where_both_load_alike(workers):
    def loader() -> Any:
        said = {} if workers is None else {"num_workers": workers}
        return fastload.DataLoader(DATA, batch_sampler=EagerBatches(), **said)

    seed_all(1)
    whole = [labels(loader) for loader in [loader()] for _ in range(4)]
    for taken in (0, 5):
        seed_all(1)
        first = loader()
        labels(first)
        iterator = iter(first) if taken else None
        if iterator is not None:
            take(iterator, taken)
        state = saved(first.state_dict())
        seed_all(99)
        second = loader()
        second.load_state_dict(state)
        assert [labels(second) for _ in range(3)] == [whole[1][taken:], *whole[2:]]


@pytest.mark.parametrize("workers", [0, 2, None])
@pytest.mark.parametrize("sampling", ["shuffle", "generator", "seed", "weighted", "global"])
def test_a_state_taken_before_the_first_batch_gives_the_order_that_was_still_to_be_drawn(sampling, workers):
    def loader() -> Any:
        said = {} if workers is None else {"num_workers": workers}
        return fastload.DataLoader(DATA, **{"batch_size": 3, **SAMPLINGS[sampling](), **said})

    seed_all(1)
    first = loader()
    labels(first)
    iterator = iter(first)
    torch.rand(3), random.random()
    state, users = saved(first.state_dict()), global_state()
    whole = [labels(batches) for batches in (iterator, first, first)]
    second = loader()
    with drawn_from(users, {}):
        second.load_state_dict(state)
        assert [labels(second) for _ in range(3)] == whole
