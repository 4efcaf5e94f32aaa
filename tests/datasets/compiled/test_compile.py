"""Datasets of all kinds, compiled."""

import pickle
import re

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, random_split

import fastload
from fastload.errors import DecodeError
from tests.datasets.compiled.pipelines import PIPELINES
from tests.images.samples import file_of, photo

C = (0.49, 0.48, 0.45), (0.2, 0.2, 0.2)


def _without_files(kind, **attributes):
    """A dataset of torchvision's that holds arrays, without the files that it would be read from."""
    dataset = kind.__new__(kind)
    vars(dataset).update(
        transform=None, target_transform=None, root="", train=True, split="train", **attributes
    )
    return dataset


def _cifar(transform, count=70):
    from torchvision.datasets import CIFAR10

    planes = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), np.uint8)
    pixels = planes.transpose(0, 2, 3, 1)  # as torchvision reads them: not contiguous
    dataset = _without_files(CIFAR10, data=pixels, targets=[index % 10 for index in range(count)])
    dataset.transform = transform
    return dataset


def _mnist(transform, count=70):
    from torchvision.datasets import MNIST

    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8))
    dataset = _without_files(MNIST, data=pixels, targets=torch.arange(count) % 10)
    dataset.transform = transform
    return dataset


def _svhn(transform, count=70):
    from torchvision.datasets import SVHN

    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), np.uint8)
    dataset = _without_files(SVHN, data=pixels, labels=np.arange(count) % 10)
    dataset.transform = transform
    return dataset


def _pipelines():
    from torchvision import transforms
    from torchvision.transforms import v2

    last = transforms.ToTensor(), transforms.Normalize(*C)
    last_v2 = v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*C)
    return {
        "as people train": transforms.Compose(
            [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), *last]
        ),
        "v2": v2.Compose([v2.RandomCrop(32, padding=[4, 2]), v2.RandomHorizontalFlip(0.3), *last_v2]),
        "one side has no room": v2.Compose([v2.RandomCrop((32, 20)), v2.RandomVerticalFlip(), *last_v2]),
        "no room": transforms.Compose([transforms.RandomCrop(32), transforms.RandomHorizontalFlip(), *last]),
        "mirrored padding": transforms.Compose(
            [transforms.RandomCrop(28, padding=3, padding_mode="reflect"), *last]
        ),
        "white padding": transforms.Compose([transforms.RandomCrop(30, padding=3, fill=255), *last]),
        "no draws": transforms.Compose(last),
        "erased": transforms.Compose([*last, transforms.RandomErasing()]),
        "policy": transforms.Compose([transforms.RandAugment(), *last]),
    }


@pytest.mark.parametrize("make", [_cifar, _svhn])
@pytest.mark.parametrize("name", _pipelines())
@pytest.mark.parametrize("count", [1, 7, 64])
def test_arrays_are_transformed_as_by_torchvision(make, name, count):
    transform = _pipelines()[name]
    theirs = make(transform)
    ours = fastload.compile(theirs)
    indices = list(range(3, 3 + count))
    results = []
    for read in (lambda: [theirs[i] for i in indices], lambda: [ours[i] for i in indices],
                 lambda: ours.__getitems__(indices)):  # fmt: skip
        torch.manual_seed(4)
        results.append((read(), torch.rand(1).item()))
    (expected, after), *others = results
    for samples, our_after in others:
        assert our_after == after
        for (image, label), (other, other_label) in zip(samples, expected, strict=True):
            assert label == other_label
            assert type(image) is type(other)
            assert torch.allclose(image, other, atol=1e-5)


def test_grey_arrays_that_are_normalized_with_three_numbers_get_three_channels():
    from torchvision.transforms import v2

    steps = v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*C)
    theirs = _mnist(v2.Compose(steps))
    ours = fastload.compile(theirs)
    torch.manual_seed(1)
    expected = [theirs[index][0] for index in range(9)]
    torch.manual_seed(1)
    for (image, _), other in zip(ours.__getitems__(range(9)), expected, strict=True):
        assert torch.allclose(image, other, atol=1e-5)


