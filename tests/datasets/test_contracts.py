"""Contracts between datasets and the loader, kept by the datasets of this library."""

import pytest
from torchvision.datasets import ImageFolder

import fastload
from fastload import FolderDataset, PackedDataset, contracts

OF_BATCHES = [
    contracts.FillsBatches,
    contracts.FinishesBatches,
    contracts.Prefetches,
    contracts.DrawsFromEpochSeed,
]
OF_SHARDS = [contracts.AnnouncesBatches, contracts.LiesInShards]


@pytest.mark.parametrize("contract", [*OF_BATCHES, *OF_SHARDS])
def test_packed_datasets_keep_all_contracts(packed, contract):
    assert isinstance(PackedDataset(packed("thumbnails", "raw")), contract)


@pytest.mark.parametrize("contract", OF_BATCHES)
def test_folders_keep_the_contracts_of_batches(thumbnails, contract):
    assert isinstance(FolderDataset(thumbnails), contract)


@pytest.mark.parametrize("contract", OF_BATCHES[:3])
def test_compiled_datasets_fill_batches(thumbnails, contract):
    assert isinstance(fastload.compile(ImageFolder(str(thumbnails))), contract)


def test_lists_keep_no_contract():
    assert not any(
        isinstance([1, 2], contract) for contract in (*OF_BATCHES, *OF_SHARDS, contracts.CollatesInto)
    )
