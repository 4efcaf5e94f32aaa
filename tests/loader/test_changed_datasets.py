"""A loader that compiles its dataset notices what the user, or the dataset's own code, changes in it."""

import random
import threading

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

import fastload
from tests.folders import class_folders


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return class_folders(tmp_path_factory.mktemp("photos"), 12)


def folder(photos, *steps):
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    return ImageFolder(str(photos), transforms.Compose([*steps, transforms.ToTensor()]))


def cropped(photos, size):
    from torchvision import transforms

    return folder(photos, transforms.CenterCrop(size))


def shapes(loader):
    return [tuple(images.shape[1:]) for images, _ in loader]


def thumbnails(targets):
    from torchvision import transforms
    from torchvision.datasets import CIFAR10

    dataset = CIFAR10.__new__(CIFAR10)
    dataset.data = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), np.uint8)
    dataset.targets, dataset.target_transform = targets, None
    dataset.transform = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
    return dataset


@pytest.mark.parametrize(
    "targets",
    [
        [0, 1] * 4,
        [0.5, 1] * 4,
        [True, False] * 4,
        np.arange(8, dtype=np.int32),
        np.eye(8, 10, dtype=np.float32),
        torch.eye(8, 10),
        [(index, -index) for index in range(8)],
        [{"a": index} for index in range(8)],
        [np.float32(index) for index in range(8)],
    ],
    ids=str,
)
@pytest.mark.parametrize("collate_fn", [None, list])
def test_targets_of_any_type_are_those_of_torch(targets, collate_fn):
    dataset = thumbnails(targets)
    options = {"batch_size": 4, "collate_fn": collate_fn, "num_workers": 0}
    for ours, theirs in zip(
        fastload.DataLoader(dataset, **options), DataLoader(dataset, **options), strict=True
    ):
        if collate_fn is None:
            ours, theirs = [ours], [theirs]
        for (_, found), (_, expected) in zip(ours, theirs, strict=True):
            assert type(found) is type(expected)
            assert str(found) == str(expected)
            assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


@pytest.mark.parametrize("kind", ["MNIST", "STL10", "SVHN"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, bool, np.float32])
def test_datasets_that_hand_out_integers_do_so(kind, dtype):
    from torchvision import datasets, transforms

    dataset = object.__new__(getattr(datasets, kind))
    labels = np.arange(8) % 3
    shape = (8, 28, 28) if kind == "MNIST" else (8, 3, 28, 28)
    dataset.data = np.zeros(shape, np.uint8)
    dataset.transform, dataset.target_transform = transforms.ToTensor(), None
    if kind == "MNIST":
        dataset.data, dataset.targets = torch.from_numpy(dataset.data), torch.from_numpy(labels.astype(dtype))
    else:
        dataset.labels = labels.astype(dtype)
    theirs, ours = (
        next(iter(loader_class(dataset, 8, num_workers=0)))[1]
        for loader_class in (DataLoader, fastload.DataLoader)
    )
    assert ours.dtype == theirs.dtype == torch.int64
    assert torch.equal(ours, theirs)


def test_targets_that_are_texts_are_torchs(photos):
    dataset = cropped(photos, 20)
    dataset.target_transform = str
    found, expected = (
        next(iter(loader_class(dataset, 4, num_workers=0)))[1]
        for loader_class in (fastload.DataLoader, DataLoader)
    )
    assert (type(found), found) == (type(expected), expected)


class Remembered(dict):
    """A cache that counts how often it is searched."""

    searches = 0

    def items(self):
        self.searches += 1
        return super().items()


def test_a_cache_that_has_grown_is_not_searched(photos):
    class Caching(Dataset):
        def __init__(self):
            self.inner, self.cache = cropped(photos, 20), Remembered()
            self.transform = self.inner.transform

        def __len__(self):
            return 400

        def __getitem__(self, index):
            if index not in self.cache:
                image = self.inner.loader(self.inner.samples[index % 12][0])
                self.cache[index] = self.transform(image)
            return self.cache[index]

    dataset = Caching()
    loader = fastload.DataLoader(dataset, 50, num_workers=0)
    list(loader)
    before = dataset.cache.searches
    list(loader)
    assert dataset.cache.searches == before


