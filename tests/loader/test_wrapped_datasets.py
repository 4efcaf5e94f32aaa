"""fastload's transforms in the user's datasets draw the same numbers in every process and after a resume."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate

import fastload
import fastload.transforms as T
from tests.folders import class_folders
from tests.loader.datasets import assert_same

COUNT = 12
CROP = T.RandomResizedCrop(8)
PIXELS = [np.random.default_rng(index).integers(0, 255, (16, 16, 3), np.uint8) for index in range(COUNT)]
WORKERS: list[dict[str, Any]] = [{"num_workers": 0}, {"num_workers": 2}, {}]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = class_folders(tmp_path_factory.mktemp("photos"), COUNT)
    return fastload.FolderDataset(folder, T.Compose([T.RandomCrop(8), T.RandomHorizontalFlip()]))


class Wrapper(Dataset):
    """Takes images from a dataset that lies anywhere in its attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        found = next(iter(vars(self).values()))
        while not isinstance(found, Dataset):
            found = next(iter(found.values())) if isinstance(found, dict) else found[0]
        sample = found[index]
        return sample[0] if isinstance(sample, tuple) else sample


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.inner[index][0]


class Batches(Wrapper):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


WRAPPERS = {
    "dataset": lambda photos: Wrapper(dataset=photos),
    "images": lambda photos: Wrapper(images=photos),
    "private": lambda photos: Wrapper(_Wrapper__base=photos),
    "list": lambda photos: Wrapper(parts=[photos]),
    "dict of tuples": lambda photos: Wrapper(parts={"train": (photos,)}),
    "nested": lambda photos: Wrapper(outer=Wrapper(inner=Subset(photos, range(COUNT)))),
    "slots": Slotted,
    "batches": lambda photos: Batches(images=photos),
    "subset": lambda photos: Subset(Wrapper(images=photos), range(COUNT)),
    "concatenated": lambda photos: ConcatDataset([Wrapper(images=photos)]),
}


