"""YOLOv5's `utils.dataloaders` through `fastload run` and `patch()`: the same batches, fastload's loader."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.commands import run_python
from tests.frameworks.batches import read
from tests.frameworks.programs import ROOT

# A module with the names, arguments and results of YOLOv5's.
MODULE = """
import random
import cv2, numpy as np, torch
from torch.utils.data import DataLoader, Dataset, dataloader

def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)

class Repeated:
    def __init__(self, sampler):
        self.sampler = sampler
    def __iter__(self):
        while True:
            yield from iter(self.sampler)

class InfiniteDataLoader(dataloader.DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.iterator = super().__iter__()
    def __len__(self):
        return len(self.batch_sampler.sampler)
    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

class LoadImagesAndLabels(Dataset):
    def __init__(self, files):
        self.im_files = files
    def __len__(self):
        return len(self.im_files)
    def __getitem__(self, index):
        img = cv2.imread(self.im_files[index])
        if random.random() < 0.5:
            img = np.fliplr(img)
        labels = torch.zeros((index % 3, 6))
        labels[:, 1:] = torch.from_numpy(np.random.rand(index % 3, 5))
        img = np.ascontiguousarray(img.transpose((2, 0, 1))[::-1])
        return torch.from_numpy(img), labels, self.im_files[index], None
    @staticmethod
    def collate_fn(batch):
        images, labels, paths, shapes = zip(*batch)
        for number, each in enumerate(labels):
            each[:, 0] = number
        return torch.stack(images, 0), torch.cat(labels, 0), paths, shapes

def create_dataloader(files, batch_size, workers):
    dataset = LoadImagesAndLabels(files)
    generator = torch.Generator()
    generator.manual_seed(7)
    loader = InfiniteDataLoader(
        dataset, batch_size=batch_size, shuffle=True, num_workers=workers,
        collate_fn=LoadImagesAndLabels.collate_fn, worker_init_fn=seed_worker, generator=generator,
    )
    return loader, dataset
"""

SCRIPT = """
import glob, sys
sys.path.append({root!r})
from {module} import InfiniteDataLoader, create_dataloader
from tests.frameworks.batches import digests, seed_all, write
if {patches}:
    import fastload.ultralytics
    fastload.ultralytics.patch()
seed_all(0)
loader, _ = create_dataloader(sorted(glob.glob("*.png")), 4, 2)
result = dict(epochs=[digests(loader) for _ in range(2)])
result["bases"] = [base.__module__ for base in InfiniteDataLoader.__mro__]
result["collates"] = type(loader.collate_fn).__name__
write(sys.argv[1], result)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    tmp_path = tmp_path_factory.mktemp("yolov5")
    for name in ("utils", "yolov5/utils"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "dataloaders.py").write_text(MODULE)
    for number in range(10):
        image = np.random.default_rng(number).integers(0, 255, (32, 32, 3), np.uint8)
        assert cv2.imwrite(str(tmp_path / f"{number}.png"), image)
    # That of its repository, and that of the package on PyPI.
    modules = {"train": "utils.dataloaders", "patching": "yolov5.utils.dataloaders"}
    for name, module in modules.items():
        text = SCRIPT.format(root=str(ROOT), module=module, patches=name == "patching")
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def result_of(repository: Path, *command: str) -> dict:
    done = run_python(*command, repository / "result.json", cwd=repository)
    assert done.returncode == 0, done.stderr
    return read(repository / "result.json")


@pytest.fixture(scope="module")
def plain(repository) -> dict:
    return result_of(repository, "train.py")


@pytest.mark.parametrize(
    "command",
    [("-m", "fastload", "run", "python", "train.py"), ("patching.py",)],
    ids=["fastload run", "patch"],
)
def test_batches_are_yolov5s_by_fastloads_loader(repository, plain, command):
    ours = result_of(repository, *command)
    assert ours["epochs"] == plain["epochs"]
    assert "fastload.loader.dataloader" in ours["bases"]
    assert ours["collates"] == "StackedImages"
    assert "fastload.loader.dataloader" not in plain["bases"]
