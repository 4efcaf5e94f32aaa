"""A loader compiles its dataset by itself, and the user's dataset stays what it is."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, get_worker_info

import fastload
from fastload.datasets.compiled.lazy import LazyImage
from tests.datasets.compiled.pipelines import PIPELINES
from tests.folders import class_folders
from tests.images.samples import photo

TRAIN = PIPELINES["train"][0]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return class_folders(tmp_path_factory.mktemp("photos"), 12)


@pytest.fixture
def folder(photos):
    from torchvision.datasets import ImageFolder

    return lambda transform=TRAIN: ImageFolder(str(photos), transform)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A folder of JPEG photos and PNG masks, larger than what is left to torchvision."""
    root = tmp_path_factory.mktemp("pairs")
    for index in range(8):
        Image.fromarray(photo(150, 170, seed=index)).save(root / f"{index}.jpg", quality=95)
        Image.fromarray(photo(150, 170, seed=index)[:, :, 0] // 32).save(root / f"{index}.png")
    return root


class Own(Dataset):
    """Photos and masks that its own code opens, with transforms in its attributes."""

    def __init__(self, root, transform, mask_transform=None):
        self.root, self.transform, self.mask_transform = root, transform, mask_transform
        self.seen = []

    def __len__(self):
        return 8

    def __getitem__(self, index):
        image = Image.open(self.root / f"{index}.jpg").convert("RGB")
        self.seen.append(type(image))
        if self.mask_transform is None:
            return self.transform(image), index
        mask = Image.open(self.root / f"{index}.png")
        state = torch.get_rng_state()
        image = self.transform(image)
        torch.set_rng_state(state)
        return image, self.mask_transform(mask)


class TwoCrops:
    def __init__(self, base):
        self.base = base

    def __call__(self, image):
        return [self.base(image), self.base(image)]


def _epochs(kind, dataset, workers=0, **options):
    torch.manual_seed(2)
    random.seed(2)
    if workers:
        options["multiprocessing_context"] = "fork"
    loader = kind(dataset, 4, shuffle=True, num_workers=workers, **options)
    return [list(loader) for _ in range(2)], torch.rand(1).item()


def _assert_close(found, expected, levels=2.0):
    """Compare batches: structure, types, dtypes and strides are equal, pixels within some levels."""
    if isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_close(one, other, levels)
    elif not isinstance(expected, torch.Tensor):
        assert found == expected
    else:
        assert (found.dtype, found.shape, found.stride()) == (
            expected.dtype,
            expected.shape,
            expected.stride(),
        )
        if not expected.is_floating_point():
            assert torch.equal(found, expected)
        else:
            assert (found - expected).abs().max() <= levels / 255 / 0.2


def test_the_users_dataset_is_the_loaders(folder):
    dataset = folder()
    attributes = dict(vars(dataset))
    loader = fastload.DataLoader(dataset, 4, num_workers=0)
    list(loader)
    assert loader.dataset is dataset
    assert vars(dataset) == attributes
    assert loader.plan.compiled.value
    assert "RandomResizedCrop, RandomHorizontalFlip, ToTensor, Normalize" in str(loader.plan)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_torchs_within_two_levels(folder, workers):
    theirs, after = _epochs(DataLoader, folder(), workers)
    ours, our_after = _epochs(fastload.DataLoader, folder(), workers)
    assert our_after == after
    _assert_close(ours, theirs)
    exact, exact_after = _epochs(fastload.DataLoader, folder(), workers, compile=False)
    assert exact_after == after
    _assert_close(exact, theirs, 0)


def test_the_parameter_says_what_is_compiled(folder):
    from torchvision import transforms

    bicubic = transforms.Resize((40, 40), transforms.InterpolationMode.BICUBIC)
    dataset = folder(transforms.Compose([bicubic, transforms.ToTensor()]))
    epochs = {
        option: torch.cat(
            [images for images, _ in fastload.DataLoader(dataset, 8, num_workers=0, compile=option)]
        )
        for option in (None, True, False)
    }
    # PIL's own filter, while the rest is compiled.
    assert torch.allclose(epochs[None], epochs[False], atol=1e-6)
    assert (epochs[True] - epochs[False]).abs().max() > 0.5 / 255
    options = {option: fastload.DataLoader(dataset, num_workers=0, compile=option) for option in epochs}
    assert {option: loader.plan.compiled.value for option, loader in options.items()} == {
        None: True, True: True, False: False
    }  # fmt: skip
    assert options[False].plan.compiled.reason == "set by you"
    assert "nothing" in fastload.DataLoader(TensorDataset(torch.zeros(3))).plan.compiled.reason


def test_what_is_set_between_epochs_counts(folder):
    from torchvision import transforms

    dataset = folder(None)
    loader = fastload.DataLoader(dataset, 4, num_workers=0)
    assert not loader.plan.compiled.value
    loader.dataset.transform = transforms.Compose([transforms.CenterCrop(20), transforms.ToTensor()])
    assert next(iter(loader))[0].shape == (4, 3, 20, 20)
    assert loader.plan.compiled.value
    loader.dataset.epoch = 3
    assert dataset.epoch == 3
    dataset.loader = lambda path: Image.new("RGB", (30, 30), (255, 0, 0))
    images, _ = next(iter(loader))
    assert torch.equal(images[:, 0], torch.ones(4, 20, 20))
    dataset.samples = dataset.imgs = [(path, 7) for path, _ in dataset.samples]
    assert next(iter(loader))[1].tolist() == [7] * 4


def test_own_code_that_reads_the_epoch_sees_it(pairs):
    class Curriculum(Own):
        epoch = 0

        def __getitem__(self, index):
            return (*super().__getitem__(index), self.epoch)

    dataset = Curriculum(pairs, TRAIN)
    loader = fastload.DataLoader(dataset, 4, num_workers=0)
    for epoch in range(2):
        loader.dataset.epoch = epoch
        assert {int(each) for _, _, epochs in loader for each in epochs} == {epoch}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["one", "two", "pairs"])
