"""Trials: the user's own loader created again, and its files packed."""

import multiprocessing
import signal
import time
from dataclasses import replace

import pytest
from torch.utils.data import DataLoader, Subset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
from torchvision.datasets import ImageFolder

import fastload
from fastload.doctor.trials import Trials
from fastload.doctor.watching.dataset_files import files_of
from fastload.doctor.watching.record import LoaderSettings
from tests.doctor.situations import make_photos
from tests.doctor.train import Files, cropping_augment, torchvision_augment


@pytest.fixture
def dataset(tmp_path):
    return Files(make_photos(tmp_path / "photos", 12, 120, 160), "pil", cropping_augment, 12)


@pytest.fixture
def trials(dataset, tmp_path):
    def make(workers=0, loader_dataset=None, **options):
        loader = DataLoader(loader_dataset or dataset, 4, num_workers=workers, **options)
        (tmp_path / "work").mkdir()
        return Trials(LoaderSettings(loader), workers, tmp_path / "work", 1.0)

    return make


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_made_again_with_another_number_of_workers(trials, workers):
    [trial] = trials(1).with_workers(workers, is_cold=False)
    assert (trial.kind, trial.num_workers) == ("workers", workers)
    assert trial.samples_per_s > 0
    assert (trial.start_s > 0) == bool(workers)


@pytest.mark.parametrize(("prefetch_factor", "kinds"), [(1, ["same"]), (2, [])])
def test_batches_that_were_requested_at_first_are_not_measured(trials, prefetch_factor, kinds):
    made = trials(1, prefetch_factor=prefetch_factor)
    # Of three batches, one starts the worker, and as many more as are loaded in advance come from new memory.
    assert [trial.kind for trial in made.tried("same", passes=1)] == kinds


def test_files_are_decoded_and_packed_with_the_users_own_transform(trials):
    found = list(trials().from_files())
    assert [trial.kind for trial in found] == ["decoder", "pack"]
    assert found[1].encoding in ("raw", "tiled", "keep")
    assert found[1].stored_bytes > 0


def test_samples_with_other_images_are_not_compared(trials, dataset):
    class Twice(Files):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image, image, label

    dataset.__class__ = Twice
    assert list(trials().from_files()) == []


def test_a_dataset_that_fails_gives_no_trial(trials):
    class Broken(list):
        def __getitem__(self, index):
            raise KeyError(index)

    assert trials(0, Broken(range(12))).tried("same") == []


def test_a_worker_that_hangs_is_killed(trials):
    class Hanging(list):
        def __getitem__(self, index):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)

    assert trials(1, Hanging(range(12)), timeout=1).tried("same") == []
    for worker in multiprocessing.active_children():
        worker.join(10)
    assert not multiprocessing.active_children()


def test_an_interruption_while_workers_end_is_not_lost(trials):
    class Interrupted(_MultiProcessingDataLoaderIter):
        def _shutdown_workers(self):
            try:
                if not self._shutdown:
                    signal.raise_signal(signal.SIGINT)
            finally:
                super()._shutdown_workers()

    class Loader(DataLoader):
        def _get_iterator(self):
            return Interrupted(self)

    with pytest.raises(KeyboardInterrupt):
        trials(1).tried("same", kind=Loader)


def test_a_second_pass_over_the_same_samples_is_measured(trials):
    assert [trial.kind for trial in trials().cached()] == ["cache"]


@pytest.mark.parametrize(("workers", "kinds"), [(0, []), (1, ["loader"])])
def test_a_dataset_that_compiling_leaves_as_it_is_needs_workers_to_gain(trials, workers, kinds):
    assert [trial.kind for trial in trials(workers).one_line()] == kinds


def test_a_compiled_transform_is_tried_on_the_users_own_dataset(trials, dataset):
    dataset.transform = torchvision_augment()
    made = trials()
    assert [trial.kind for trial in made.one_line()] == ["compile"]
    # Its images are still loaded by the user's own code.
    assert [trial.kind for trial in made.from_files()] == ["decoder", "pack"]


def test_an_image_folder_is_compiled_rather_than_replaced(trials, tmp_path):
    make_photos(tmp_path / "classes" / "one", 8, 60, 80)
    images = ImageFolder(tmp_path / "classes", torchvision_augment())
    made = trials(0, Subset(images, range(8)))
    assert [trial.kind for trial in made.one_line()] == ["compile"]
    assert [trial.kind for trial in made.from_files()] == ["pack"]
    compiled = fastload.compile(images)
    assert len(files_of(compiled).paths) == 8


def test_what_is_compiled_already_is_not_tried_again(trials, dataset):
    dataset.transform = torchvision_augment()
    loader = fastload.DataLoader(dataset, 4, num_workers=1, compile=True)
    made = replace(trials(1), settings=LoaderSettings(loader))
    assert made.one_line() == []
    assert [trial.kind for trial in made.from_files()] == ["decoder", "pack"]
