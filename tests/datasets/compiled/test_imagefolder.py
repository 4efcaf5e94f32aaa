"""Compiled ImageFolders return what torchvision returns, for the same seeds."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.utils.data

import fastload
from tests.datasets.compiled.pipelines import PIPELINES, STD

# Besides the differences in levels: normalising is one multiplication and addition here, two steps there.
_ROUNDING = 0.01


@pytest.fixture
def folder(photos):
    from torchvision.datasets import ImageFolder

    return lambda transform=None, **options: ImageFolder(str(photos), transform=transform, **options)


def _seed(seed=3):
    torch.manual_seed(seed)
    random.seed(seed)


def _difference(transform, image, other):
    """The largest difference between two images of any kind, in levels of 255."""
    image, other = (
        each if isinstance(each, torch.Tensor) else torch.from_numpy(np.array(each))
        for each in (image, other)
    )
    difference = (image.double() - other.double()).abs()
    if image.dtype == torch.uint8:
        return difference.max()
    scale = torch.tensor(STD)[:, None, None] if "Normalize" in repr(transform) else 1.0
    return (difference * scale * 255).max()


def _draws():
    return torch.rand(1).item(), random.random()


@pytest.mark.parametrize("name", PIPELINES)
def test_samples_are_torchvisions(folder, name):
    transform, most = PIPELINES[name]
    theirs = folder(transform)
    ours = fastload.compile(theirs)
    for index in [*range(len(theirs)), 0, 3]:
        _seed(index)
        expected, label = theirs[index]
        after = _draws()
        _seed(index)
        image, our_label = ours[index]
        assert _draws() == after
        assert our_label == label
        assert type(image) is type(expected)
        if isinstance(image, torch.Tensor):
            assert (image.dtype, image.shape) == (expected.dtype, expected.shape)
        assert _difference(transform, image, expected) <= most + _ROUNDING


@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in ("nothing but a tensor",)])
def test_several_samples_are_the_same_as_one_by_one(folder, name):
    ours = fastload.compile(folder(PIPELINES[name][0]))
    indices = [5, 2, 2, 11, 0]
    _seed()
    one_by_one = [ours[index] for index in indices]
    after = _draws()
    _seed()
    together = ours.__getitems__(indices)
    assert _draws() == after
    for (image, label), (other, other_label) in zip(one_by_one, together, strict=True):
        assert label == other_label
        assert type(image) is type(other)
        assert np.allclose(np.asarray(image), np.asarray(other), atol=1e-6)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["train", "train v2", "erasing", "somebody's function", "evaluation"])
def test_batches_of_a_loader_are_torchs(folder, name, workers):
    transform, most = PIPELINES[name]
    batches = []
    for loader, dataset in (
        (torch.utils.data.DataLoader, folder(transform)),
        (fastload.DataLoader, fastload.compile(folder(transform))),
    ):
        _seed()
        options = {"batch_size": 6, "shuffle": True, "num_workers": workers}
        batches.append(list(loader(dataset, multiprocessing_context="fork" if workers else None, **options)))
    for (images, labels), (ours, our_labels) in zip(*batches, strict=True):
        assert labels.tolist() == our_labels.tolist()
        assert ours.is_contiguous()
        assert _difference(transform, images, ours) <= most + _ROUNDING


def test_an_unknown_transform_gets_a_plain_pil_image(folder):
    from PIL import Image
    from torchvision import transforms

    seen = []
    steps = [
        transforms.CenterCrop(20),
        lambda image: seen.append(type(image)) or image,
        transforms.ToTensor(),
    ]
    fastload.compile(folder(transforms.Compose(steps)))[0]
    assert seen == [Image.Image]


def test_a_target_transform_draws_in_its_turn(folder):
    transform, _ = PIPELINES["train"]
    options = {"target_transform": lambda label: (label, torch.rand(1).item())}
    theirs = folder(transform, **options)
    ours = fastload.compile(theirs)
    _seed()
    expected = [theirs[index][1] for index in range(6)]
    _seed()
    assert [target for _, target in ours.__getitems__(range(6))] == expected


def test_a_transform_that_is_set_later_counts(folder):
    from torchvision import transforms

    ours = fastload.compile(folder(transforms.Compose([transforms.CenterCrop(20), transforms.ToTensor()])))
    assert ours[0][0].shape == (3, 20, 20)
    ours.transform = transforms.Compose([transforms.CenterCrop(24), transforms.ToTensor()])
    assert ours[0][0].shape == (3, 24, 24)


def test_a_probability_that_is_changed_later_counts(folder):
    from torchvision import transforms

    flip, erase = transforms.RandomHorizontalFlip(0.0), transforms.RandomErasing(0.0)
    apply = transforms.RandomApply([transforms.CenterCrop(20)], p=0.0)
    steps = [transforms.CenterCrop(24), flip, apply, transforms.ToTensor(), erase]
    theirs = folder(transforms.Compose(steps))
    ours = fastload.compile(theirs)
    for value in (0.0, 1.0):
        flip.p = erase.p = apply.p = value
        _seed()
        expected = theirs[0][0]
        _seed()
        assert torch.allclose(ours[0][0], expected)


def _to_tensor(side):
    from torchvision import transforms

    return transforms.Compose([transforms.CenterCrop(side), transforms.ToTensor()])


def test_what_is_set_on_one_dataset_counts_in_both(folder):
    theirs = folder(_to_tensor(20))
    ours = fastload.compile(theirs)
    theirs.transform = _to_tensor(24)
    assert ours.__getitems__([0])[0][0].shape == (3, 24, 24)
    ours.transform = _to_tensor(16)
    assert theirs[0][0].shape == (3, 16, 16)
    ours.samples = ours.samples[:10]
    assert len(theirs) == len(ours) == 10
    theirs.samples = [(path, 7) for path, _ in theirs.samples]
    assert [label for _, label in ours.__getitems__([3, 9])] == [7, 7]
    theirs.samples.append(theirs.samples[0])
    assert len(ours) == 11
    assert torch.allclose(ours[10][0], theirs[10][0])


def test_a_copy_has_a_transform_of_its_own(folder):
    ours = fastload.compile(folder(_to_tensor(20)))
    other = copy.copy(ours)
    other.transform = _to_tensor(24)
    assert (ours[0][0].shape[1], other[0][0].shape[1]) == (20, 24)


def test_parameters_that_are_changed_in_place_are_followed(folder):
    from torchvision import transforms

    crop = transforms.RandomResizedCrop(20)
    normalize = transforms.Normalize([0.5] * 3, [1.0] * 3)
    steps = transforms.Compose([crop, transforms.ToTensor(), normalize])
    theirs = folder(steps)
    ours = fastload.compile(theirs)

    def both():
        _seed()
        expected = theirs[1][0]
        _seed()
        return expected, ours.__getitems__([1])[0][0]

    for change in (
        lambda: setattr(crop, "size", (24, 24)),
        lambda: setattr(normalize, "std", [0.5] * 3),
        lambda: normalize.mean.__setitem__(0, 0.1),
        lambda: steps.transforms.__setitem__(0, transforms.CenterCrop(16)),
    ):
        change()
        expected, image = both()
        assert image.shape == expected.shape
        assert (image - expected).abs().max() < 0.05


def test_subclasses_that_read_differently_are_read_by_their_own_code(photos):
    from torchvision.datasets import ImageFolder

    class First(ImageFolder):
        def __len__(self):
            return 5

    class Marked(ImageFolder):
        def __getitems__(self, indices):
            return [(self[index][0], -1) for index in indices]

    assert len(fastload.compile(First(str(photos), _to_tensor(20)))) == 5
    assert fastload.compile(Marked(str(photos), _to_tensor(20))).__getitems__([1])[0][1] == -1


@pytest.mark.parametrize("name", ["RandomResizedCrop", "RandomCrop"])
@pytest.mark.parametrize("indices", [[2], [2, 3]])
def test_draws_that_somebody_replaced_are_used(folder, monkeypatch, name, indices):
    from torchvision import transforms

    kind = getattr(transforms, name)
    monkeypatch.setattr(kind, "get_params", staticmethod(lambda *options: (1, 2, 20, 20)))
    theirs = folder(transforms.Compose([kind(20), transforms.ToTensor()]))
    for (image, _), index in zip(fastload.compile(theirs).__getitems__(indices), indices, strict=True):
        assert torch.allclose(image, theirs[index][0])


def test_another_default_dtype_gives_the_same_draws(folder):
    theirs = folder(PIPELINES["train"][0])
    ours = fastload.compile(theirs)
    torch.set_default_dtype(torch.float64)
    try:
        _seed()
        expected = theirs[2][0]
        _seed()
        assert (ours.__getitems__([2])[0][0] - expected).abs().max() < 0.05
    finally:
        torch.set_default_dtype(torch.float32)


def test_attributes_are_the_dataset_s(folder):
    theirs = folder()
    ours = fastload.compile(theirs)
    assert (ours.classes, ours.class_to_idx, ours.samples) == (
        theirs.classes,
        theirs.class_to_idx,
        theirs.samples,
    )
    assert len(ours) == len(theirs)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ours.no_such_name
