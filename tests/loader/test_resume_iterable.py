"""Iterable datasets resume too: from their own state if they have one, otherwise by being read again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import fastload
from fastload import OptionError
from tests.loader.datasets import Counting, StatefulCounting
from tests.loader.test_resume import saved
from tests.products import sampled


@pytest.mark.parametrize(
    ("kind", "workers", "taken"), sampled([Counting, StatefulCounting], [2, 1, 0, 2], [5, 1, 0, 13])
)
def test_iterable_datasets_resume(kind, workers, taken):
    def numbers(batches: Any) -> list[list[int]]:
        return [batch[:, 0].tolist() for batch in batches]

    def loader() -> Any:
        return fastload.DataLoader(kind(39), batch_size=3, num_workers=workers)

    whole = numbers(loader())
    first = loader()
    iterator = iter(first)
    assert numbers(next(iterator) for _ in range(taken)) == whole[:taken]
    second = loader()
    second.load_state_dict(saved(first.state_dict()))
    iterator = iter(second)
    further = min(3, len(whole) - taken)
    assert numbers(itertools.islice(iterator, further)) == whole[taken:][:further]
    third = loader()
    third.load_state_dict(saved(second.state_dict()))
    fourth = loader()
    fourth.load_state_dict(third.state_dict())
    iterator = iter(fourth)
    fifth = loader()
    fifth.load_state_dict(fourth.state_dict())
    for last in (third, fifth):
        assert numbers(last) == whole[taken + further :]
        assert numbers(last) == whole


@pytest.mark.parametrize("kind", [Counting, StatefulCounting])
def test_a_later_epoch_of_persistent_workers_resumes(kind):
    def loader() -> Any:
        return fastload.DataLoader(kind(14), batch_size=3, num_workers=2, persistent_workers=True)

    begun = loader()
    whole = [batch[:, 0].tolist() for batch in begun]
    iterator = iter(begun)
    taken = [next(iterator)[:, 0].tolist() for _ in range(3)]
    resumed = loader()
    resumed.load_state_dict(saved(begun.state_dict()))
    for before in (taken, []):
        assert before + [batch[:, 0].tolist() for batch in resumed] == whole


def test_a_stateful_iterable_dataset_is_not_read_again():
    class Tracking(StatefulCounting):
        reads = 0

        def __iter__(self) -> Any:
            for item in super().__iter__():
                self.reads += 1
                yield item

    first = fastload.DataLoader(Tracking(30), batch_size=3)
    iterator = iter(first)
    for _ in range(8):
        next(iterator)
    second = fastload.DataLoader(Tracking(30), batch_size=3)
    second.load_state_dict(first.state_dict())
    list(second)
    assert second.dataset.reads == 6


def test_iterable_state_with_another_number_of_workers_is_refused():
    first = fastload.DataLoader(StatefulCounting(30), batch_size=3, num_workers=2)
    iterator = iter(first)
    next(iterator)
    with pytest.raises(OptionError, match="num_workers=2"):
        fastload.DataLoader(StatefulCounting(30), batch_size=3).load_state_dict(first.state_dict())


@pytest.mark.parametrize("workers", [0, 1])
def test_iterator_made_by_a_subclass_restarts_or_resumes(workers):
    loader = fastload.DataLoader(StatefulCounting(12), batch_size=2, num_workers=workers)
    iterator = loader._get_iterator()
    first = [next(iterator)[:, 0].tolist() for _ in range(3)]
    state = loader.state_dict()
    rest = [batch[:, 0].tolist() for batch in iterator]
    assert [batch[:, 0].tolist() for batch in loader._get_iterator()] == first + rest
    loader.load_state_dict(state)
    assert [batch[:, 0].tolist() for batch in loader._get_iterator()] == rest
