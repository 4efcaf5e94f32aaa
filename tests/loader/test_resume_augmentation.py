"""A resumed training gets the images that it would have had without the interruption, in later epochs too."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from tests.folders import class_folders
from tests.loader.datasets import Random, assert_same
from tests.products import sampled

SEEDINGS: dict[str, Any] = {
    "global": dict,
    "generator": lambda: {"generator": torch.Generator().manual_seed(8)},
    "seed": lambda: {"seed": 4},
}
WORKERS = [(0, False), (1, False), (1, True), (2, True), (None, False)]
OTHERS = [(2, True), (2, True), (0, False), (None, False), (1, True)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = class_folders(tmp_path_factory.mktemp("photos"), 24)
    return fastload.FolderDataset(folder, T.Compose([T.RandomCrop(8), T.RandomHorizontalFlip()]))


def make(dataset: Any, workers: int | None, persistent: bool, seeding: str) -> Any:
    options = {"shuffle": True, "batch_size": 4, **SEEDINGS[seeding]()}
    if workers is not None:
        options |= {"num_workers": workers, "persistent_workers": persistent}
    return fastload.DataLoader(dataset, **options)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@pytest.mark.parametrize(("workers", "seeding"), sampled(WORKERS, [*SEEDINGS]))
def test_pixels_of_this_and_later_epochs_are_as_without_a_resume(dataset, workers, seeding):
    workers, persistent = workers
    seed_all(1)
    whole = make(dataset, workers, persistent, seeding)
    epochs = [list(whole) for _ in range(5)]
    for first_epoch, taken in ((0, 2), (1, 0), (1, 3), (2, 6)):
        seed_all(1)
        loader = make(dataset, workers, persistent, seeding)
        for _ in range(first_epoch):
            list(loader)
        if taken:
            iterator = iter(loader)
            assert len(list(itertools.islice(iterator, taken))) == taken
        state = loader.state_dict()
        seed_all(99)
        loader = make(dataset, workers, persistent, seeding)
        loader.load_state_dict(state)
        assert_same(list(loader), epochs[first_epoch][taken:])
        # The same holds for a state of the resumed loader.
        again = make(dataset, workers, persistent, seeding)
        again.load_state_dict(loader.state_dict())
        for later in (loader, again):
            seed_all(50)
            assert_same([list(later) for _ in range(2)], epochs[first_epoch + 1 : first_epoch + 3])


@pytest.mark.parametrize(("saver", "other", "seeding"), sampled(WORKERS, OTHERS, [*SEEDINGS]))
def test_later_epochs_are_the_same_with_other_workers(dataset, saver, other, seeding):
    seed_all(1)
    whole = make(dataset, *saver, seeding)
    epochs = [list(whole) for _ in range(4)]
    for first_epoch, taken in ((0, 2), (1, 0)):
        seed_all(1)
        loader = make(dataset, *saver, seeding)
        for _ in range(first_epoch):
            list(loader)
        iterator = iter(loader if taken else ())
        assert len(list(itertools.islice(iterator, taken))) == taken
        state = loader.state_dict()
        seed_all(99)
        resumed = make(dataset, *other, seeding)
        resumed.load_state_dict(state)
        assert_same(list(resumed), epochs[first_epoch][taken:])
        again = make(dataset, *saver, seeding)
        again.load_state_dict(resumed.state_dict())
        for later in (resumed, again):
            seed_all(50)
            assert_same([list(later) for _ in range(2)], epochs[first_epoch + 1 : first_epoch + 3])


def test_resumed_workers_draw_differently_for_each_state():
    loader = fastload.DataLoader(Random(24, 4), batch_size=4, num_workers=0)
    first = []
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        resumed = fastload.DataLoader(Random(24, 4), batch_size=4, num_workers=1)
        resumed.load_state_dict(loader.state_dict())
        first.append(float(next(iter(resumed))[1][0]))
        list(iterator)
    assert len(set(first)) == 3


@pytest.mark.parametrize("length", [47, 49])
def test_state_of_a_dataset_of_another_length_is_refused(length):
    loader = fastload.DataLoader(range(48), batch_size=10, drop_last=False, shuffle=True, num_workers=0)
    next(iter(loader))
    other = fastload.DataLoader(range(length), batch_size=10, shuffle=True, num_workers=0)
    assert len(other) == len(loader)
    with pytest.raises(fastload.OptionError, match=f"48 samples.*has {length}:"):
        other.load_state_dict(loader.state_dict())
