"""Resuming with samplers that draw in `__iter__`, with the first batch, or that have their own state."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import fastload
from fastload.loader.resume.drawing import drawn_from, global_state
from tests.loader.test_resume import DATA, SAMPLINGS, GlobalShuffle, generator, labels, saved, seed_all, take


class EagerBatches(GlobalShuffle):
    """Batches whose order is drawn in `__iter__`."""

    def __iter__(self) -> Any:
        order = random.sample(range(50), 50)
        return iter(torch.tensor(order)[torch.randperm(50)].view(-1, 2).tolist())

    def __len__(self) -> int:
        return 25


@pytest.mark.parametrize("workers", [0, 2, None])
def test_batch_sampler_that_draws_at_once_resumes_with_similar_workers(workers):
    def loader() -> Any:
        options = {} if workers is None else {"num_workers": workers}
        return fastload.DataLoader(DATA, batch_sampler=EagerBatches(), **options)

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
        options = {} if workers is None else {"num_workers": workers}
        return fastload.DataLoader(DATA, **{"batch_size": 3, **SAMPLINGS[sampling](), **options})

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


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"generator": generator()}, {}], ids=["seed", "generator", "neither"]
)
def test_later_epochs_of_a_sampler_with_global_generators_resume_too(options):
    def shuffled() -> Any:
        return fastload.DataLoader(DATA, batch_size=3, sampler=GlobalShuffle(), **options)

    seed_all(1)
    loader = shuffled()
    epochs = [labels(loader) for _ in range(3)]
    seed_all(1)
    loader = shuffled()
    iterator = iter(loader)
    take(iterator, 4)
    state = loader.state_dict()
    random.seed(50), np.random.seed(50)
    loader = shuffled()
    loader.load_state_dict(state)
    assert [labels(loader) for _ in range(3)] == [epochs[0][4:], *epochs[1:]]


class LiveState(GlobalShuffle):
    """A sampler whose state_dict is a dict that it keeps changing."""

    def __init__(self) -> None:
        self.live = {"epoch": 0}

    def __iter__(self) -> Any:
        self.live["epoch"] += 1
        return iter(np.random.default_rng(self.live["epoch"]).permutation(50).tolist())

    def state_dict(self) -> Any:
        return self.live

    def load_state_dict(self, state: Any) -> None:
        self.live = state


def test_a_sampler_with_state_dict_resumes_from_its_state():
    loaders = [fastload.DataLoader(DATA, batch_size=3, sampler=LiveState()) for _ in range(2)]
    labels(loaders[0])
    iterator = iter(loaders[0])
    take(iterator, 5)
    state = loaders[0].state_dict()
    rest = labels(iterator)
    loaders[1].load_state_dict(state)
    assert labels(loaders[1]) == rest
    assert labels(loaders[1]) == labels(loaders[0])
