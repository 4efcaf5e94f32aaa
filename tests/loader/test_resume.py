"""A loader with a loaded state continues exactly with the next batch, even if its settings differ."""

from __future__ import annotations

import io
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, Sampler, TensorDataset, WeightedRandomSampler

import fastload
from tests.loader.datasets import Rows
from tests.products import sampled

DATA = TensorDataset(torch.arange(50))


class GlobalShuffle(Sampler):
    """Shuffles with global generators, as many samplers do."""

    def __iter__(self) -> Any:
        order = list(range(50))
        random.shuffle(order)
        return iter(np.random.permutation(order).tolist())

    def __len__(self) -> int:
        return 50


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(8)


SAMPLINGS = {
    "sequential": dict,
    "shuffle": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": generator()},
    "seed": lambda: {"shuffle": True, "seed": 4},
    "replacement": lambda: {"sampler": RandomSampler(DATA, replacement=True, generator=generator())},
    "weighted": lambda: {"sampler": WeightedRandomSampler(torch.ones(50), 50)},
    "global": lambda: {"sampler": GlobalShuffle()},
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(GlobalShuffle(), 3, False), "batch_size": 1},
}


def make(sampling: str, workers: int = 0, **options: Any) -> Any:
    options = {"batch_size": 3, "num_workers": workers, **options, **SAMPLINGS[sampling]()}
    return fastload.DataLoader(DATA, **options)


