"""A loader with nothing set finds the best way to load, and its batches still equal torch's."""

from __future__ import annotations

import copy
import io
import pickle
import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, RandomSampler, Sampler, TensorDataset, get_worker_info

from tests.loader.tuning.datasets import Counting, Drawing, HoldingAFile, Remembering, Slow
from tests.loader.tuning.deciding import HastyLoader, planned
from tests.loader.tuning.seen import numbers


def tried(loader):
    return {trial.num_workers for trial in loader.plan.measured.trials}


def test_slow_samples_get_workers_and_the_order_is_torchs():
    torch.manual_seed(1)
    order = numbers(torch.utils.data.DataLoader(range(300), batch_size=10, shuffle=True))
    torch.manual_seed(1)
    loader = HastyLoader(Slow(300), batch_size=10, shuffle=True)
    assert numbers(loader) == order
    assert tried(loader) - {0}


@pytest.mark.parametrize(
    "explicit",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 0},
        {"seed": 3, "shuffle": True},
    ],
    ids=str,
)
def test_loader_that_has_measured_can_be_pickled(explicit):
    loader = HastyLoader(Slow(300, seconds=0.001), batch_size=8, **explicit)
    list(loader)
    iterator = iter(loader)
    next(iterator)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    copies = pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)
    loader.load_state_dict(state)
    left = numbers(loader)
    assert len(left) == 292
    for copied in copies:
        assert ("num_workers" in explicit) == (copied.plan.num_workers.reason == "set by you")
        copied.load_state_dict(state)
        assert numbers(copied) == left


def test_each_sample_is_read_once_in_each_epoch_of_trials(tmp_path):
    dataset = Slow(300, log=tmp_path / "reads")
    loader = HastyLoader(dataset, batch_size=8, shuffle=True)
    for epoch in (1, 2):
        assert sorted(numbers(loader)) == list(range(300))
        reads = Counter(map(int, (tmp_path / "reads").read_text().split()))
        assert reads == Counter(dict.fromkeys(range(300), epoch))
    assert tried(loader) - {0}


@pytest.mark.parametrize("length", [1, 7, 5000])
def test_cheap_samples_are_loaded_without_workers_as_in_torch(length):
    states = []
    for kind in (torch.utils.data.DataLoader, HastyLoader):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        loader = kind(TensorDataset(torch.arange(length)), batch_size=3, shuffle=True)
        orders = [[int(n) for (batch,) in loader for n in batch] for _ in range(3)]
        states.append((orders, torch.rand(2).tolist(), random.random(), np.random.rand()))
    assert states[0] == states[1]
    assert loader.plan.num_workers.value == 0


@pytest.mark.parametrize("kind", [Counting, Remembering, Drawing])
def test_dataset_that_changes_when_read_is_loaded_by_the_training_process(kind):
    loader = HastyLoader(kind(length=300), batch_size=5, shuffle=True)
    assert sorted(numbers(loader)) == list(range(300))
    assert loader.plan.num_workers.value == 0
    assert "loading changes the dataset" in loader.plan.num_workers.reason
    assert getattr(loader.dataset, "reads", 300) == 300


def test_dataset_with_an_open_file_is_loaded_by_the_training_process(tmp_path):
    loader = HastyLoader(HoldingAFile(tmp_path / "numbers", length=300), batch_size=5, shuffle=True)
    assert sorted(numbers(loader)) == list(range(300))
    assert "holds open" in loader.plan.num_workers.reason
    loader.dataset.file.close()


