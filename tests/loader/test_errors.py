"""Exceptions are raised as in torch, and neither they nor early ends leave anything behind."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.utils.data

import fastload
from tests.loader.datasets import Rows

LOADERS = (torch.utils.data.DataLoader, fastload.DataLoader)


class Failing(Rows):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise KeyError("sample five")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_of_the_dataset_is_raised_as_torch_raises_it(workers):
    texts = []
    for kind in LOADERS:
        iterator = iter(kind(Failing(12), batch_size=2, num_workers=workers))
        assert next(iterator)[1].tolist() == [0, 1]
        assert next(iterator)[1].tolist() == [2, 3]
        with pytest.raises(KeyError) as caught:
            next(iterator)
        texts.append(str(caught.value).splitlines()[0])
        # torch's iterator is in a cycle with it: once that is collected, it waits 5 s for each worker.
        caught.value.__traceback__ = None
        assert next(iterator)[1].tolist() == [6, 7]
    assert texts[0] == texts[1]
    del iterator, caught  # whose traceback refers to this frame


def unpicklable(samples: list[Any]) -> Any:
    return lambda: samples


def unpicklable_between_strings(samples: list[Any]) -> Any:
    return ["first", unpicklable(samples), "last"]


@pytest.mark.parametrize("collate_fn", [unpicklable, unpicklable_between_strings])
def test_a_batch_that_cannot_be_pickled_is_an_error_instead_of_a_hang(collate_fn):
    with pytest.raises(Exception, match=r"pickle|local object"):
        list(fastload.DataLoader(Rows(4), num_workers=1, collate_fn=collate_fn))


@pytest.mark.parametrize("dataset", [Rows(), Failing()], ids=type)
def test_an_abandoned_iterator_ends_at_once_without_the_garbage_collector(dataset):
    gc.disable()
    try:
        iterator = iter(fastload.DataLoader(dataset, batch_size=4, num_workers=2))
        next(iterator)
        with contextlib.suppress(KeyError):
            next(iterator)
        gone, workers = weakref.ref(iterator), iterator._workers
        del iterator
        assert gone() is None
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "options",
    [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}, {}],
    ids=str,
)
def test_a_loader_is_freed_without_the_garbage_collector(options):
    gc.disable()
    try:
        loader = fastload.DataLoader(Rows(), batch_size=4, **options)
        for _ in range(2):
            for batch in loader:
                del batch
        gone = weakref.ref(loader)
        del loader
        assert gone() is None
    finally:
        gc.enable()
