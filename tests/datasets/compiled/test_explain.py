"""Descriptions of compiled datasets: what is true of these images, and in this process."""

import json
import threading
from pathlib import Path

import pytest
from torch.utils.data import ConcatDataset, Dataset

import fastload
from fastload import DataLoader
from fastload.datasets.compiled import explain
from tests.datasets.compiled.pipelines import PIPELINES
from tests.datasets.compiled.test_compile import _cifar

ROOT = Path(__file__).parents[3]
TRAIN = PIPELINES["train"][0]


@pytest.fixture
def folder(photos):
    from torchvision.datasets import ImageFolder

    return lambda name="train": ImageFolder(str(photos), transform=PIPELINES[name][0] if name else None)


class Reading(Dataset):
    """A dataset whose own code reads another one, and transforms its images."""

    def __init__(self, base):
        self.base, self.augment = base, TRAIN

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        image, label = self.base[index]
        return self.augment(image), label


@pytest.fixture
def another_thread():
    """A thread like the monitors of progress bars and notebooks."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


def steps_of(text):
    return {line.split()[0]: line for line in text.splitlines()}


def test_only_what_is_encoded_is_decoded(folder, packed):
    files = steps_of(fastload.explain(folder()))
    assert "while decoding" in files["RandomResizedCrop"]
    assert "once for a batch" in files["ToTensor"]
    shards = steps_of(fastload.explain(fastload.PackedDataset(packed("photos", "raw"), transform=TRAIN)))
    assert "while reading" in shards["RandomResizedCrop"]
    arrays = steps_of(fastload.explain(_cifar(TRAIN, 8)))
    assert {line.split("  ")[-2].strip() for name, line in arrays.items() if name != "CIFAR10"} == {
        "once for a batch"
    }


def test_code_that_gets_single_images_does_nothing_once_for_a_batch(folder):
    text = fastload.explain(Reading(folder(None)))
    assert "while decoding" in steps_of(text)["RandomResizedCrop"]
    assert "once for a batch" not in text


def test_it_describes_what_the_loader_does_by_default(folder):
    lines = steps_of(fastload.explain(folder("bicubic")))
    assert "with PIL's own filter" in lines["Resize"]
    assert "with PIL's own filter" not in fastload.compile(folder("bicubic")).explain()


def test_code_of_the_users_is_left_where_other_threads_run(folder, another_thread):
    dataset = Reading(folder(None))
    note = "in workers only, as other threads of this process may use them: threading.Thread"
    assert f"\n  {note}\n  augment:\n" in fastload.explain(dataset)
    plans = [DataLoader(dataset, num_workers=workers).plan.compiled for workers in (0, 2)]
    assert [plan.value for plan in plans] == [False, True]
    assert note in plans[0].reason
    assert note not in plans[1].reason
    both = DataLoader(ConcatDataset([dataset, folder()]), num_workers=0).plan.compiled
    assert both.value
    assert both.reason.startswith("RandomResizedCrop, RandomHorizontalFlip")
    assert note not in fastload.explain(folder())


def test_code_of_the_users_is_active_without_other_threads(folder):
    assert threading.active_count() == 1
    assert DataLoader(Reading(folder(None)), num_workers=0).plan.compiled.value


@pytest.mark.parametrize("is_installed", [True, False])
def test_it_says_what_turbojpeg_would_gain(folder, is_installed, monkeypatch):
    monkeypatch.setattr(explain, "find_turbojpeg", lambda: object() if is_installed else None)
    dataset = ConcatDataset([folder(), folder()])
    texts = fastload.explain(dataset), fastload.compile(dataset).explain(), str(DataLoader(dataset).plan)
    assert [text.count("TurboJPEG is not installed") for text in texts] == [0 if is_installed else 1] * 3
    for other in (_cifar(TRAIN, 8), folder("nothing but a tensor")):
        assert "TurboJPEG" not in fastload.explain(other)


def test_turbojpegs_gain_is_the_measured_one():
    results = json.loads((ROOT / "benchmarks" / "results" / "load.json").read_text())
    seconds = {row["row"]: row["median_s"] for row in results["rows"] if row["table"] == "Photos"}
    gain = seconds["fastload, FolderDataset"] / seconds["fastload, FolderDataset, with TurboJPEG"]
    assert f"about {gain:.1f} times as fast" in explain._TURBOJPEG