def labels(batches: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in batches]


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def saved(state: Any) -> Any:
    """Return a state after it was saved to a file and read with weights_only."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def take(iterator: Any, count: int) -> list[list[int]]:
    return labels(next(iterator) for _ in range(count))


@pytest.mark.parametrize(("sampling", "workers"), sampled([*SAMPLINGS], [(2, 1), (0, 0), (0, 2), (2, 0)]))
def test_the_next_batches_and_epochs_are_as_without_a_resume(sampling, workers):
    seed_all(1)
    uninterrupted = make(sampling, workers[0])
    epochs = [labels(uninterrupted) for _ in range(4)]

    seed_all(1)
    first = make(sampling, workers[0])
    assert labels(first) == epochs[0]
    iterator = iter(first)
    assert take(iterator, 5) == epochs[1][:5]
    state = saved(first.state_dict())
    del iterator

    seed_all(99)
    second = make(sampling, workers[1])
    second.load_state_dict(state)
    before = torch.rand(1), random.random(), np.random.rand()
    seed_all(99)
    assert labels(second) == epochs[1][5:]
    assert (torch.rand(1), random.random(), np.random.rand()) == before
    assert labels(second) == epochs[2]
    assert labels(second) == epochs[3]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_restored_global_state_gives_the_epochs_that_other_draws_led_to(sampling):
    """Train with draws from the global generators, which are restored along with the loader."""

    def train(loader: Any, epochs: int) -> Any:
        for _ in range(epochs):
            for batch in loader:
                torch.rand(1), random.random(), np.random.rand()
                yield batch[0].tolist()

    seed_all(1)
    whole = list(train(make(sampling), 3))
    seed_all(1)
    first = make(sampling)
    training = train(first, 3)
    assert [next(training) for _ in range(22)] == whole[:22]
    states = first.state_dict(), torch.get_rng_state(), random.getstate(), np.random.get_state()
    seed_all(5)
    second = make(sampling)
    second.load_state_dict(states[0])
    torch.set_rng_state(states[1])
    random.setstate(states[2])
    np.random.set_state(states[3])
    assert list(train(second, 2)) == whole[22:]


@pytest.mark.parametrize(
    ("sampling", "persistent"),
    sampled(["shuffle", "generator", "seed", "weighted"], [(True, True), (True, False), (False, True)]),
)
def test_persistent_workers_change_nothing(sampling, persistent):
    seed_all(1)
    whole = make(sampling, 1, persistent_workers=persistent[0])
    epochs = [labels(whole) for _ in range(3)]
    seed_all(1)
    first = make(sampling, 1, persistent_workers=persistent[0])
    labels(first)
    iterator = iter(first)
    take(iterator, 4)
    second = make(sampling, 1, persistent_workers=persistent[1])
    second.load_state_dict(first.state_dict())
    assert labels(second) == epochs[1][4:]
    if persistent[0] == persistent[1]:
        assert labels(second) == epochs[2]


def test_a_persistent_loader_goes_back_to_its_own_state():
    loader = make("seed", 1, persistent_workers=True)
    iterator = iter(loader)
    take(iterator, 2)
    state = loader.state_dict()
    rest = labels(iterator)
    loader.load_state_dict(state)
    assert labels(loader) == rest


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 17), min_size=1, max_size=5), st.sampled_from(sorted(SAMPLINGS)))
def test_any_chain_of_interruptions_gives_every_batch_once(cuts, sampling):
    seed_all(2)
    whole = labels(make(sampling))
    seed_all(2)
    loader, seen = make(sampling), []
    for cut in cuts:
        iterator = iter(loader)
        seen += labels(itertools.islice(iterator, min(cut, 17 - len(seen))))
        state = loader.state_dict()
        # Taking a state changes nothing, and a loaded state that is not used yet is returned again.
        loader = make(sampling)
        loader.load_state_dict(state)
        assert str(loader.state_dict()) == str(state)
        seed_all(50)
    assert seen + labels(loader) == whole


def test_a_state_after_the_last_batch_ends_the_epoch_and_one_after_the_end_begins_the_next():
    loader = make("seed")
    iterator = iter(loader)
    take(iterator, 17)
    last = loader.state_dict()
    assert next(iterator, None) is None
    end = loader.state_dict()
    following = labels(loader)
    for state, batches in ((last, []), (end, following)):
        other = make("seed")
        other.load_state_dict(state)
        assert labels(other) == batches


def test_a_state_taken_before_the_first_epoch_begins_it():
    seed_all(3)
    loader = make("shuffle")
    state = loader.state_dict()
    epochs = [labels(loader), labels(loader)]
    seed_all(77)
    other = make("shuffle")
    other.load_state_dict(state)
    assert [labels(other), labels(other)] == epochs


def test_a_seeds_order_depends_on_seed_and_epoch_alone():
    orders = [[labels(make("seed", workers)) for _ in range(1)] for workers in (0, 1, 2)]
    assert orders[0] == orders[1] == orders[2]
    loader = make("seed")
    first, second = labels(loader), labels(loader)
    assert first != second
    torch.rand(10)
    assert labels(fastload.DataLoader(DATA, batch_size=3, shuffle=True, seed=5)) != first


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_between_does_not_shift_the_position(workers):
    class Broken(Rows):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise ValueError("three")
            return index

    loader = fastload.DataLoader(Broken(12), batch_size=2, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="three"):
        next(iterator)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in iterator]
    loader.load_state_dict(state)
    assert [batch.tolist() for batch in loader] == rest


class Slow(Rows):
    def __getitem__(self, index: int) -> Any:
        import time

        time.sleep(0.03 * (index % 4 == 0))
        return index


def test_batches_handed_out_of_order_are_not_repeated():
    loader = fastload.DataLoader(Slow(24), batch_size=2, num_workers=2, in_order=False, prefetch_factor=3)
    seen = []
    for _ in range(4):
        iterator = iter(loader)
        seen += [next(iterator).tolist() for _ in range(2)]
        state = loader.state_dict()
        loader.load_state_dict(state)
    seen += [batch.tolist() for batch in loader]
    assert sorted(itertools.chain.from_iterable(seen)) == list(range(24))


@pytest.mark.parametrize("workers", [0, 1])
def test_two_loaders_that_draw_from_the_same_generator_in_turns_resume(workers):
    def pairs(one: Any, other: Any) -> list[Any]:
        return [(left[0].tolist(), right[0].tolist()) for left, right in zip(one, other, strict=True)]

    seed_all(1)
    whole = pairs(make("shuffle", workers), make("shuffle", workers))
    seed_all(1)
    loaders = make("shuffle", workers), make("shuffle", workers)
    iterators = [iter(loader) for loader in loaders]
    assert pairs(*(itertools.islice(iterator, 4) for iterator in iterators)) == whole[:4]
    resumed = make("shuffle", workers), make("shuffle", workers)
    for loader, left in zip(resumed, loaders, strict=True):
        loader.load_state_dict(left.state_dict())
    assert pairs(*resumed) == whole[4:]


def test_another_bit_generator_of_numpy_is_restored():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        loader = make("global")
        iterator = iter(loader)
        take(iterator, 3)
        state = saved(loader.state_dict())
        rest = labels(iterator)
        loader.load_state_dict(state)
        assert labels(loader) == rest
    finally:
        np.random.set_bit_generator(before)


@pytest.mark.parametrize(("version", "age"), [(3, "an older"), (5, "a newer")])
def test_a_state_of_another_version_says_what_to_do(version, age):
    loader = make("seed")
    state = {**loader.state_dict(), "version": version}
    with pytest.raises(fastload.OptionError, match=f"got version {version}, of {age} fastload: load it with"):
        loader.load_state_dict(state)
    with pytest.raises(
        fastload.OptionError, match=r"state_dict\(\) returned, got dict, which lacks 'settings'"
    ):
        loader.load_state_dict({})


def test_a_seed_may_be_any_integer():
    loader = fastload.DataLoader(DATA, batch_size=3, shuffle=True, seed=np.int64(4))
    assert labels(loader) == labels(make("seed"))


def test_a_state_is_small_and_the_samples_are_not_read_again():
    class Reads(Rows):
        reads = 0

        def __getitem__(self, index: int) -> int:
            self.reads += 1
            return index

    loader = fastload.DataLoader(Reads(100_000), batch_size=10, shuffle=True, generator=generator())
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    file = io.BytesIO()
    state = loader.state_dict()
    torch.save(state, file)
    assert len(file.getvalue()) < 10_000 + 2 * 5_056 + 5_000
    other = fastload.DataLoader(Reads(100_000), batch_size=10, shuffle=True, generator=generator())
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == next(iterator).tolist()
    assert other.dataset.reads == 10