def test_grey_arrays_are_batches_of_one_channel():
    from torchvision import transforms

    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.13,), (0.3,))])
    theirs = _mnist(transform)
    images, labels = next(iter(fastload.DataLoader(fastload.compile(theirs), batch_size=16, num_workers=0)))
    expected = torch.stack([theirs[index][0] for index in range(16)])
    assert torch.allclose(images, expected, atol=1e-5)
    assert images.is_contiguous()
    assert labels.tolist() == [theirs[index][1] for index in range(16)]


def test_parts_of_datasets_are_compiled(photos):
    from torchvision.datasets import ImageFolder

    folder = ImageFolder(str(photos), transform=PIPELINES["evaluation"][0])
    subset, rest = random_split(folder, [10, len(folder) - 10], torch.Generator().manual_seed(1))
    both = fastload.compile(ConcatDataset([subset, rest]))
    assert isinstance(both, ConcatDataset)
    assert all(isinstance(part, Subset) for part in both.datasets)
    for index, position in enumerate([*subset.indices, *rest.indices]):
        assert both[index][1] == folder[position][1]
        assert (both[index][0] - folder[position][0]).abs().max() < 0.04


def test_a_packed_dataset_with_torchvisions_transforms_is_compiled(packed):
    transform = PIPELINES["train"][0]
    dataset = fastload.PackedDataset(packed("photos", "tiled"), transform=transform)
    ours = fastload.compile(dataset)
    for index in range(len(dataset)):
        torch.manual_seed(index)
        expected = dataset[index]
        torch.manual_seed(index)
        image, label = ours[index]
        assert label == expected[1]
        assert (image - expected[0]).abs().max() < 0.04


def test_a_dataset_of_fastloads_transforms_is_left_alone(photos):
    import fastload.transforms as T

    for transform in (None, T.Compose([T.RandomResizedCrop(20)])):
        dataset = fastload.FolderDataset(photos, transform=transform)
        assert fastload.compile(dataset) is dataset


def test_a_packed_dataset_whose_callable_gets_arrays_is_left_alone(packed):
    dataset = fastload.PackedDataset(packed("photos", "tiled"), transform=lambda pixels: pixels.mean())
    assert fastload.compile(dataset) is dataset


def test_a_packed_dataset_that_replaces_damaged_samples_is_left_alone(packed):
    transform = PIPELINES["train"][0]
    dataset = fastload.PackedDataset(
        packed("photos", "tiled"), transform=transform, on_error=lambda index, error: (torch.zeros(1), 0)
    )
    assert fastload.compile(dataset) is dataset


