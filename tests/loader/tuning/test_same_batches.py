"""From the same seeds, a tuned loader gives the same batches, whatever it decides."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, RandomSampler, default_collate

import fastload
from tests.loader.datasets import assert_same
from tests.loader.tuning.deciding import SteadyLoader, planned, trying

COUNT = 120


class Noisy(Dataset[Any]):
    """Samples drawn from every global generator, with an odd number of normal numbers."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return index, random.random(), random.gauss(0, 1), np.random.normal(), np.random.rand(), torch.rand(3)


def adding(samples: list[Any]) -> Any:
    """A collate_fn that draws as well."""
    return [*default_collate(samples), random.random(), np.random.rand(), torch.rand(2)]


def make(dataset: Any = None, **options: Any) -> fastload.DataLoader:
    options = {"batch_size": 3, "shuffle": True, "collate_fn": adding, **options}
    return SteadyLoader(Noisy() if dataset is None else dataset, **options)


def seed_all(seed: int = 5) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    # Leaves the second number of a normal pair cached.
    np.random.normal(), random.gauss(0, 1), torch.randn(1)


def next_numbers() -> list[Any]:
    return [
        np.random.normal(),
        random.gauss(0, 1),
        torch.randn(1),
        *(f() for f in (random.random, np.random.rand)),
    ]


def trained(loader: Any, epochs: int = 2) -> list[Any]:
    """Return some epochs' batches, the numbers drawn by the training between them, and the next ones."""
    seen = []
    for _ in range(epochs):
        for batch in loader:
            seen.append([batch, torch.rand(2), np.random.normal(), random.random()])
    return [*seen, *next_numbers()]


@pytest.fixture(scope="module")
def single_process():
    seed_all()
    return trained(planned(make(), 0))


DECISIONS = {
    "tried": [(1, 2)],
    "changing": [(2, 3), (0, 0), (1, 4), (3, 1)],
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_decisions_change_neither_batches_nor_the_draws_of_the_training(decision, single_process):
    seed_all()
    loader = trying(make(), *DECISIONS[decision])
    assert_same(trained(loader), single_process)
    tried = {trial.num_workers for trial in loader.plan.measured.trials}
    assert tried == {0, *dict(DECISIONS[decision])}


@pytest.mark.parametrize("workers", [1, 3])
def test_plan_from_the_cache_changes_nothing(workers, single_process):
    seed_all()
    loader = planned(make(), workers)
    assert_same(trained(loader), single_process)
    assert loader.last_epoch.num_workers == workers


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.soak)])
def test_start_method_changes_no_batch(method, single_process):
    seed_all()
    assert_same(
        trained(planned(make(multiprocessing_context=method), 1), 1)[:-5], single_process[: COUNT // 3]
    )


def test_persistent_workers_draw_and_shuffle_as_others():
    runs = []
    for workers in (0, 2):
        seed_all()
        runs.append(trained(planned(make(persistent_workers=True), workers), 3))
    assert_same(*runs)


def test_persistent_workers_keep_order_even_with_in_order_false():
    class FirstIsSlow(Noisy):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.3 if index == 0 else 0.0)
            return index

    options = {"shuffle": False, "collate_fn": None, "persistent_workers": True, "in_order": False}
    loader = planned(make(FirstIsSlow(), **options), 2)
    assert torch.cat(list(loader)).tolist() == list(range(COUNT))


def test_delays_decide_only_which_process_loads():
    runs = []
    for seconds in (0.0, 0.02):
        seed_all()
        loader = make(Noisy(seconds))
        runs.append(trained(loader))
    assert any(trial.num_workers for trial in loader.plan.measured.trials)
    assert_same(*runs)


@pytest.mark.parametrize("options", [{"seed": 3}, {"generator": 4}, {}], ids=str)
@pytest.mark.parametrize("workers", [(0, 2), (2, 0)])
def test_resumed_epoch_draws_what_it_would_have_drawn(workers, options):
    def loader(workers: int) -> Any:
        if "generator" in options:
            return planned(make(generator=torch.Generator().manual_seed(options["generator"])), workers)
        return planned(make(**options), workers)

    seed_all()
    whole = [list(loader) for loader in [loader(0)] for _ in range(3)]
    seed_all()
    first = loader(workers[0])
    list(first)
    iterator = iter(first)
    taken = list(itertools.islice(iterator, 7))
    state = first.state_dict()
    del iterator
    seed_all(99)
    second = loader(workers[1])
    second.load_state_dict(state)
    assert_same([*taken, *second], whole[1])
    assert_same(list(second), whole[2])


