"""A loader with a ShardedSampler saves positions of the epoch that all ranks share."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

import fastload
from fastload.errors import OptionError
from fastload.loader import sharded_loaders
from tests.folders import class_folders

NUMBERS, HUNDRED = torch.arange(61), torch.arange(100)


def loader_of(rank: int, ranks: int, batch_size: int = 4, **options: Any) -> fastload.DataLoader[Any]:
    sampler = fastload.ShardedSampler(NUMBERS, ranks, rank, seed=5, ends="exact")
    return fastload.DataLoader(NUMBERS, batch_size, sampler=sampler, seed=1, **options)


def samples(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def saved(loader: Any) -> Any:
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_no_epoch_begins_with_batches_out_of_proportion():
    sampler = fastload.ShardedSampler(NUMBERS, 2, 1, weights=(1, 2))
    with pytest.raises(OptionError, match="a multiple of 2 on rank 1"):
        next(iter(fastload.DataLoader(NUMBERS, 3, sampler=sampler, num_workers=0)))


@pytest.mark.parametrize(("before", "after", "workers"), [(2, 1, 0), (2, 4, 2), (4, 3, 1)])
def test_an_epoch_continues_on_another_number_of_ranks(before, after, workers):
    done, states = [], []
    for rank in range(before):
        loader = loader_of(rank, before, num_workers=workers)
        samples(loader)
        done += samples(itertools.islice(loader, 3))
        states.append(saved(loader))
    rest, following = [], []
    for rank in range(after):
        loader = loader_of(rank, after, batch_size=2, num_workers=workers)
        loader.load_state_dict(states[rank % before])
        rest += samples(loader)
        following += samples(loader)
    assert sorted(done + rest) == list(range(61))
    assert sorted(following) == list(range(61))


@pytest.mark.parametrize("name", ["batch_sampler", "sampler"])
def test_batches_that_are_given_continue_on_another_number_of_ranks(name):
    def loader_of(rank: int, ranks: int, batch_size: int) -> fastload.DataLoader[Any]:
        sampler = fastload.ShardedSampler(HUNDRED, ranks, rank, ends="exact")
        options: Any = {name: BatchSampler(sampler, batch_size, False)}
        if name == "sampler":
            options["batch_size"] = None
        return fastload.DataLoader(HUNDRED, num_workers=0, **options)

    done, rest = [], []
    for rank in range(2):
        loader = loader_of(rank, 2, 12)
        done += samples(itertools.islice(loader, 2))
        state = saved(loader)
    for rank in range(4):  # each has 5 batches, as before
        loader = loader_of(rank, 4, 5)
        loader.load_state_dict(state)
        rest += samples(loader)
    assert sorted(done + rest) == list(range(100))


@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_a_state_of_another_samplers_order_is_of_as_many_ranks(name):
    def loader_of(ranks: int) -> fastload.DataLoader[Any]:
        options: Any = {"batch_size": 30, "sampler": DistributedSampler(HUNDRED, ranks, 0)}
        if name == "batch_sampler":
            sampler = fastload.ShardedSampler(HUNDRED, ranks, 0)
            options = {"batch_sampler": AnyBatches(sampler, 30, False)}
        return fastload.DataLoader(HUNDRED, num_workers=0, **options)

    state = saved(loader_of(2))
    loader_of(2).load_state_dict(state)
    with pytest.raises(OptionError, match=r"num_replicas=2, .* a ShardedSampler resume on any number"):
        loader_of(3).load_state_dict(state)


class AnyBatches(BatchSampler):
    """Batches that may be of any samples of the sampler."""


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_the_same_ranks_continue_with_the_same_batches(workers):
    options = {} if workers is None else {"num_workers": workers}
    loader = loader_of(1, 2, **options)
    whole = [[batch.tolist() for batch in loader] for _ in range(3)]
    loader = loader_of(1, 2, **options)
    samples(loader)
    first = [batch.tolist() for batch in itertools.islice(loader, 2)]
    state = saved(loader)
    resumed = loader_of(1, 2, **options)
    resumed.load_state_dict(state)
    assert first + [batch.tolist() for batch in resumed] == whole[1]
    assert [batch.tolist() for batch in resumed] == whole[2]


SAMPLERS = [fastload.ShardedSampler, DistributedSampler]


def epochs_of(kind: Any, state: Any = None, epochs: Any = range(3)) -> tuple[Any, list[list[int]]]:
    """Return a loader and the samples of epochs that are set by the user, after a state was loaded."""
    sampler = kind(NUMBERS, 2, 0)
    loader = fastload.DataLoader(NUMBERS, 4, sampler=sampler, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    found = []
    for epoch in epochs:
        sampler.set_epoch(epoch)
        found.append(samples(loader))
    return loader, found


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_loaded_epoch_continues_if_the_user_sets_it(kind):
    _, whole = epochs_of(kind)
    loader, _ = epochs_of(kind, epochs=[0])
    loader.sampler.set_epoch(1)
    samples(itertools.islice(loader, 3))
    assert epochs_of(kind, saved(loader), [1, 2])[1] == [whole[1][12:], whole[2]]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_another_epoch_that_the_user_sets_begins_at_its_start_with_a_warning(kind):
    _, whole = epochs_of(kind)
    loader, _ = epochs_of(kind, epochs=[])
    loader.sampler.set_epoch(1)
    samples(itertools.islice(loader, 3))
    with pytest.warns(UserWarning, match=r"set_epoch\(2\) .* unfinished epoch 1"):
        loader, found = epochs_of(kind, saved(loader), [2])
    assert found == [whole[2]]
    assert loader.state_dict()["epoch"] == 2


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("batches", [8, 9])
def test_the_epoch_after_one_whose_batches_were_all_given_begins_without_a_warning(kind, batches):
    """Lightning saves after the last batch, without asking for one more."""
    _, whole = epochs_of(kind)
    loader, _ = epochs_of(kind, epochs=[])
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator, None)
    assert epochs_of(kind, saved(loader), [1, 2])[1] == whole[1:]


def test_steps_are_counted_from_0_after_a_resume_on_any_number_of_ranks():
    loader = loader_of(0, 2)
    samples(itertools.islice(loader, 6))
    for ranks, last in ((2, 1), (1, 3)):
        resumed = loader_of(0, ranks)
        resumed.load_state_dict(saved(loader))
        # 61 samples: the last step has 5, of which rank 0 of two gets 3; a single rank gets 1.
        scales = [resumed.sampler.loss_scale(4, step) for step, _ in enumerate(resumed)]
        assert scales == pytest.approx([1] * last + [3 / 5 * 2 if ranks == 2 else 1])
        assert resumed.sampler.loss_scale(4, last + 1) == 0
        assert len(samples(resumed)) == 61 // ranks + (ranks == 2)
        assert resumed.sampler.loss_scale(4, 7) == pytest.approx(3 / 5 * 2 if ranks == 2 else 1)


def test_a_resume_is_resumed_on_other_ranks():
    states = [loader_of(0, 3)]
    done = samples(itertools.islice(states[0], 2)) + samples(itertools.islice(loader_of(1, 3), 2))
    done += samples(itertools.islice(loader_of(2, 3), 2))
    second = []
    for rank in range(2):
        loader = loader_of(rank, 2)
        loader.load_state_dict(saved(states[0]))
        done += samples(itertools.islice(loader, 3))
        second.append(saved(loader))
    last = loader_of(0, 1)
    last.load_state_dict(second[1])
    assert sorted(done + samples(last)) == list(range(61))


def test_epochs_between_states_begin_anew():
    loader = loader_of(0, 2)
    samples(loader)
    resumed = loader_of(0, 1, batch_size=8)
    resumed.load_state_dict(saved(loader))
    assert sorted(samples(resumed)) == list(range(61))


def test_sharded_makes_a_sampler_of_the_loaders_arguments():
    loader = fastload.DataLoader(NUMBERS, 4, shuffle=True, seed=9, drop_last=True, sharded=True)
    sampler = loader.sampler
    assert isinstance(sampler, fastload.ShardedSampler)
    assert (sampler.shuffle, sampler.seed, sampler.ends) == (True, 9, "drop")
    assert len(samples(loader)) == 60
    assert samples(fastload.DataLoader(NUMBERS, 4, sharded=True)) == list(range(61))
    sequential = fastload.DataLoader(NUMBERS, 4, sampler=SequentialSampler(NUMBERS), sharded=True)
    assert isinstance(sequential.sampler, fastload.ShardedSampler)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    "options",
    [
        {"dataset": NUMBERS, "sampler": RandomSampler(NUMBERS)},
        {"dataset": NUMBERS, "batch_sampler": [[1]]},
        {"dataset": NUMBERS, "batch_size": None},
    ],
)
def test_sharded_refuses_what_it_cannot_shard(options):
    with pytest.raises(OptionError, match="sharded=True"):
        fastload.DataLoader(sharded=True, **options)


def test_sharded_names_the_way_for_iterable_datasets():
    with pytest.raises(
        OptionError, match=r"map-style dataset: .* its __iter__ has to yield the part of its rank"
    ):
        fastload.DataLoader(Stream(), sharded=True)


def test_the_end_of_a_sharded_epoch_can_be_chosen():
    assert fastload.DataLoader(NUMBERS, 4, sharded=True, ends="exact").sampler.ends == "exact"
    with pytest.raises(OptionError, match="ends='exact' is for sharded=True"):
        fastload.DataLoader(NUMBERS, 4, ends="exact")
    with pytest.raises(OptionError, match="ends must be one of"):
        fastload.DataLoader(NUMBERS, 4, sharded=True, ends="all")


@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_that_all_load_everything_are_told_so_once(monkeypatch, shuffle):
    monkeypatch.setattr(sharded_loaders, "torch_ranks", lambda: (2, 0))
    loader = fastload.DataLoader(NUMBERS, 4, shuffle=shuffle, num_workers=0)
    with pytest.warns(RuntimeWarning, match=r"each of 2 ranks loads all 61 samples, .* give sharded=True"):
        samples(loader)
    samples(loader)
    quiet = {"sharded": False}, {"sampler": DistributedSampler(NUMBERS, 2, 0)}, {"batch_sampler": [[1]]}
    for options in quiet:
        samples(fastload.DataLoader(NUMBERS, num_workers=0, **options))
    monkeypatch.setattr(sharded_loaders, "torch_ranks", lambda: (2, 1))
    samples(fastload.DataLoader(NUMBERS, 4, shuffle=shuffle, num_workers=0))


def test_windows_are_of_a_packed_datasets_shards(tmp_path):
    class_folders(tmp_path / "photos")
    fastload.pack(tmp_path / "photos", tmp_path / "photos.fl", shard_size=4096)
    dataset = fastload.PackedDataset(tmp_path / "photos.fl")
    assert len(dataset.shard_sizes) > 2
    shard_of = [shard for shard, size in enumerate(dataset.shard_sizes) for _ in range(size)]
    order = list(fastload.ShardedSampler(dataset, window=1))
    assert sorted(order) == list(range(len(dataset)))
    visits = [shard for shard, _ in itertools.groupby(shard_of[sample] for sample in order)]
    assert sorted(visits) == list(range(len(dataset.shard_sizes)))
