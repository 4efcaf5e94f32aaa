"""A loader leaves small images in memory to their transform, where compiling would take longer."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset

import fastload


def thumbnails(*steps):
    from torchvision import transforms
    from torchvision.datasets import CIFAR10

    dataset = CIFAR10.__new__(CIFAR10)
    dataset.data = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), np.uint8)
    dataset.targets, dataset.target_transform = list(range(16)), None
    dataset.transform = transforms.Compose([transforms.RandomHorizontalFlip(), *steps, transforms.ToTensor()])
    return dataset


def made_by_the_dataset(dataset, batch_size, monkeypatch):
    """Return how many samples of an epoch the dataset's own code makes; the batches are torch's."""
    from torchvision.datasets import CIFAR10

    count = 0
    read = CIFAR10.__getitem__

    def counted(self, index):
        nonlocal count
        count += 1
        return read(self, index)

    epochs = []
    for loader_class in (DataLoader, fastload.DataLoader):
        torch.manual_seed(0)
        with monkeypatch.context() as patch:
            patch.setattr(CIFAR10, "__getitem__", counted)
            loader, count = loader_class(dataset, batch_size, num_workers=0), 0
            epochs.append(list(loader))
    for ours, theirs in zip(*epochs, strict=True):
        assert torch.allclose(ours[0], theirs[0], atol=1e-6)
        assert np.array_equal(ours[1], theirs[1])
    return count


@pytest.mark.parametrize(("batch_size", "count"), [(None, 16), (1, 16), (3, 16), (8, 0)])
def test_few_thumbnails_are_made_one_by_one(batch_size, count, monkeypatch):
    assert made_by_the_dataset(thumbnails(), batch_size, monkeypatch) == count


def test_steps_that_cannot_be_drawn_at_once_are_called(monkeypatch):
    from torchvision import transforms

    # An in-memory image as large as this gains from OpenCV's blur, but not from its grey levels.
    grey = thumbnails(transforms.RandomGrayscale(0.5))
    assert made_by_the_dataset(grey, 8, monkeypatch) == 16
    assert not fastload.DataLoader(grey, 8).plan.compiled.value


def test_parts_of_different_transforms_are_made_one_by_one(monkeypatch):
    both = ConcatDataset([thumbnails(), thumbnails()])
    assert made_by_the_dataset(both, 8, monkeypatch) == 32
    assert not fastload.DataLoader(both, 8).plan.compiled.value
    both.datasets[1].transform = both.datasets[0].transform
    assert made_by_the_dataset(both, 8, monkeypatch) == 0


@pytest.mark.parametrize(("size", "is_compiled"), [(64, False), (200, True)])
def test_only_larger_images_are_resized_by_compiled_steps(size, is_compiled, monkeypatch):
    from torchvision import transforms

    class Resized(Dataset):
        def __init__(self):
            self.transform = transforms.Compose([transforms.Resize(size), transforms.ToTensor()])

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return self.transform(PIL.Image.fromarray(np.full((96, 96, 3), index, np.uint8)))

    import PIL.Image

    called = []
    resize = PIL.Image.Image.resize
    monkeypatch.setattr(
        PIL.Image.Image, "resize", lambda *args, **options: called.append(1) or resize(*args, **options)
    )
    images = torch.cat(list(fastload.DataLoader(Resized(), 2, num_workers=0)))
    assert torch.equal((images * 255).round()[:, 0, 0, 0], torch.arange(4.0))
    assert bool(called) != is_compiled
