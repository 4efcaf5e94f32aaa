"""Trials: the user's own loader created again, and its files packed."""

import signal

import pytest
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

import fastload.transforms as T
from fastload.doctor._dataset_files import files_of
from fastload.doctor._record import LoaderSettings
from fastload.doctor._trials import Trials, translated
from tests.doctor.situations import make_photos
from tests.doctor.train import Files, cropping_augment


@pytest.fixture
def dataset(tmp_path):
    return Files(make_photos(tmp_path / "photos", 12, 120, 160), "pil", cropping_augment, 12)


@pytest.fixture
def trials(dataset, tmp_path):
    def make(workers=0, loader_dataset=None, **options):
        loader = DataLoader(loader_dataset or dataset, 4, num_workers=workers, **options)
        (tmp_path / "work").mkdir()
        return Trials(LoaderSettings(loader), workers, files_of(loader.dataset), tmp_path / "work", 1.0)

    return make


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_made_again_with_another_number_of_workers(trials, workers):
    [trial] = trials(1).with_workers(workers, is_cold=False)
    assert (trial.kind, trial.num_workers) == ("workers", workers)
    assert trial.samples_per_s > 0
    assert (trial.start_s > 0) == bool(workers)


def test_files_are_decoded_and_packed_with_the_users_own_transform(trials):
    found = list(trials().from_files())
    assert [trial.kind for trial in found] == ["decoder", "pack"]
    assert found[1].detail in ("raw", "tiled", "keep")
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


def named_after_torchvision(name, **attributes):
    kind = type(name, (), {"__module__": "torchvision.transforms.transforms"})
    made = kind()
    made.__dict__.update(attributes)
    return made


def test_a_known_pipeline_of_torchvision_is_translated():
    steps = [named_after_torchvision("CenterCrop", size=32), named_after_torchvision("ToTensor")]
    ours = translated(named_after_torchvision("Compose", transforms=steps))
    assert [type(part) for part in ours.transforms] == [T.CenterCrop, T.ToTensor]
    assert translated(named_after_torchvision("Compose", transforms=[*steps, len])) is None
    assert translated(named_after_torchvision("Unheard")) is None