class Calling(Dataset):
    """Calls transforms itself, twice for each image."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.stack([CROP(PIXELS[index]), CROP(PIXELS[index])]))


class CallingForBatches(Calling):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Stored(Dataset):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(PIXELS[index]).permute(2, 0, 1)


def cropped(samples: list[torch.Tensor]) -> torch.Tensor:
    return T.RandomResizedCrop(8)(default_collate(samples))


CALLING: dict[str, dict[str, Any]] = {
    "samples": {"dataset": Calling()},
    "batches": {"dataset": CallingForBatches()},
    "collate_fn": {"dataset": Stored(), "collate_fn": cropped},
}


def assert_same_everywhere(**options: Any) -> None:
    """Compare an epoch for all numbers of workers, and two epochs that are resumed with other numbers."""

    def loader(workers: dict[str, Any], seed: int) -> Any:
        torch.manual_seed(seed)
        return fastload.DataLoader(batch_size=4, shuffle=True, seed=3, **options, **workers)

    first = loader(WORKERS[0], 0)
    epochs = [list(first), list(first)]
    for number, workers in enumerate(WORKERS):
        begun = loader(workers, number)
        iterator = iter(begun)
        assert_same(next(iterator), epochs[0][0])
        resumed = loader(WORKERS[number - 1], 99)
        resumed.load_state_dict(begun.state_dict())
        assert_same(list(iterator), epochs[0][1:])
        assert_same(list(resumed), epochs[0][1:])
        assert_same(list(resumed), epochs[1])


@pytest.mark.parametrize("kind", WRAPPERS)
def test_images_are_those_of_the_dataset_wherever_it_lies_in_a_wrapper(photos, kind):
    wrapper = WRAPPERS[kind](photos)
    assert_same_everywhere(dataset=wrapper)
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "num_workers": 1}
    own = [images for images, _ in fastload.DataLoader(photos, **options)]
    wrapped = list(fastload.DataLoader(wrapper, **options))
    assert all(map(torch.equal, wrapped, own))


@pytest.mark.parametrize("kind", CALLING)
def test_transforms_that_the_users_code_calls_draw_the_same_numbers_in_every_process(kind):
    assert_same_everywhere(**CALLING[kind])


def test_transforms_called_for_a_sample_depend_on_its_index_not_on_its_batch():
    def by_index(**options: Any) -> dict[int, bytes]:
        class Indexed(Calling):
            def __getitem__(self, index: int) -> Any:
                return torch.tensor(index), super().__getitem__(index)

        batches = fastload.DataLoader(Indexed(), seed=3, **options)
        pairs = (zip(indices.view(-1), views.view(-1, 2, 8, 8, 3), strict=True) for indices, views in batches)
        return {int(index): views.numpy().tobytes() for index, views in itertools.chain(*pairs)}

    whole = by_index(batch_size=4, num_workers=0)
    assert len(set(whole.values())) == COUNT
    assert by_index(batch_size=3, shuffle=True, num_workers=2) == whole
    assert by_index(batch_size=None, num_workers=1) == whole


def test_views_of_one_image_differ_and_datasets_in_pairs_agree(photos):
    class Views(Dataset):
        def __init__(self) -> None:
            self.left, self.right = photos, fastload.FolderDataset(photos.root, photos.transform)

        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> list[torch.Tensor]:
            return [self.left[index][0], self.left[index][0], self.right[index][0], self.right[index][0]]

    assert_same_everywhere(dataset=Views())
    first, second, paired, again = next(iter(fastload.DataLoader(Views(), COUNT, seed=1, num_workers=0)))
    assert not torch.equal(first, second)
    torch.testing.assert_close(paired, first)
    torch.testing.assert_close(again, second)


def test_a_foreign_step_that_calls_transforms_depends_on_the_index(photos):
    def flipped(pixels: Any) -> Any:
        return T.RandomCrop(4)(pixels)

    dataset = fastload.FolderDataset(photos.root, transform=flipped)
    assert_same_everywhere(dataset=dataset)
    large = next(iter(fastload.DataLoader(dataset, COUNT, seed=1, num_workers=0)))
    small = list(fastload.DataLoader(dataset, 1, seed=1, num_workers=0))
    assert torch.equal(large[0], torch.cat([images for images, _ in small]))


def test_nothing_of_the_users_dataset_is_called_but_what_torch_calls():
    class Private(Stored):
        draws_from_epoch_seed_only = property(lambda self: pytest.fail("a property was read"))

        def prefetch(self, *arguments: Any) -> None:
            pytest.fail("a method of the user's was called")

        read_ahead = finish = prefetch

    assert len(list(fastload.DataLoader(Private(), 4))) == 3


@pytest.mark.parametrize("loader", [fastload.DataLoader, torch.utils.data.DataLoader])
def test_samples_that_a_subclass_changes_are_in_the_batches(photos, loader):
    class Indexed(fastload.FolderDataset):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)[0], -int(index)

    batches = loader(Indexed(photos.root, photos.transform), 4, num_workers=0)
    assert torch.cat([labels for _, labels in batches]).tolist() == [-index for index in range(COUNT)]


def test_indices_of_any_type_number_the_samples():
    class Named(Calling):
        def __getitem__(self, name: str) -> torch.Tensor:
            return super().__getitem__(int(name[1:]))

    names = [f"n{index}" for index in range(COUNT)]
    epochs = [list(fastload.DataLoader(Named(), 4, sampler=names, seed=1, **each)) for each in WORKERS[:2]]
    assert_same(*epochs)
    assert len({view.numpy().tobytes() for batch in epochs[0] for view in batch.flatten(0, 1)}) == 2 * COUNT


@pytest.mark.parametrize("kind", ["one", "joined"])
def test_a_compiled_dataset_draws_the_same_numbers_for_our_transforms(photos, kind):
    torchvision = pytest.importorskip("torchvision")

    def folder(size: int) -> Any:
        steps = [
            torchvision.transforms.Resize((16, 16)),
            T.RandomCrop(size),
            torchvision.transforms.ToTensor(),
        ]
        return torchvision.datasets.ImageFolder(photos.root, torchvision.transforms.Compose(steps))

    dataset = folder(8) if kind == "one" else ConcatDataset([folder(8), folder(9)])
    options = {"batch_size": 4, "seed": 2, "num_workers": 0}
    ours = fastload.DataLoader(dataset, collate_fn=list, compile=True, **options)
    theirs = fastload.DataLoader(dataset, collate_fn=list, compile=False, **options)
    for batch, expected in zip(ours, theirs, strict=True):
        for (image, label), (other, its_label) in zip(batch, expected, strict=True):
            assert label == its_label
            torch.testing.assert_close(image, other, atol=1.01 / 255, rtol=0)
