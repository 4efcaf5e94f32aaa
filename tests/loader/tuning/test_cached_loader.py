"""A loader's cache: opened before its workers start, or decided by measured times."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import fastload
import fastload.transforms as T
from fastload.errors import OptionError
from fastload.loader.measurements import SingleProcessCost
from tests.products import sampled
from tests.tools import CUDA


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty images of one size."""
    place = tmp_path_factory.mktemp("cached")
    random = np.random.default_rng(0)
    for number in range(60):
        path = place / "photos" / f"class{number % 3}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), random.integers(0, 255, (36, 36, 3), np.uint8))
    fastload.pack(place / "photos", place / "photos.fl", encode="raw", workers=1)
    return place


TRANSFORM = T.Compose(
    [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True)]
)


def datasets(folder):
    return [
        fastload.FolderDataset(folder / "photos", transform=TRANSFORM),
        fastload.PackedDataset(folder / "photos.fl", transform=TRANSFORM),
    ]


def epochs(loader, count=2):
    return [torch.cat([images for images, _ in loader]) for _ in range(count)]


@pytest.mark.parametrize(
    ("cache", "workers"), sampled(["ram", "auto", fastload.Cache("ram", form="decoded")], [2, None, 0])
)
def test_cache_does_not_change_batches(folder, cache, workers):
    explicit = {} if workers is None else {"num_workers": workers}
    for plain, cached in zip(datasets(folder), datasets(folder), strict=True):
        expected = epochs(fastload.DataLoader(plain, batch_size=8, shuffle=True, seed=3, num_workers=0))
        loader = fastload.DataLoader(cached, batch_size=8, shuffle=True, seed=3, cache=cache, **explicit)
        for got, wanted in zip(epochs(loader), expected, strict=True):
            assert torch.equal(got, wanted)
        cached.close_cache()


def test_ram_cache_is_full_after_the_first_epoch_with_workers(folder):
    for dataset in datasets(folder):
        loader = fastload.DataLoader(dataset, batch_size=8, num_workers=2, cache="ram")
        list(loader)
        assert dataset.cached.kind == "ram"
        assert dataset.cached.ready == 1.0
        assert loader.plan.cache.value == "ram"
        dataset.close_cache()


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_batches_made_on_the_device_equal_those_of_the_cpu(folder, device):
    for plain, cached in zip(datasets(folder), datasets(folder), strict=True):
        options = {"batch_size": 8, "shuffle": True, "seed": 1, "num_workers": 0}
        part = list(range(0, 60, 2))
        expected = epochs(fastload.DataLoader(Subset(plain, part), **options))
        loader = fastload.DataLoader(Subset(cached, part), device=device, cache="device", **options)
        for got, wanted in zip(epochs(loader), expected, strict=True):
            assert got.device.type == device
            torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=1e-6)
        assert f"pixels are on {device}" in loader.plan.cache.reason


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_epoch_on_the_device_is_resumed(folder, device):
    options = {"batch_size": 8, "shuffle": True, "seed": 1, "device": device, "cache": "device"}
    loader = fastload.DataLoader(datasets(folder)[1], **options)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [images for images, _ in iterator]
    again = fastload.DataLoader(datasets(folder)[1], **options)
    again.load_state_dict(state)
    assert torch.equal(torch.cat([images for images, _ in again]), torch.cat(rest))


def test_device_cache_set_on_a_dataset_is_used_by_the_loader(folder):
    dataset = fastload.FolderDataset(folder / "photos", transform=TRANSFORM, cache="device")
    loader = fastload.DataLoader(dataset, batch_size=8, device="cpu", num_workers=0)
    assert len(epochs(loader)[0]) == 60
    assert "pixels are on cpu" in loader.plan.cache.reason


def test_device_cache_with_a_collate_fn_is_refused(folder):
    options = {"batch_size": 8, "device": "cpu", "cache": "device"}
    for more, reason in (({"collate_fn": list}, "collate_fn"), ({"batch_size": None}, "batch_size=None")):
        loader = fastload.DataLoader(datasets(folder)[0], **{**options, **more})
        for _ in range(2):
            with pytest.raises(OptionError, match=reason):
                iter(loader)


def test_device_cache_without_a_device_names_the_parameter(folder):
    loader = fastload.DataLoader(datasets(folder)[0], cache="device")
    with pytest.raises(OptionError, match='set device="cuda" too'):
        iter(loader)


def test_cache_of_another_dataset_is_refused_and_auto_says_why():
    dataset = TensorDataset(torch.arange(8))
    with pytest.raises(OptionError, match="needs a known dataset of image files, got TensorDataset"):
        iter(fastload.DataLoader(dataset, cache="ram"))
    loader = fastload.DataLoader(dataset, cache="auto")
    list(loader)
    assert loader.plan.cache.reason.startswith("no cache: TensorDataset is not a known")


@pytest.mark.parametrize("cache", ["rams", 3, True])
def test_unknown_cache_is_refused_when_the_loader_is_made(cache):
    with pytest.raises(OptionError, match="cache must be None"):
        fastload.DataLoader(TensorDataset(torch.arange(8)), cache=cache)


def test_parts_of_several_datasets_are_all_cached(folder):
    parts = datasets(folder)
    loader = fastload.DataLoader(ConcatDataset(parts), batch_size=8, num_workers=0, cache="ram")
    list(loader)
    for part in parts:
        assert part.cached.ready == 1.0
        part.close_cache()


def test_model_slower_than_the_disk_needs_no_cache(folder):
    dataset = datasets(folder)[0]
    loader = fastload.DataLoader(dataset, batch_size=8, cache="auto")
    cost = SingleProcessCost(8, 1000, load_s=0.01, load_cpu_s=0.01, load_blocked_s=0.0, step_s=2.0)
    loader._cache.decide(dataset, cost)
    assert dataset.cached.kind is None
    assert "no cache" in loader.plan.cache.reason