def test_samples_may_be_reordered_between_epochs(photos):
    dataset = cropped(photos, 20)
    loader = fastload.DataLoader(dataset, 4, num_workers=0)
    list(loader)
    random.Random(3).shuffle(dataset.samples)
    found, expected = ([labels for _, labels in each] for each in (loader, DataLoader(dataset, 4)))
    assert all(map(torch.equal, found, expected))


def test_the_dataset_of_a_subset_and_the_parts_of_a_concatenation_may_be_replaced(photos):
    subset = Subset(cropped(photos, 20), range(4))
    both = ConcatDataset([cropped(photos, 20), cropped(photos, 20)])
    of_subset, of_both = (fastload.DataLoader(each, 4, num_workers=0) for each in (subset, both))
    assert {*shapes(of_subset), *shapes(of_both)} == {(3, 20, 20)}
    subset.dataset = cropped(photos, 16)
    both.datasets[0] = both.datasets[1] = cropped(photos, 16)
    assert {*shapes(of_subset), *shapes(of_both)} == {(3, 16, 16)}
    nested = Subset(subset, range(4))
    of_nested = fastload.DataLoader(nested, 4, num_workers=0)
    assert shapes(of_nested) == [(3, 16, 16)]
    subset.dataset = cropped(photos, 12)
    assert shapes(of_nested) == [(3, 12, 12)]


def test_the_mean_of_a_normalization_may_be_changed_in_place(photos):
    from torchvision import transforms

    mean = torch.zeros(3)
    loader = fastload.DataLoader(folder(photos, transforms.CenterCrop(20)), 4, num_workers=0)
    loader.dataset.transform.transforms.append(transforms.Normalize(mean, torch.ones(3)))
    before = next(iter(loader))[0]
    mean += 1
    assert torch.allclose(next(iter(loader))[0], before - 1, atol=1e-6)


def test_a_class_whose_methods_were_replaced_is_called(photos, monkeypatch):
    from torchvision import transforms

    monkeypatch.setattr(transforms.CenterCrop, "forward", lambda self, image: image.resize((8, 8)))
    assert {*shapes(fastload.DataLoader(cropped(photos, 20), 4, num_workers=0))} == {(3, 8, 8)}


@pytest.mark.parametrize("kind", ["Resize", "RandomApply", "Sequential"])
def test_a_transform_with_a_hook_is_called(photos, kind):
    from torchvision import transforms

    resize = transforms.Resize((32, 32))
    hooked = {
        "Resize": resize,
        "RandomApply": transforms.RandomApply([resize], p=1.0),
        "Sequential": torch.nn.Sequential(resize),
    }[kind]
    hooked.register_forward_hook(lambda module, inputs, output: output.resize((16, 16)))
    assert {*shapes(fastload.DataLoader(folder(photos, hooked), 4, num_workers=0))} == {(3, 16, 16)}


class Augmented(Dataset):
    """A dataset whose code reorders, and assigns, its transforms."""

    def __init__(self, inner):
        from torchvision import transforms

        self.inner = inner
        self.steps = [transforms.Resize(150), transforms.CenterCrop(140), transforms.RandomHorizontalFlip()]
        self.to_tensor, self.last = transforms.ToTensor(), None

    def __len__(self):
        return len(self.inner.samples)

    def __getitem__(self, index):
        self.steps.append(self.steps.pop(0))
        image = self.inner.loader(self.inner.samples[index][0])
        for step in self.steps:
            self.last = step
            image = step(image)
        return self.to_tensor(image)


def test_transforms_that_the_code_moves_are_the_users_again(photos):
    epochs = []
    for loader_class in (DataLoader, fastload.DataLoader):
        dataset = Augmented(cropped(photos, 20))
        given = {*dataset.steps}
        torch.manual_seed(0)
        epochs.append(list(loader_class(dataset, None, num_workers=0)))
        assert {*dataset.steps} == given
        assert {dataset.last} < given
    assert all(ours.shape == theirs.shape for theirs, ours in zip(*epochs, strict=True))


def test_the_code_of_a_dataset_is_not_touched_beside_other_threads(photos):
    dataset, end = Augmented(cropped(photos, 20)), threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        for _ in fastload.DataLoader(dataset, None, num_workers=0):
            assert type(dataset.last).__module__.startswith("torchvision.")
    finally:
        end.set()
        thread.join()