def test_datasets_of_ones_own_are_torchs_within_two_levels(pairs, kind, workers):
    from torchvision import transforms

    size = 140
    mask = transforms.Compose(
        [
            transforms.RandomResizedCrop(size, interpolation=transforms.InterpolationMode.NEAREST),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )
    image = transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )

    def dataset():
        return Own(pairs, TwoCrops(image) if kind == "two" else image, mask if kind == "pairs" else None)

    ours = dataset()
    theirs, after = _epochs(DataLoader, dataset(), workers)
    found, our_after = _epochs(fastload.DataLoader, ours, workers)
    assert our_after == after
    _assert_close(found, theirs)
    if not workers:
        assert set(ours.seen) == {LazyImage}


def test_while_no_batch_is_made_own_attributes_are_the_users(pairs):
    from torchvision.transforms import Compose

    dataset = Own(pairs, TRAIN, None)
    text = repr(TRAIN)
    loader = fastload.DataLoader(dataset, 4, num_workers=0)
    for _ in loader:
        assert dataset.transform is TRAIN
        assert type(dataset) is Own
        assert repr(dataset.transform) == text
    pickle.dumps(dataset)
    copy.deepcopy(loader.dataset)

    class Failing(Own):
        def __getitem__(self, index):
            assert isinstance(self.transform, Compose)
            assert self.transform.transforms[0] is TRAIN.transforms[0]
            raise RuntimeError(repr(self.transform) == text)

    failing = Failing(pairs, TRAIN)
    with pytest.raises(RuntimeError, match="True"):
        next(iter(fastload.DataLoader(failing, num_workers=0)))
    assert failing.transform is TRAIN


def test_workers_are_told_the_users_dataset(pairs):
    loader = fastload.DataLoader(
        Own(pairs, TRAIN), 4, num_workers=1, worker_init_fn=_assert_own, multiprocessing_context="fork"
    )
    assert len(list(loader)) == 2


def _assert_own(worker):
    assert type(get_worker_info().dataset) is Own


def test_parts_of_own_datasets_are_compiled(pairs):
    part = Subset(Own(pairs, TRAIN), [5, 2])
    loader = fastload.DataLoader(part, 2, num_workers=0)
    assert loader.dataset is part
    assert loader.plan.compiled.value
    assert next(iter(loader))[1].tolist() == [5, 2]


def test_truncated_files_raise_where_they_are_opened(pairs, tmp_path):
    data = (pairs / "0.jpg").read_bytes()
    (tmp_path / "0.jpg").write_bytes(data[: len(data) // 2])

    class Skipping(Own):
        def __getitem__(self, index):
            try:
                with Image.open(self.root / "0.jpg") as opened:
                    opened.convert("RGB")
            except OSError:
                return -1
            return self.transform

    assert next(iter(fastload.DataLoader(Skipping(tmp_path, TRAIN), 8, num_workers=0))).tolist() == [-1] * 8


class Functions:
    """A transform of image and mask as torchvision's references write them."""

    def __call__(self, image, mask):
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as F

        image = F.resize(image, 130)
        mask = F.resize(mask, 130, interpolation=InterpolationMode.NEAREST)
        if random.random() < 0.5:
            image, mask = F.hflip(image), F.hflip(mask)
        image, mask = F.crop(image, 3, 4, 100, 90), F.crop(mask, 3, 4, 100, 90)
        return F.to_tensor(image), torch.as_tensor(np.array(mask), dtype=torch.int64)


class Referenced(Own):
    def __getitem__(self, index):
        image = Image.open(self.root / f"{index}.jpg").convert("RGB")
        self.seen.append(type(image))
        return self.transform(image, Image.open(self.root / f"{index}.png"))


def test_images_for_torchvisions_functions_are_decoded_late(pairs):
    dataset = Referenced(pairs, Functions())
    _assert_close(_epochs(fastload.DataLoader, dataset), _epochs(DataLoader, Referenced(pairs, Functions())))
    assert set(dataset.seen) == {LazyImage}


def test_code_that_would_gain_nothing_is_left_alone(pairs):
    class Arrays(Own):
        def __getitem__(self, index):
            image = Image.open(self.root / f"{index}.jpg").convert("RGB")
            self.seen.append(type(image))
            return np.asarray(image)[:100, :100].copy()

    dataset = Arrays(pairs, None)
    loader = fastload.DataLoader(dataset, 4, num_workers=0)
    list(loader)
    assert set(dataset.seen) == {Image.Image}
    assert not loader.plan.compiled.value


def test_datasets_that_fill_batches_are_left_alone():
    class Filling(Dataset):
        def __init__(self):
            self.transform = TRAIN

        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.zeros(1)

        def fetch_into(self, indices, out):
            return out.empty((len(indices), 1), torch.float32).fill_(7)

    assert next(iter(fastload.DataLoader(Filling(), 4, num_workers=0))).tolist() == [[7]] * 4


def test_small_images_in_memory_are_left_to_their_transform():
    class Small(Dataset):
        def __init__(self):
            self.transform = TRAIN

        def __len__(self):
            return 100

        def __getitem__(self, index):
            used.append(type(self.transform))
            return self.transform(Image.fromarray(photo(40, 40, seed=index)))

    used = []
    loader = fastload.DataLoader(Small(), 10, num_workers=0)
    _assert_close(_epochs(fastload.DataLoader, Small()), _epochs(DataLoader, Small()), 0)
    used.clear()
    list(loader)
    assert used[-1] is type(TRAIN)
