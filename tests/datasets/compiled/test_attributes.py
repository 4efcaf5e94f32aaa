"""Datasets of any class: what their attributes hold is compiled, their own code stays."""

import copy
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

import fastload
from fastload.datasets.compiled.lazy import LazyImage
from tests.datasets.compiled.pipelines import PIPELINES
from tests.images.samples import photo

TRAIN = PIPELINES["train"][0]


class Plain(Dataset):
    """Images of `read`, transformed by an attribute of any name."""

    def __init__(self, name, transform, read):
        vars(self)[name] = transform
        self.name, self.read = name, read

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return getattr(self, self.name)(self.read(index))


def _pil(index):
    return Image.fromarray(photo(60, 70, seed=index))


def _opencv(index):
    return photo(60, 70, seed=index)[:, :, ::-1]


def _grey(index):
    return photo(60, 70, seed=index)[:, :, :1]


def _same(theirs, ours, most=0.04):
    for index in range(len(theirs)):
        torch.manual_seed(index)
        expected = theirs[index]
        after = torch.rand(1)
        torch.manual_seed(index)
        found = ours[index]
        assert torch.rand(1) == after
        assert type(found) is type(expected)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert (found - expected).abs().max() < most


@pytest.mark.parametrize("name", ["transform", "transforms", "tf", "img_transform", "augment", "_t"])
def test_transforms_of_any_name_are_compiled(name):
    theirs = Plain(name, TRAIN, _pil)
    ours = fastload.compile(theirs)
    assert isinstance(ours, Plain)
    assert vars(theirs)[name] is TRAIN
    assert f"  {name}:\n    RandomResizedCrop  " in fastload.explain(theirs)
    _same(theirs, ours)
    _same(theirs, pickle.loads(pickle.dumps(ours)))


def _array_pipelines():
    from torchvision import transforms
    from torchvision.transforms import v2

    mean = [0.5], [0.25]
    crop = transforms.RandomResizedCrop(30)
    last = v2.ToDtype(torch.float32, scale=True)
    return {
        "ToPILImage": transforms.Compose([transforms.ToPILImage(), crop, transforms.ToTensor()]),
        "ToPILImage of v2": v2.Compose([v2.ToPILImage(), v2.RandomCrop(20), v2.ToImage(), last]),
        "ToTensor": transforms.Compose([transforms.ToTensor(), crop, transforms.Normalize(*mean)]),
        "ToImage": v2.Compose([v2.ToImage(), v2.RandomCrop(20), last, v2.Normalize(*mean)]),
        "then unknown": transforms.Compose(
            [transforms.ToPILImage(), crop, lambda image: image.rotate(5), transforms.ToTensor()]
        ),
    }


@pytest.mark.parametrize("read", [_opencv, _grey])
@pytest.mark.parametrize("name", _array_pipelines())
def test_arrays_are_transformed_as_by_torchvision(name, read):
    theirs = Plain("transform", _array_pipelines()[name], lambda index: np.ascontiguousarray(read(index)))
    ours = fastload.compile(theirs)
    assert "left as it is: " not in fastload.explain(theirs)
    _same(theirs, ours, most=2.1 / 255 / 0.25)


def test_arrays_for_which_a_mode_is_chosen_are_given_to_the_transform_itself():
    from torchvision import transforms

    steps = transforms.ToPILImage("RGB"), transforms.RandomResizedCrop(30), transforms.ToTensor()
    theirs = Plain("transform", transforms.Compose(steps), lambda index: np.ascontiguousarray(_opencv(index)))
    _same(theirs, fastload.compile(theirs))


def test_what_is_no_image_is_given_to_the_transform_itself():
    seen = []

    class Both(torch.nn.Module):
        def forward(self, *inputs, **options):
            seen.append((inputs, options))
            return inputs[0]

    from torchvision.transforms import v2

    transform = v2.Compose([v2.CenterCrop(10), Both()])
    ours = fastload.compile(Plain("transform", transform, _pil))
    image, mask, floats = torch.zeros(3, 20, 20), torch.zeros(1, 20, 20), np.zeros((20, 20, 3))
    assert ours.transform(image, mask).shape == (3, 10, 10)
    assert len(seen[0][0]) == 2
    assert ours.transform(image).shape == (3, 10, 10)
    assert ours.transform(floats) is floats
    assert ours.transform.transforms[0].size == (10, 10)


def test_attributes_are_shared_with_the_given_dataset():
    theirs = Plain("tf", TRAIN, _pil)
    ours = fastload.compile(theirs)
    assert fastload.compile(ours) is ours
    assert ours.explain() == fastload.explain(theirs)
    theirs.epoch = 3
    assert ours.epoch == 3
    ours.epoch = 4
    assert theirs.epoch == 4
    theirs.tf = lambda image: 7
    assert ours[0] == theirs[0]
    ours.tf = TRAIN
    assert theirs.tf is TRAIN
    _same(theirs, ours)
    other = copy.copy(ours)
    other.epoch = 5
    assert ours.epoch == 4


class Wrapper(Dataset):
    """The samples of another dataset, transformed: for parts with different transforms."""

    def __init__(self, inner, transform=None):
        self.inner, self.transform = inner, transform
        self.kinds = []

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        sample = self.inner[index]
        image = sample[0] if isinstance(sample, tuple) else sample
        self.kinds.append(type(image))
        return image if self.transform is None else self.transform(image)


def test_a_wrapper_gets_images_that_are_decoded_late(photos):
    from torchvision.datasets import ImageFolder

    theirs = Wrapper(Subset(ImageFolder(str(photos)), range(4, 12)), TRAIN)
    ours = fastload.compile(theirs)
    _same(theirs, ours)
    assert set(ours.kinds[1::2]) == {LazyImage}
    assert "    Subset of ImageFolder\n      images: decoded when" in fastload.explain(ours)
    assert type(theirs.inner.dataset) is ImageFolder


def test_a_wrapper_without_a_transform_gets_what_it_always_got(photos):
    from torchvision.datasets import ImageFolder

    assert fastload.compile(theirs := Wrapper(ImageFolder(str(photos)))) is theirs
    transformed = Wrapper(ImageFolder(str(photos), transform=TRAIN))
    _same(transformed, fastload.compile(transformed))
    assert "while decoding" in fastload.explain(transformed)


def test_datasets_that_refer_to_each_other_are_compiled(photos):
    from torchvision.datasets import ImageFolder

    inner = Wrapper(ImageFolder(str(photos)), TRAIN)
    outer = Wrapper(inner)
    inner.outer = outer
    _same(outer, ours := fastload.compile(outer))
    assert "while decoding" in fastload.explain(ours)


def test_a_subclass_of_imagefolder_keeps_its_own_samples(photos):
    from torchvision.datasets import ImageFolder

    class WithPaths(ImageFolder):
        def __getitem__(self, index):
            return (*super().__getitem__(index), self.samples[index][0])

    theirs = WithPaths(str(photos), transform=TRAIN)
    ours = fastload.compile(theirs)
    assert isinstance(ours, WithPaths)
    for index in range(len(theirs)):
        torch.manual_seed(index)
        expected = theirs[index]
        torch.manual_seed(index)
        image, *others = ours[index]
        assert others == list(expected[1:])
        assert (image - expected[0]).abs().max() < 0.04
    with pytest.raises(FileNotFoundError, match="no_such_file"):
        ours.loader("no_such_file")
