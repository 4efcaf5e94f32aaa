"""Batches of a tuned loader are the same whether or not its dataset draws from the global generators."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from tests.loader.datasets import assert_same
from tests.loader.tuning.deciding import planned
from tests.loader.tuning.test_same_batches import make, seed_all, trained

CROP = T.RandomResizedCrop(8)


class RandomLabels(fastload.FolderDataset):
    def targets_of(self, positions: Any, annotations: Any = None) -> list[Any]:
        return [random.random() for _ in positions]


class RandomShade(T.RandomHorizontalFlip):
    def apply(self, image: Any, parameters: Any) -> Any:
        return np.full_like(image, random.randrange(256))


def shaded(image: Any) -> Any:
    return torch.as_tensor(image) * torch.rand(1)


def drawn(label: Any) -> Any:
    return label + np.random.rand()


def packed(path: Any, **options: Any) -> Any:
    dest = path.parent / "sixty.fl"
    if not dest.exists():
        fastload.pack(path, dest, encode="keep", workers=1)
    return fastload.PackedDataset(dest, **options)


FOLDERS: dict[str, tuple[bool, Any]] = {
    "fastload's transforms": (
        True,
        lambda path: fastload.FolderDataset(path, T.Compose([CROP, T.ToTensor()])),
    ),
    "a resize": (True, lambda path: fastload.FolderDataset(path, T.Resize((8, 8)))),
    "packed": (True, lambda path: packed(path, transform=CROP)),
    "packed, a function": (False, lambda path: packed(path, transform=T.Compose([CROP, shaded]))),
    "nested": (True, lambda path: fastload.FolderDataset(path, T.Compose([CROP, T.RandomApply([CROP])]))),
    "a function": (False, lambda path: fastload.FolderDataset(path, T.Compose([CROP, shaded]))),
    "a subclass": (False, lambda path: fastload.FolderDataset(path, T.Compose([CROP, RandomShade()]))),
    "a nested subclass": (
        False,
        lambda path: fastload.FolderDataset(path, T.Compose([CROP, T.RandomApply([RandomShade()])])),
    ),
    "a target transform": (False, lambda path: fastload.FolderDataset(path, CROP, target_transform=drawn)),
    "a dataset's subclass": (False, lambda path: RandomLabels(path, CROP)),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_image_datasets_give_the_same_batches_whether_or_not_they_use_global_generators(name, sixty_photos):
    draws_from_epoch_seed_only, make_dataset = FOLDERS[name]
    dataset = make_dataset(sixty_photos)
    assert dataset.draws_from_epoch_seed_only == draws_from_epoch_seed_only
    runs = []
    for workers in (0, 2):
        seed_all()
        runs.append(trained(planned(make(dataset, batch_size=16, collate_fn=None), workers)))
    assert_same(*runs)


def test_collate_fn_without_batches_draws_the_same():
    samples = torch.utils.data.TensorDataset(torch.arange(12.0))
    runs = []
    for workers in (0, 2):
        seed_all()
        loader = make(samples, batch_size=None, collate_fn=lambda sample: sample[0] + random.random())
        runs.append(trained(planned(loader, workers)))
    assert_same(*runs)


class Outer(torch.utils.data.Dataset):
    """Draws a number before and after it iterates another loader, whose samples draw numbers too."""

    def __init__(self, inner: torch.utils.data.Dataset | None) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> list[float]:
        first = np.random.rand()
        for _ in () if self.inner is None else fastload.DataLoader(self.inner, 2):
            pass
        return [first, np.random.rand()]


def test_a_dataset_that_iterates_another_loader_draws_its_own_numbers():
    def drawn(dataset):
        torch.manual_seed(3)
        return torch.cat([torch.stack(batch) for batch in fastload.DataLoader(dataset, 2)])

    assert torch.equal(drawn(Outer(None)), drawn(Outer(Outer(None))))
