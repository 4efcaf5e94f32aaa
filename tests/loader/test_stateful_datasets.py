"""A dataset's own state is in the loader's: a resumed run gives what the other one would have given."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import fastload
from fastload import OptionError
from tests.loader.test_resume import saved
from tests.products import sampled

LENGTH = 7


class Continuing(IterableDataset):
    """Its own iterator, which goes on where it was."""

    def __init__(self) -> None:
        self.state = {"position": 0}

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if self.state["position"] >= LENGTH:
            raise StopIteration
        self.state["position"] += 1
        worker = get_worker_info()
        return self.state["position"] - 1 + (100 * worker.id if worker else 0)

    def state_dict(self) -> dict[str, int]:
        return self.state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.state = state


class Restarting(Continuing):
    """Its own iterator, which begins anew: it has no state before that."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Any:
        self.state = {"position": 0}
        return self


class Pending(Continuing):
    """Its own iterator, for which a loaded state counts when it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.start = 0

    def __iter__(self) -> Any:
        self.state, self.start = {"position": self.start}, 0
        return self

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["position"]


class Generating(Pending):
    """An iteration is a generator; a loaded state counts for the next one."""

    def __iter__(self) -> Any:
        super().__iter__()
        while self.state["position"] < LENGTH:
            yield next(self)


class CountingEpochs(IterableDataset):
    """Each iteration is another one; only the number of iterations is its state, so each is whole."""

    iterations = 0

    class Iterator:
        def __init__(self, iteration: int) -> None:
            self.iteration, self.position = iteration, 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if self.position >= LENGTH:
                raise StopIteration
            self.position += 1
            return 10 * self.iteration + self.position

        def state_dict(self) -> Any:
            return vars(self).copy()

        def load_state_dict(self, state: Any) -> None:
            vars(self).update(state)

    def __iter__(self) -> Any:
        self.iterations += 1
        return self.Iterator(self.iterations)

    def state_dict(self) -> Any:
        return [self.iterations]

    def load_state_dict(self, state: Any) -> None:
        (self.iterations,) = state


class Drawing(Dataset):
    """A map-style dataset with a generator: every sample that it makes is another one."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> float:
        return index + float(torch.rand((), generator=self.generator))

    def state_dict(self) -> Any:
        return {"generators": [self.generator.get_state()]}

    def load_state_dict(self, state: Any) -> None:
        self.generator.set_state(state["generators"][0])


KINDS = [Continuing, Restarting, Pending, CountingEpochs, Drawing]
WORKERS = [(0, False), (1, False), (1, True), (2, False), (2, True)]


def numbers(batches: Any) -> list[Any]:
    return [batch.tolist() if isinstance(batch, torch.Tensor) else batch for batch in batches]


@pytest.mark.parametrize(("kind", "workers", "batch_size"), sampled(KINDS, WORKERS, [None, 2, 3]))
def test_datasets_with_a_state_resume_anywhere(kind, workers, batch_size):
    def loader(dataset: Any = None) -> Any:
        count, is_persistent = workers
        options = {"num_workers": count, "persistent_workers": is_persistent}
        return fastload.DataLoader(dataset or kind(), batch_size=batch_size, seed=1, **options)

    whole = loader()
    epochs = [numbers(whole) for _ in range(4)]
    last = len(epochs[0])
    for epoch, taken in ((0, 0), (0, 1), (0, last), (1, 0), (1, 1), (2, 0)):
        begun = loader()
        for _ in range(epoch):
            list(begun)
        iterator = iter(begun if taken or not epoch else ())
        assert numbers(itertools.islice(iterator, taken)) == epochs[epoch][:taken]
        state = saved(begun.state_dict())
        list(iterator)
        # Without workers, the same object, whose state is another one by now.
        resumed = loader(None if workers[0] else begun.dataset)
        resumed.load_state_dict(state)
        again = loader()
        again.load_state_dict(saved(resumed.state_dict()))
        for each in (resumed, again):
            assert numbers(each) == epochs[epoch][taken:]
            assert numbers(each) == epochs[epoch + 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_after_a_state_of_the_last_batch_is_whole(workers):
    def loader() -> Any:
        return fastload.DataLoader(Generating(), 4, num_workers=workers, persistent_workers=workers > 0)

    begun = loader()
    iterator = iter(begun)
    batches = [next(iterator).tolist() for _ in range(2)]
    resumed = loader()
    resumed.load_state_dict(saved(begun.state_dict()))
    assert [numbers(resumed) for _ in range(3)] == [[], batches, batches]


def test_a_worker_that_has_sent_nothing_in_a_later_epoch_begins_it_again():
    def loader() -> Any:
        return fastload.DataLoader(Generating(), 4, num_workers=2, persistent_workers=True)

    begun = loader()
    first, *rest = numbers(begun)
    iterator = iter(begun)
    assert next(iterator).tolist() == first
    resumed = loader()
    resumed.load_state_dict(saved(begun.state_dict()))
    assert numbers(resumed) == rest


def test_a_state_that_workers_do_not_change_is_loaded_with_any_number_of_workers():
    class Constant(Drawing):
        def __getitem__(self, index: int) -> float:
            return index + self.generator.initial_seed()

    begun = fastload.DataLoader(Constant(), 2, num_workers=2)
    next(iter(begun))
    dataset = Constant()
    dataset.generator.manual_seed(5)
    resumed = fastload.DataLoader(dataset, 2, num_workers=0)
    resumed.load_state_dict(begun.state_dict())
    assert numbers(resumed) == [[3, 4], [5, 6], [7]]


def test_the_state_of_a_dataset_is_refused_by_one_without_a_state():
    state = fastload.DataLoader(Drawing(), num_workers=0).state_dict()
    with pytest.raises(OptionError, match="and range has no state_dict"):
        fastload.DataLoader(range(LENGTH), num_workers=0).load_state_dict(state)
