"""timm's create_loader with fastload's class in the place of torch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.utils.data

import fastload
from tests.folders import class_folders
from tests.frameworks.batches import read, seed_all
from tests.loader.datasets import assert_same

pytestmark = pytest.mark.frameworks("timm")


class Loader(fastload.DataLoader):
    """The loader that gives torch's samples to the bit."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options, compile=False)


LOADERS = (torch.utils.data.DataLoader, Loader)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return class_folders(tmp_path_factory.mktemp("photos"), count=22)


# timm's dataset leaves closing the files to PIL, which does so when the image is converted, or dies.
@pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader:ResourceWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("use_prefetcher", [False, True])
@pytest.mark.parametrize("is_training", [False, True])
def test_created_loader_gives_torchs_batches(
    timm_data, photos, monkeypatch, workers, use_prefetcher, is_training
):
    results = []
    for kind in LOADERS:
        monkeypatch.setattr(torch.utils.data, "DataLoader", kind)
        seed_all(1)
        loader = timm_data.create_loader(
            timm_data.create_dataset("", root=str(photos)),
            input_size=(3, 32, 32),
            batch_size=4,
            is_training=is_training,
            re_prob=0.5 * is_training,
            num_workers=workers,
            use_prefetcher=use_prefetcher,
            device=torch.device("cpu"),
        )
        assert type(loader.loader if use_prefetcher else loader) is kind
        results.append([list(loader) for _ in range(2)])
    assert_same(*results)


@pytest.mark.soak
def test_loader_that_keeps_its_workers_gives_torchs_batches(timm_data, photos, run_programs, tmp_path):
    for kind in ("torch", "fastload"):
        run_programs(("timm_epochs", kind, photos, tmp_path / kind))
    torchs, ours = read(tmp_path / "torch"), read(tmp_path / "fastload")
    assert ours.pop("bases")[1] == "fastload.loader.dataloader"
    assert torchs.pop("bases")[1] == "torch.utils.data.dataloader"
    assert ours == torchs
