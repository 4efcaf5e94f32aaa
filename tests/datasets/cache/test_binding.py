"""A stored record is read only under its own index and for its own dataset."""

import os

import pytest
import torch

import fastload
from fastload import Cache, PackedDataset
from fastload.datasets.cache.store import Store
from tests.folders import encoded, pixels


def packed(root, name, seed):
    for number in range(12):
        file = root / name / "class" / f"{number:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(pixels(seed + number), ".png"))
    fastload.pack(root / name, root / f"{name}.fl", encode="raw", workers=1)
    return root / f"{name}.fl"


def images_of(dataset):
    return torch.stack([dataset[index][0] for index in range(len(dataset))])


@pytest.fixture
def two(tmp_path):
    return packed(tmp_path, "one", 0), packed(tmp_path, "two", 100)


def test_store_of_another_dataset_is_not_opened(two, place):
    first, second = (PackedDataset(path, cache=Cache("tmpfs", place)) for path in two)
    own, other = (dataset._cache.store.opening for dataset in (first, second))
    assert own.area_offset == other.area_offset
    descriptor = os.dup(second._cache.store.descriptor)
    with pytest.raises(OSError, match="another dataset"):
        Store(descriptor, own)
    os.close(descriptor)
    first.close_cache()
    second.close_cache()


@pytest.mark.parametrize("kind", ["ram", "tmpfs"])
def test_swapped_records_are_read_from_the_disk(two, place, kind):
    dataset = PackedDataset(two[0], cache=Cache(kind, place))
    wanted = images_of(dataset)
    store = dataset._cache.store
    assert store.ready == 12
    entries, fixed = store._index[[1, 0]].copy(), store._writable_fixed[[1, 0]].copy()
    store._index[:2], store._writable_fixed[:2] = entries, fixed
    store._seen[:] = 0  # as in another process
    assert torch.equal(images_of(dataset), wanted)
    assert store.ready == 10
    dataset.close_cache()
