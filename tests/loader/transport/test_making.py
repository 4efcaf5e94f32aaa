"""Datasets that fill batches, and users' methods of the same names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Subset, default_collate

import fastload
from tests.loader.datasets import Rows, assert_same
from tests.tools import NEEDS_CUDA


class Filling(Rows):
    """Fills batches, and marks them with negative labels."""

    def fetch_into(self, indices: Any, out: Any) -> Any:
        rows = out.empty((len(indices), self.size), torch.float32)
        for row, index in zip(rows, indices, strict=True):
            torch.arange(index, index + self.size, out=row)
        return [rows, -torch.tensor(indices)]


class Overriding(Filling):
    def __getitem__(self, index: int) -> Any:
        rows, label = super().__getitem__(index)
        return rows + 1, label


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_fills_batches_is_asked_to(workers):
    def loaded(dataset, **options):
        loader = fastload.DataLoader(dataset, batch_size=4, num_workers=workers, **options)
        return [[rows.clone(), labels] for rows, labels in loader]

    plain = loaded(Rows())
    assert_same(loaded(Filling()), [[rows, -labels] for rows, labels in plain])
    assert_same(loaded(Subset(Filling(), range(0, 40, 2)))[0][1], -torch.arange(0, 8, 2))
    # An override in a subclass is used.
    assert_same(loaded(Overriding()), [[rows + 1, labels] for rows, labels in plain])


class Finishing(Rows):
    """Batches of three parts, of which the first is halved on its device if it is of float64."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index / 2]), index, -index

    def fetch_into(self, indices: Any, out: Any) -> Any:
        assert out.finishes_on_device
        if 0 in indices:
            return NotImplemented
        first = torch.tensor(indices, dtype=torch.float64)[:, None]
        return [first, torch.tensor(indices), -torch.tensor(indices)]

    def finish(self, images: Any) -> Any:
        return (images / 2).float() if images.dtype == torch.float64 else images


@pytest.mark.gpu
@NEEDS_CUDA
@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_step_is_made_on_the_device_whatever_follows_in_the_batch(workers):
    loader = fastload.DataLoader(Finishing(8), batch_size=4, num_workers=workers, device="cuda")
    for (images, *others), expected in zip(loader, torch.utils.data.DataLoader(Finishing(8), 4), strict=True):
        assert_same([images.cpu(), *(part.cpu() for part in others)], expected)


class Downloading(Rows):
    """Has methods of contracts' names for purposes of its own."""

    def fetch_into(self, path: str) -> None:
        raise AssertionError(path)

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class FillingForItself(Filling):
    """Fills batches, and has methods of other contracts' names for purposes of its own."""

    def prefetch(self) -> None:
        raise AssertionError

    def read_ahead(self) -> None:
        raise AssertionError

    finish = prefetch


class CollatingInto:
    def __call__(self, samples: Any) -> Any:
        return default_collate(samples)

    def collate_into(self, path: str) -> None:
        raise AssertionError(path)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_users_own_methods_of_contracts_names_are_not_called(workers):
    def loaded(dataset, **options):
        return list(fastload.DataLoader(dataset, batch_size=4, num_workers=workers, **options))

    plain = loaded(Rows())
    assert_same(loaded(Downloading()), plain)
    assert_same(loaded(Subset(Downloading(), range(40))), plain)
    assert_same(loaded(Rows(), collate_fn=CollatingInto()), plain)
    assert_same(loaded(FillingForItself()), [[rows, -labels] for rows, labels in plain])


@pytest.mark.gpu
@NEEDS_CUDA
def test_a_users_own_finish_is_not_called():
    loader = fastload.DataLoader(FillingForItself(), batch_size=4, num_workers=0, device="cuda")
    assert next(iter(loader))[0].device.type == "cuda"


class Keeping(Filling):
    """Fills batches by a method of a class, with one more parameter that has a default."""

    @classmethod
    def fetch_into(cls, indices: Any, out: Any, sign: int = -1) -> Any:
        return Filling().fetch_into(indices, out)


def test_a_class_method_fills_batches():
    loader = fastload.DataLoader(Keeping(), batch_size=4, num_workers=0)
    assert next(iter(loader))[1].tolist() == [0, -1, -2, -3]