def test_alternating_loaders_shuffle_the_same_whatever_they_decide():
    runs = []
    for decided in ((0, 0), (2, 0), (0, 1), (1, 2)):
        seed_all()
        loaders = [planned(make(), workers) for workers in decided]
        runs.append([list(zip(*loaders, strict=True)) for _ in range(2)])
    for run in runs[1:]:
        assert_same(run, runs[0])


def test_dataset_that_iterates_a_loader_of_its_own_draws_the_same():
    runs = []
    for workers in (0, 1):
        seed_all()
        runs.append(trained(planned(make(Nested(), batch_size=1), workers), 1))
    assert_same(*runs)


class Nested(Noisy):
    """Draws, iterates a loader that draws, and draws again."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        before = super().__getitem__(index)
        inner = next(iter(planned(make(), 0)))
        return before, inner, super().__getitem__(index)


def test_sample_that_fails_leaves_the_generators_alone():
    seed_all()
    expected = next_numbers()
    seed_all()
    for decide in (lambda loader: planned(loader, 0), lambda loader: planned(loader, 1)):
        iterator = iter(decide(make(Failing(), shuffle=False, generator=torch.Generator())))
        with pytest.raises(KeyError, match="nothing there"):
            next(iterator)
    assert_same(next_numbers(), expected)


class Failing(Noisy):
    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        raise KeyError("nothing there")


def test_custom_numpy_bit_generator_is_left_alone():
    before = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(3))
    try:
        state = str(np.random.get_state(legacy=False))
        torch.manual_seed(5), torch.randn(1)
        batches = list(planned(make(), 0))
        assert str(np.random.get_state(legacy=False)) == state
    finally:
        np.random.mtrand.set_bit_generator(before)
    assert len(batches) == COUNT // 3


def test_another_thread_leaves_the_generators_alone():
    loader = planned(make(generator=torch.Generator(), batch_size=1), 0)
    seed_all()
    draws = [(random.random(), random.gauss(0, 1), np.random.normal()) for _ in range(1)]
    seed_all()
    batches: list[Any] = []
    thread = threading.Thread(target=lambda: batches.append(next(iter(loader))))
    thread.start()
    thread.join()
    assert [float(part) for part in batches[0][1:4]] == pytest.approx(draws[0])


@pytest.mark.parametrize("plan", [0, 2])
def test_explicit_or_switched_off_loader_draws_as_torch_does(plan, monkeypatch):
    monkeypatch.setenv("FASTLOAD_PLAN", "off")
    runs = []
    for kind, options in (
        (torch.utils.data.DataLoader, {"num_workers": plan}),
        (fastload.DataLoader, {"num_workers": plan} if plan else {}),
    ):
        seed_all()
        runs.append(trained(kind(Noisy(), batch_size=3, shuffle=True, **options)))
    assert_same(*runs)


def test_iterable_dataset_draws_as_in_torch_without_workers():
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return (Noisy()[index] for index in range(12))

    runs = []
    for kind in (torch.utils.data.DataLoader, fastload.DataLoader):
        seed_all()
        runs.append(trained(kind(Stream(), batch_size=3)))
    assert_same(*runs)


GENERATORS = {
    "shuffle": lambda generator: {"shuffle": True, "generator": generator},
    "sampler": lambda generator: {
        "shuffle": None,
        "sampler": RandomSampler(range(COUNT), replacement=True, num_samples=COUNT, generator=generator),
    },
}


@pytest.mark.parametrize("stop", [12, 40])
@pytest.mark.parametrize("options", GENERATORS)
@pytest.mark.parametrize("lives_on", [False, True])
def test_epoch_left_early_leaves_a_generator_as_without_workers(options, stop, lives_on):
    # RandomSampler draws from it at its end too, and with replacement for every 32 samples.
    def orders(loader: Any) -> list[Any]:
        return [[batch[0].tolist() for batch in itertools.islice(loader, count)] for count in (40, stop, 41)]

    expected = orders(planned(make(**GENERATORS[options](torch.Generator().manual_seed(2))), 0))
    more = {"persistent_workers": True} if lives_on else {}
    loader = make(**GENERATORS[options](torch.Generator().manual_seed(2)), **more)
    assert orders(planned(loader, 1, 30)) == expected


def test_numbers_that_other_code_drew_from_the_generator_stay_drawn():
    generator = torch.Generator().manual_seed(2)
    loader = planned(make(generator=generator), 2, 30)
    next(iter(loader))
    torch.rand(1, generator=generator)
    expected = torch.Generator()
    expected.set_state(generator.get_state())
    torch.empty((), dtype=torch.int64).random_(generator=expected)  # the draw at the beginning of an epoch
    begun = iter(loader)
    assert torch.equal(generator.get_state(), expected.get_state())
    del begun