class Counted:
    """A collate_fn whose batches depend on how many it has made."""

    def __init__(self):
        self.batches = 0

    def __call__(self, samples):
        self.batches += 1
        return torch.stack(samples) + 1000 * (self.batches // 10)


def test_batches_of_a_stateful_collate_fn_are_torchs():
    expected = numbers(torch.utils.data.DataLoader(torch.arange(300), 5, collate_fn=Counted()))
    loader = HastyLoader(Slow(300), batch_size=5, collate_fn=Counted())
    assert numbers(loader) == expected
    assert "loading changes the collate_fn" in loader.plan.num_workers.reason


def negate(worker):
    get_worker_info().dataset.sign = -1


def test_worker_init_fn_is_not_called_unless_workers_are_requested():
    loader = planned(HastyLoader(Slow(300), batch_size=5), workers=1)
    loader.worker_init_fn = negate  # as Lightning does
    assert numbers(loader) == list(range(300))
    loader.num_workers = 1
    assert numbers(loader) == [-number for number in range(300)]


class Hardest(Sampler[int]):
    """Draws the samples of the highest loss so far."""

    def __init__(self):
        self.losses = np.arange(300.0)

    def __iter__(self):
        return (int(self.losses.argmax()) for _ in range(300))

    def __len__(self):
        return 300

    def train(self, batch):
        self.losses[batch.numpy()] = batch.numpy() % 7


def test_order_that_depends_on_the_training_is_torchs():
    orders = []
    for kind in (torch.utils.data.DataLoader, HastyLoader):
        sampler = Hardest()
        loader = kind(Slow(300, seconds=0.001), batch_size=3, sampler=sampler)
        orders.append([])
        for batch in loader:
            orders[-1].append(batch.tolist())
            sampler.train(batch)
    assert orders[0] == orders[1]
    assert "the training changes the sampler" in loader.plan.num_workers.reason


def test_order_drawn_from_a_generator_that_the_training_uses_is_torchs():
    orders = []
    for kind in (torch.utils.data.DataLoader, HastyLoader):
        generator = torch.Generator().manual_seed(1)
        sampler = RandomSampler(range(300), replacement=True, generator=generator)
        loader = kind(Slow(300, seconds=0.001), batch_size=3, sampler=sampler)
        orders.append([(batch.tolist(), torch.rand(1, generator=generator).item()) for batch in loader])
    assert orders[0] == orders[1]
    assert "the training changes the sampler" in loader.plan.num_workers.reason


def test_epoch_left_in_a_trial_is_resumed_at_the_next_batch():
    for stop in (3, 40, 75):
        torch.manual_seed(2)
        whole = numbers(torch.utils.data.DataLoader(range(1000), batch_size=10, shuffle=True))
        torch.manual_seed(2)
        loader = HastyLoader(Slow(1000, seconds=0.001), batch_size=10, shuffle=True)
        iterator = iter(loader)
        first = numbers(next(iterator) for _ in range(stop))
        state = loader.state_dict()
        del iterator
        other = HastyLoader(Slow(1000, seconds=0.001), batch_size=10, shuffle=True)
        other.load_state_dict(state)
        assert first + numbers(other) == whole


def test_two_epochs_at_once_give_all_batches_of_both():
    loader = HastyLoader(Slow(300), batch_size=6)
    pairs = list(zip(loader, loader, strict=True))
    assert numbers(first for first, _ in pairs) == list(range(300))
    assert numbers(second for _, second in pairs) == list(range(300))


def test_held_batches_do_not_change_when_workers_change():
    loader = HastyLoader(Slow(400), batch_size=10)
    held = [list(loader)]
    while len(tried(loader)) < 2 and len(held) < 5:  # a busy machine may need more than one epoch
        held.append(list(loader))
    assert [numbers(epoch) for epoch in held] == [list(range(400))] * len(held)
    assert len(tried(loader)) >= 2


class Endless(Sampler[list[int]]):
    """Batches without a length."""

    def __iter__(self):
        for first in range(0, 1200, 6):
            yield list(range(first, first + 6))


def test_batch_sampler_without_a_length_is_tuned():
    loader = HastyLoader(Slow(1200, seconds=0.001), batch_sampler=Endless())
    for _ in range(2):
        assert numbers(loader) == list(range(1200))
    assert tried(loader) - {0}


def test_iterable_dataset_is_loaded_once_without_workers():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(20))

    loader = HastyLoader(Stream(), batch_size=2)
    assert numbers(loader) == list(range(20))
    assert "iterable" in loader.plan.num_workers.reason


def test_epoch_too_short_for_a_trial_counts_as_one():
    loader = HastyLoader(Slow(40, seconds=0.02), batch_size=2)
    for _ in range(20):
        assert numbers(loader) == list(range(40))
        if loader.plan.is_settled:
            break
    assert loader.plan.is_settled


def test_times_of_the_last_epoch_add_up():
    loader = HastyLoader(Slow(400), batch_size=8, num_workers=2)
    assert loader.last_epoch is None
    list(loader)
    times = loader.last_epoch
    assert (times.batches, times.batch_size, times.samples) == (50, 8, 400)
    assert sum(each.samples for each in times.loading) == 400
    assert sum(each.batches for each in times.loading) == 50
    assert all(0 < each.cpu_s <= each.busy_s * 1.05 for each in times.loading)
    assert 0.5 < times.waiting_share <= 1
