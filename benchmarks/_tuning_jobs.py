"""Training jobs of many kinds, with epochs of a second or two, to test the tuner with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from _photos import make_folder
from torch.utils.data import Dataset

import fastload
import fastload.transforms as T


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    Attributes:
        name: Its name in the table.
        dataset: Returns its dataset with a given number of samples.
        samples: Samples in an epoch.
        batch_size: Samples in a batch.
        step_s: Seconds of a training step.
    """

    name: str
    dataset: Callable[[int], Any]
    samples: int
    batch_size: int
    step_s: float = 0.0


class Pixels(Dataset[Any]):
    """Small images, augmented in Python one at a time, as in tutorials."""

    def __init__(self, length: int) -> None:
        self.images = np.random.default_rng(0).integers(0, 255, (256, 96, 96, 3), np.uint8)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        image = self.images[index % 256]
        for angle in (3, 5, 7):
            turn = cv2.getRotationMatrix2D((48, 48), angle + index % 5, 1.0)
            image = cv2.warpAffine(image, turn, (96, 96))
        histogram = [0] * 16
        for value in image[::4, ::4, 0].ravel().tolist():
            histogram[value // 16] += 1
        return torch.from_numpy(image), sum(histogram)


class Remote(Dataset[Any]):
    """Samples that come from a slow network."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.004)
        return torch.full((3, 32, 32), index % 256, dtype=torch.uint8)


def make_jobs(folder: Path, scale: float) -> list[Job]:
    """Return all jobs, with `scale` of their samples, after writing the data that they read to a folder."""
    photos = folder / "photos"
    make_folder(photos, max(8, int(1000 * scale)), classes=4)
    thumbs = folder / "thumbs"
    make_folder(thumbs, max(8, int(5000 * scale)), classes=4, size=(32, 32))
    crop = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    small = T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()])
    for encoding in ("keep", "jpeg", "yuv420"):
        fastload.pack(photos, folder / f"{encoding}.fl", encode=encoding)
    fastload.pack(thumbs, folder / "raw.fl", encode="raw")

    def packed(name: str, transform: Any) -> Callable[[int], Any]:
        def make(samples: int) -> Any:
            return _repeated(fastload.PackedDataset(folder / f"{name}.fl", transform=transform), samples)

        return make

    def files(samples: int) -> Any:
        return _repeated(fastload.FolderDataset(photos, transform=crop), samples)

    def sized(samples: int) -> int:
        return max(8, int(samples * scale))

    return [
        Job("tiny raw images", packed("raw", small), sized(300_000), 512),
        Job("photos as files", files, sized(2500), 64),
        Job("photos, keep", packed("keep", crop), sized(2500), 64),
        Job("photos, jpeg", packed("jpeg", crop), sized(4000), 64),
        Job("photos, yuv420", packed("yuv420", crop), sized(10_000), 64),
        Job("Python transforms", Pixels, sized(4000), 32),
        Job("waiting for a network", Remote, sized(2500), 16),
        Job("a slow step", packed("jpeg", crop), sized(2500), 64, step_s=0.08 * min(1.0, scale)),
        Job("a tiny dataset", packed("raw", small), sized(500), 50),
    ]


def _repeated(dataset: Any, samples: int) -> Any:
    """Repeat the samples of a dataset up to a given number."""
    return torch.utils.data.Subset(dataset, [index % len(dataset) for index in range(samples)])


def epoch_s(job: Job, loader: Any) -> float:
    """Return the seconds that an epoch takes."""
    begun = time.perf_counter()
    for _ in loader:
        if job.step_s:
            time.sleep(job.step_s)
    return time.perf_counter() - begun


def loader_of(job: Job, **options: Any) -> Any:
    """Return a loader of a job's dataset, shuffled."""
    return fastload.DataLoader(job.dataset(job.samples), job.batch_size, shuffle=True, **options)
