"""A dataset on a device gives the same pixels as elsewhere; here the device is the CPU."""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastload
import fastload.transforms as T
from fastload import FolderDataset, OptionError, PackedDataset
from fastload.datasets.batch import HostMemory
from fastload.datasets.resident import Resident, device_room, room_of
from fastload.transforms.draws import EpochDraws
from tests.datasets.pipelines import MEAN, STD
from tests.datasets.reference import filled

SEED = 7
INDICES = [39, 0, 3, 3, 21, 17]

# A multiplication and an addition may be fused on one side only.
ULPS_APART = 1e-6

STEPS = [
    T.RandomCrop(32, padding=4),
    T.RandomCrop(28, padding=(1, 2, 3, 4), fill=(9, 8, 7)),
    T.RandomCrop(32, padding=5, padding_mode="reflect"),
    T.RandomCrop(32, padding=5, padding_mode="symmetric"),
    T.RandomCrop(30, padding=3, padding_mode="edge"),
    T.CenterCrop(24),
    T.CenterCrop(40),
    T.Pad((1, 2), fill=200),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomErasing(p=0.8, value=(1, 2, 3)),
    T.RandomErasing(p=0.8, value=7),
]
NUMBERS = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]


def batch(resident, indices, seed=None):
    with EpochDraws(seed) if seed is not None else contextlib.nullcontext():
        return resident.fetch_into(indices, HostMemory())


def check(path, transform, indices=INDICES, kind=PackedDataset, **options):
    dataset = kind(path, transform, **options)
    images, labels = batch(Resident.load(dataset, "cpu"), indices, SEED)
    expected, expected_labels = filled(dataset, indices, SEED)
    assert images.dtype == expected.dtype
    assert images.stride() == expected.stride()
    if images.dtype == torch.uint8:
        assert torch.equal(images, expected)
    else:
        assert torch.allclose(images, expected, rtol=0, atol=ULPS_APART)
    assert torch.equal(labels, expected_labels)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_pipeline_gives_the_same(packed, data):
    steps = data.draw(st.lists(st.sampled_from(STEPS), max_size=4))
    try:
        filled(PackedDataset(packed("thumbnails", "raw"), T.Compose(steps)), INDICES)
    except OptionError:
        steps = steps[:1]
    as_tensors = [T.ToImage(), T.ToTensor(), T.Identity(), T.Normalize(MEAN, STD), T.ToPureTensor()]
    tails = [[], NUMBERS, [*NUMBERS, T.RandomErasing(value=0.5)], as_tensors]
    numbers = data.draw(st.sampled_from(tails))
    check(packed("thumbnails", "raw"), T.Compose([*steps, *numbers]))


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_both_memory_formats(packed, memory_format):
    transform = T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), *NUMBERS])
    check(packed("thumbnails", "raw"), transform, memory_format=memory_format)


def test_a_folder_too(thumbnails):
    check(thumbnails, T.RandomCrop(24), kind=FolderDataset)
    check(thumbnails, None, kind=FolderDataset)


def test_negative_indices_count_from_the_end(packed):
    dataset = PackedDataset(packed("thumbnails", "raw"))
    assert torch.equal(batch(Resident.load(dataset, "cpu"), [-1])[0], filled(dataset, [39])[0])


def test_the_whole_epoch_and_other_seeds(packed):
    dataset = PackedDataset(packed("thumbnails", "raw"), T.RandomCrop(32, padding=4))
    resident = Resident.load(dataset, "cpu")
    for seed in (1, 2):
        order = np.random.default_rng(seed).permutation(40)
        assert torch.equal(batch(resident, order, seed)[0], filled(dataset, order, seed)[0])


@pytest.mark.parametrize(
    ("transform", "named"),
    [
        (T.RandomResizedCrop(24), "RandomResizedCrop"),
        (T.Compose([T.RandomCrop(24), T.ColorJitter(0.1)]), "ColorJitter"),
        (T.RandomErasing(value="random"), r"RandomErasing\(.*value='random'"),
        (np.copy, "got <.*copy"),
    ],
)
def test_unsupported_transform_is_named(packed, transform, named):
    with pytest.raises(OptionError, match=named):
        Resident.load(PackedDataset(packed("thumbnails", "raw"), transform), "cpu")


def test_images_of_several_sizes_are_refused(packed):
    with pytest.raises(OptionError, match="images of one size"):
        Resident.load(PackedDataset(packed("photos", "raw")), "cpu")


def test_set_that_does_not_fit_is_refused(packed):
    with pytest.raises(OptionError, match="B of pixels must fit"):
        Resident.load(PackedDataset(packed("thumbnails", "raw")), "cpu", room_bytes=1000)
    assert device_room("cpu") >= 0


@pytest.mark.parametrize(("total_gib", "margin_gib"), [(8, 2), (16, 2), (40, 4), (140, 14)])
def test_a_tenth_of_a_device_and_at_least_two_gibibytes_stay_free(total_gib, margin_gib):
    free = (total_gib - 1) << 30
    assert room_of(free, total_gib << 30) == pytest.approx(free - (margin_gib << 30))
    assert room_of(1 << 30, total_gib << 30) == 0


class Numbers:
    """More images than are loaded at once, each with its number."""

    def __len__(self):
        return 520

    def __getitem__(self, index):
        return np.full((2, 2, 3), index % 256, np.uint8), index


def test_labels_of_several_dtypes_are_refused_and_never_truncated(tmp_path):
    fastload.pack(Numbers(), tmp_path / "x.fl", encode="raw", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    assert batch(Resident.load(dataset, "cpu"), [519, 0])[1].tolist() == [519, 0]
    dataset.target_transform = lambda label: label if label < 512 else label + 0.5
    with pytest.raises(OptionError, match=r"labels of one dtype and shape, got torch\.int64 and"):
        Resident.load(dataset, "cpu")


@pytest.mark.parametrize("index", [40, -41])
def test_an_index_out_of_range_is_refused_before_the_device_sees_it(packed, index):
    resident = Resident.load(PackedDataset(packed("thumbnails", "raw")), "cpu")
    with pytest.raises(IndexError, match=f"index {index} is out of range for 40 samples"):
        batch(resident, [0, index])
