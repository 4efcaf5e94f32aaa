"""Contracts between datasets and the loader, kept by the datasets of this library."""

import pytest
from torch.utils.data import ConcatDataset
from torchvision.datasets import ImageFolder

import fastload
from fastload import FolderDataset, PackedDataset, contracts
from fastload.ultralytics.patching import StackedImages

OF_BATCHES = [
    contracts.FillsBatches.fetch_into,
    contracts.FinishesBatches.finish,
    contracts.Prefetches.prefetch,
]
ALL = [*OF_BATCHES, contracts.AnnouncesBatches.read_ahead]


@pytest.mark.parametrize("method", ALL)
def test_packed_datasets_keep_all_contracts(packed, method):
    dataset = PackedDataset(packed("thumbnails", "raw"))
    assert contracts.implements(dataset, method)
    assert isinstance(dataset, contracts.DrawsFromEpochSeed)
    assert isinstance(dataset, contracts.LiesInShards)


@pytest.mark.parametrize("method", OF_BATCHES)
def test_folders_keep_the_contracts_of_batches(thumbnails, method):
    dataset = FolderDataset(thumbnails)
    assert contracts.implements(dataset, method)
    assert isinstance(dataset, contracts.DrawsFromEpochSeed)


@pytest.mark.parametrize("method", OF_BATCHES)
def test_compiled_datasets_fill_batches(thumbnails, method):
    compiled = fastload.compile(ImageFolder(str(thumbnails)))
    assert contracts.implements(compiled, method)
    whole = fastload.compile(ConcatDataset([compiled.theirs, compiled.theirs]))
    assert contracts.implements(whole, method)


def test_the_collate_function_for_yolov5_fills_batches():
    assert contracts.implements(StackedImages(list), contracts.CollatesInto.collate_into)


@pytest.mark.frameworks("ultralytics")
def test_the_collate_function_for_ultralytics_fills_batches():
    from fastload.ultralytics.deferred_samples import Batches

    assert contracts.implements(Batches(), contracts.CollatesInto.collate_into)


@pytest.mark.parametrize("method", [*ALL, contracts.CollatesInto.collate_into])
def test_lists_keep_no_contract(method):
    assert not contracts.implements([1, 2], method)
