"""Advice to compile a dataset: once, where it is waited for and much would be gained."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder

import fastload
from fastload.datasets.compiled.gain import compiling_saves
from fastload.errors import SlowTransformWarning
from fastload.loader import _advice
from fastload.loader.clock import LoadTimes, StepClock
from tests.datasets.reference import folder_of


def clock(waiting_s=8.0, cpu_s=9.0, blocked_s=0.0):
    """The clock of ten seconds in which a process made samples."""
    loading = LoadTimes(1, 1, cpu_s + blocked_s, cpu_s, 0.0, 0.0)
    return SimpleNamespace(waiting_s=waiting_s, seconds=lambda: 10.0, loading=lambda: (loading,))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("advice") / "photos", [(60, 85), (97, 64)], 12)


@pytest.fixture
def pipeline():
    return transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])


@pytest.fixture
def saving(monkeypatch):
    """Makes compiling save some of ten milliseconds."""

    def set_to(left_s):
        saves = "fastload.datasets.compiled.gain.compiling_saves"
        monkeypatch.setattr(saves, lambda dataset: (0.01, left_s))

    return set_to


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [fastload.FolderDataset, ImageFolder])
def test_the_gain_is_told_once_where_the_loader_is_called(
    photos, pipeline, saving, monkeypatch, kind, workers
):
    monkeypatch.setattr("fastload.loader.clock.LONG_WAITS_S", 1e-9)
    monkeypatch.setattr(_advice, "_computing_share", lambda clock: 1.0)
    saving(0.002)
    dataset = kind(photos, transform=pipeline)
    loader = fastload.DataLoader(Subset(dataset, range(12)), 2, num_workers=workers)
    with pytest.warns(SlowTransformWarning, match="from 10 ms to 2 ms.*compile=True") as caught:
        assert len([*loader, *loader]) == 12
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize(
    ("left_s", "clock"),
    [(0.008, clock()), (0.002, clock(waiting_s=2.0)), (0.002, clock(cpu_s=1.0, blocked_s=8.0))],
    ids=["little is saved", "little is waited", "the disk is slow"],
)
def test_nothing_is_told_where_little_is_gained(photos, pipeline, saving, left_s, clock):
    saving(left_s)
    _advice.advise_compiling(fastload.FolderDataset(photos, pipeline), clock)


def test_a_third_of_the_time_is_worth_a_line(photos, pipeline, saving):
    saving(0.0062)
    with pytest.warns(SlowTransformWarning):
        _advice.advise_compiling(fastload.FolderDataset(photos, pipeline), clock())


@pytest.mark.usefixtures("two_threads")
def test_random_numbers_and_threads_are_as_without_the_measurement(photos, pipeline, monkeypatch):
    monkeypatch.setattr(_advice, "_LEAST_SAVED", -1e9)
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1], torch.get_num_threads()
    with pytest.warns(SlowTransformWarning):
        _advice.advise_compiling(ImageFolder(photos, pipeline), clock())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.get_num_threads() == before[2]


def test_time_of_the_advice_is_no_step(monkeypatch):
    monkeypatch.setattr("fastload.loader.clock.LONG_WAITS_S", 1e-9)
    steps = StepClock(lambda steps: time.sleep(0.5))
    for _ in range(3):
        steps.ask()
        steps.hand(None)
    assert steps.seconds() < 0.4


class TestSaving:
    def test_cpu_time_of_slow_transforms_is_saved(self, photos, pipeline, monkeypatch):
        plain = transforms.ToTensor.__call__

        def slow(self, image):
            ends_at = time.thread_time() + 0.05
            while time.thread_time() < ends_at:
                pass
            return plain(self, image)

        monkeypatch.setattr(transforms.ToTensor, "__call__", slow)
        as_it_is_s, compiled_s = compiling_saves(fastload.FolderDataset(photos, pipeline))
        assert as_it_is_s >= 0.05
        assert compiled_s < 0.05

    def test_code_of_the_user_is_not_called(self, photos, pipeline):
        def refuse(image):
            raise AssertionError

        known = transforms.ToTensor()
        for dataset in (
            fastload.FolderDataset(photos, transforms.Compose([refuse, known])),
            ImageFolder(photos, pipeline, target_transform=refuse),
            SimpleNamespace(transform=known),
            fastload.compile(ImageFolder(photos, pipeline)),
            range(4),
        ):
            assert compiling_saves(dataset) is None
