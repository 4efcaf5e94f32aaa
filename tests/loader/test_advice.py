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
from fastload.datasets.compiled.gain import measured_gain
from fastload.errors import SlowTransformWarning
from fastload.loader import _advice
from fastload.loader.clock import StepClock
from tests.datasets.reference import folder_of

WAITING = SimpleNamespace(waiting_s=8.0, seconds=lambda: 10.0)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("advice") / "photos", [(60, 85), (97, 64)], 12)


@pytest.fixture
def pipeline():
    return transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])


@pytest.fixture
def gains(monkeypatch):
    """Makes a gain be measured as soon as there was any wait."""

    def set_to(gain):
        monkeypatch.setattr("fastload.loader.clock.LONG_WAITS_S", 1e-9)
        monkeypatch.setattr(_advice, "_measured_gain", lambda dataset: gain)

    return set_to


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [fastload.FolderDataset, ImageFolder])
def test_the_gain_is_told_once_where_the_loader_is_called(photos, pipeline, gains, kind, workers):
    gains(4.0)
    dataset = kind(photos, transform=pipeline)
    loader = fastload.DataLoader(Subset(dataset, range(12)), 2, num_workers=workers)
    with pytest.warns(SlowTransformWarning, match=r"4\.0 times as fast.*compile=True") as caught:
        assert len([*loader, *loader]) == 12
    assert [one.filename for one in caught] == [__file__]


def test_nothing_is_told_where_little_is_gained(photos, pipeline, gains):
    dataset = fastload.FolderDataset(photos, pipeline)
    gains(1.2)
    list(fastload.DataLoader(dataset, 2, num_workers=0))
    gains(9.0)
    _advice.advise_compiling(
        fastload.FolderDataset(photos, pipeline), SimpleNamespace(waiting_s=1.0, seconds=lambda: 10.0)
    )


def test_random_numbers_are_as_without_the_measurement(photos, pipeline, monkeypatch):
    monkeypatch.setattr(_advice, "_LEAST_SAVED", -1e9)
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1]
    with pytest.warns(SlowTransformWarning):
        _advice.advise_compiling(ImageFolder(photos, pipeline), WAITING)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_time_of_the_advice_is_no_step(monkeypatch):
    monkeypatch.setattr("fastload.loader.clock.LONG_WAITS_S", 1e-9)
    clock = StepClock(lambda clock: time.sleep(0.5))
    for _ in range(3):
        clock.ask()
        clock.hand(None)
    assert clock.seconds() < 0.4


class TestMeasuredGain:
    def test_slow_transforms_are_measured(self, photos, pipeline, monkeypatch):
        plain = transforms.ToTensor.__call__

        def slow(self, image):
            time.sleep(0.03)
            return plain(self, image)

        monkeypatch.setattr(transforms.ToTensor, "__call__", slow)
        assert measured_gain(fastload.FolderDataset(photos, pipeline)) > 1.5

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
            assert measured_gain(dataset) == 1.0
