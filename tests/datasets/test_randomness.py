"""Random draws are the same with any number of workers."""

import itertools
import multiprocessing
import pickle

import pytest
import torch
import torch.utils.data

import fastload
from fastload import PackedDataset
from tests.datasets.pipelines import PIPELINES, TINY_PIPELINES


def epochs(dataset, count=2, clone=True, **options):
    """Return the batches of some epochs."""
    loader = fastload.DataLoader(dataset, batch_size=5, **{"seed": 7, "shuffle": True, **options})
    return [[(images.clone(), labels.clone()) for images, labels in loader] for _ in range(count)]


def assert_same_epochs(one, other):
    for a, b in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def _stacked(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(labels)


class TestCountedRandomness:
    @pytest.mark.filterwarnings("ignore:This DataLoader will create 5 worker processes")
    @pytest.mark.parametrize("workers", [1, 2, 5])
    @pytest.mark.parametrize("is_persistent", [False, True])
    def test_batches_do_not_depend_on_the_number_of_workers(self, packed, workers, is_persistent):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"])
        assert_same_epochs(
            epochs(dataset), epochs(dataset, num_workers=workers, persistent_workers=is_persistent)
        )

    @pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.soak)])
    def test_batches_do_not_depend_on_the_start_method(self, packed, method):
        if method not in multiprocessing.get_all_start_methods():
            pytest.skip(f"{method} does not exist here")
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        assert_same_epochs(epochs(dataset), epochs(dataset, num_workers=2, multiprocessing_context=method))

    @pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}], ids=str)
    def test_epochs_without_a_seed_differ_and_follow_torchs_seed(self, packed, options):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        torch.manual_seed(0)
        first, second = epochs(dataset, shuffle=False, seed=None, **options)
        torch.manual_seed(0)
        assert_same_epochs([first, second], epochs(dataset, shuffle=False, seed=None, **options))
        assert not torch.equal(first[0][0], second[0][0])

    def test_epochs_differ_and_so_do_seeds(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        first, second = epochs(dataset, shuffle=False)
        other = epochs(dataset, 1, shuffle=False, seed=8)[0]
        assert not torch.equal(first[0][0], second[0][0])
        assert not torch.equal(first[0][0], other[0][0])

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("options", [{"seed": 7}, {"seed": None}], ids=str)
    def test_resumed_epoch_continues_with_the_same_batches(self, packed, workers, options):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"])

        def loader():
            return fastload.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers, **options)

        full, batches = loader(), []
        list(full)
        iterator = iter(full)
        for _ in range(2):
            next(iterator)
        state = pickle.loads(pickle.dumps(full.state_dict()))
        batches = [images.clone() for images, _ in iterator]
        resumed = loader()
        resumed.load_state_dict(state)
        for expected, (images, _) in zip(batches, resumed, strict=True):
            assert torch.equal(expected, images)

    def test_custom_collate_function_gets_the_same_images(self, packed):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"])
        own = epochs(dataset, num_workers=2, collate_fn=_stacked)
        assert_same_epochs(epochs(dataset), own)

    def test_subsets_draw_the_same_as_the_dataset(self, packed):
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        full = next(iter(fastload.DataLoader(dataset, batch_size=40, seed=3)))[0]
        part = fastload.DataLoader(torch.utils.data.Subset(dataset, [7, 30, 2]), batch_size=3, seed=3)
        assert torch.equal(next(iter(part))[0], full[[7, 30, 2]])
        joined = torch.utils.data.ConcatDataset([dataset])
        batch = next(iter(fastload.DataLoader(joined, batch_size=40, seed=3, num_workers=1)))
        assert torch.equal(batch[0], full)

    def test_single_samples_without_batching_draw_the_same(self, packed):
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        full = next(iter(fastload.DataLoader(dataset, batch_size=40, seed=3)))[0]
        single = [image for image, _ in fastload.DataLoader(dataset, batch_size=None, seed=3)]
        assert torch.equal(torch.stack(single), full)

    def test_draws_outside_the_loader_follow_torchs_generator(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        torch.manual_seed(1)
        first, second = dataset[3][0], dataset[3][0]
        torch.manual_seed(1)
        assert torch.equal(dataset[3][0], first)
        assert not torch.equal(first, second)

    def test_torchs_own_loader_gives_new_crops_in_every_epoch(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        loader = torch.utils.data.DataLoader(dataset, batch_size=24, num_workers=1, persistent_workers=True)
        first, second = (next(iter(loader))[0].clone() for _ in range(2))
        assert not torch.equal(first, second)