class Own(torch.utils.data.Dataset):
    """A dataset as people write it."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 4

    def __getitem__(self, index):
        from PIL import Image

        return self.transform(Image.fromarray(photo(50, 60, seed=index))), {"index": index}


def test_an_own_dataset_gets_a_compiled_transform():
    theirs = Own(PIPELINES["train"][0])
    ours = fastload.compile(theirs)
    assert isinstance(ours, Own)
    assert ours.transform is theirs.transform
    torch.manual_seed(1)
    expected = theirs[2]
    torch.manual_seed(1)
    image, target = ours[2]
    assert target == expected[1]
    assert (image - expected[0]).abs().max() < 0.04
    assert pickle.loads(pickle.dumps(ours))[1][1] == {"index": 1}


def test_no_second_class_is_made():
    made = []

    class Registered(Own):
        def __init_subclass__(cls):
            made.append(cls)

    class Photos(Registered):
        pass

    ours = fastload.compile(Photos(PIPELINES["train"][0]))
    assert ours[0][0].shape == (3, 48, 48)
    assert made == [Photos]


def test_a_dataset_without_known_transforms_is_left_alone():
    for dataset in (Own(lambda image: image), torch.utils.data.TensorDataset(torch.zeros(3))):
        assert fastload.compile(dataset) is dataset


def test_a_damaged_file_raises_what_it_always_raised(tmp_path):
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    folder = tmp_path / "damaged" / "class"
    folder.mkdir(parents=True)
    data = file_of(photo(80, 90, seed=3), "JPEG")
    (folder / "cut.jpg").write_bytes(data[: len(data) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "gone.jpg").write_bytes(data)
    theirs = ImageFolder(str(folder.parent), transform=transforms.ToTensor())
    ours = fastload.compile(theirs)
    (folder / "gone.jpg").unlink()
    for index in range(3):
        with pytest.raises((OSError, ValueError)) as expected:
            theirs[index]
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value)[:20])):
            ours[index]


def test_a_file_that_was_replaced_is_named_and_read_again(photos, tmp_path):
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    folder = tmp_path / "changing" / "class"
    folder.mkdir(parents=True)
    (folder / "image.png").write_bytes(file_of(photo(20, 30, seed=1), "PNG"))
    ours = fastload.compile(ImageFolder(str(folder.parent), transform=transforms.ToTensor()))
    assert ours[0][0].shape == (3, 20, 30)
    (folder / "image.png").write_bytes(file_of(photo(40, 25, seed=2), "PNG"))
    with pytest.raises(DecodeError, match=r"image.png: must have 20x30 pixels, as before, got 40x25"):
        ours[0]
    assert ours[0][0].shape == (3, 40, 25)


def test_an_epoch_goes_on_after_a_file_that_was_replaced(tmp_path):
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    (tmp_path / "class").mkdir()
    for index in range(4):
        (tmp_path / "class" / f"{index}.png").write_bytes(file_of(photo(20, 30, seed=index), "PNG"))
    steps = transforms.Compose([transforms.RandomResizedCrop(8), transforms.ToTensor()])
    ours = fastload.compile(ImageFolder(str(tmp_path), transform=steps))
    assert len(ours.__getitems__(range(4))) == 4
    (tmp_path / "class" / "1.png").write_bytes(file_of(photo(40, 25, seed=2), "PNG"))
    batches = iter(fastload.DataLoader(ours, sampler=[0, 1, 1, 2], num_workers=0))
    next(batches)
    with pytest.raises(DecodeError, match=r"1\.png: must have 20x30 pixels, as before, got 40x25"):
        next(batches)
    assert len(list(batches)) == 2


def test_a_loader_compiles_its_dataset(photos):
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(photos), transform=PIPELINES["evaluation"][0])
    loader = fastload.DataLoader(dataset, batch_size=8, num_workers=0, compile=True)
    for plain, (images, labels) in zip(torch.utils.data.DataLoader(dataset, 8), loader, strict=True):
        assert labels.tolist() == plain[1].tolist()
        assert (images - plain[0]).abs().max() < 0.04


@pytest.mark.parametrize("form", ["encoded", "decoded"])
def test_files_of_a_compiled_dataset_are_cached(photos, form):
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(photos), transform=PIPELINES["evaluation"][0])
    cache = fastload.Cache("ram", form=form)
    loader = fastload.DataLoader(dataset, batch_size=8, num_workers=0, compile=True, cache=cache)
    first, second = list(loader), list(loader)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, second, strict=True))
    assert loader.plan.cache.value == "ram"


def test_it_can_be_sent_to_other_processes(photos):
    from torchvision.datasets import ImageFolder

    dataset = fastload.compile(ImageFolder(str(photos), transform=PIPELINES["evaluation"][0]))
    sent = pickle.loads(pickle.dumps(dataset, protocol=2))  # torch.save's
    assert all(torch.equal(sent[index][0], dataset[index][0]) for index in range(len(dataset)))
    loader = torch.utils.data.DataLoader(dataset, 8, num_workers=1, multiprocessing_context="fork")
    assert [len(labels) for _, labels in loader] == [8, 8, 8]


def test_what_was_done_is_printed(photos):
    from torchvision.datasets import ImageFolder

    ours = fastload.compile(ImageFolder(str(photos), transform=PIPELINES["somebody's function"][0]))
    lines = {line.split()[0]: line for line in ours.explain().splitlines()}
    assert "while decoding" in lines["CenterCrop"]
    assert "left as it is" in lines["Lambda"]
    assert "left as it is" in lines["RandomHorizontalFlip"]
    assert "once for a batch" in lines["Normalize"]
    assert ours.explain() in repr(ours)
