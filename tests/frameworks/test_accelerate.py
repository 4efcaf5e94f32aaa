"""Accelerate's prepare: of a fastload loader, and building on fastload's class in the place of torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import TensorDataset

import fastload
from tests.frameworks.batches import seed_all
from tests.loader.datasets import Random, Rows, assert_same
from tests.tools import imported

pytestmark = pytest.mark.frameworks("accelerate")

LOADERS = (torch.utils.data.DataLoader, fastload.DataLoader)


@pytest.fixture
def accelerate() -> Any:
    package = imported("accelerate")
    # Accelerators of one process share their state.
    package.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield package
    package.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def prepare(accelerate) -> Any:
    return accelerate.Accelerator(cpu=True).prepare


def shuffled(kind: type, workers: int = 0, dataset: Any = None) -> Any:
    seed_all(2)
    generator = torch.Generator().manual_seed(4)
    dataset = Random(20, 50) if dataset is None else dataset
    return kind(dataset, batch_size=3, shuffle=True, num_workers=workers, generator=generator)


@pytest.mark.parametrize("workers", [0, 2])
def test_prepared_loader_gives_the_batches_of_the_loader(prepare, workers):
    loader = shuffled(fastload.DataLoader, workers)
    expected = [list(loader) for _ in range(2)]
    prepared = prepare(shuffled(fastload.DataLoader, workers))
    assert_same([list(prepared) for _ in range(2)], expected)


def test_prepared_loader_has_the_order_of_the_seed(prepare):
    loader = fastload.DataLoader(Rows(20, 5), batch_size=3, shuffle=True, seed=4)
    expected = list(loader)
    prepared = prepare(fastload.DataLoader(Rows(20, 5), batch_size=3, shuffle=True, seed=4))
    assert_same(list(prepared), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_accelerate_builds_on_fastloads_class_in_the_place_of_torchs(
    accelerate, prepare, monkeypatch, workers
):
    results = []
    for kind in LOADERS:
        monkeypatch.setattr(accelerate.data_loader, "DataLoader", kind)
        prepared = prepare(shuffled(kind, workers))
        assert type(prepared.base_dataloader) is kind
        results.append([list(prepared) for _ in range(3)])
    assert_same(*results)


# It takes each state before it reads ahead.
@pytest.mark.parametrize("workers", [0, 2])
def test_state_of_a_prepared_loader_goes_on_with_the_next_batch(accelerate, prepare, monkeypatch, workers):
    monkeypatch.setattr(accelerate.data_loader, "DataLoader", fastload.DataLoader)
    numbers = TensorDataset(torch.arange(20))
    prepared = prepare(shuffled(fastload.DataLoader, workers, numbers))
    expected = [list(prepared) for _ in range(2)]

    prepared = prepare(shuffled(fastload.DataLoader, workers, numbers))
    batches = iter(prepared)
    assert_same([next(batches) for _ in range(3)], expected[0][:3])
    state = prepared.state_dict()

    resumed = prepare(fastload.DataLoader(numbers, batch_size=3, shuffle=True, generator=torch.Generator()))
    resumed.load_state_dict(state)
    assert_same([list(resumed) for _ in range(2)], [expected[0][3:], expected[1]])


@pytest.mark.parametrize("is_prepared", [False, True])
def test_skip_first_batches_skips_as_with_torchs(accelerate, prepare, is_prepared):
    results = []
    for kind in LOADERS:
        loader = shuffled(kind)
        rest = accelerate.skip_first_batches(prepare(loader) if is_prepared else loader, 4)
        results.append(list(rest))
    assert len(results[0]) == 3
    assert_same(*results)


def test_prepare_refuses_a_loader_that_is_sharded_already(prepare):
    prepare(fastload.DataLoader(range(8), 2, sharded=True))  # by one process
    sampler = fastload.ShardedSampler(range(8), 2, 0)
    loader = fastload.DataLoader(range(8), 2, sampler=sampler)
    with pytest.raises(fastload.OptionError, match="would divide this rank's batches among ranks again"):
        prepare(loader)
