"""Race of torch's DataLoader against fastload's on the same images.

All sides do the same work: decode, RandomResizedCrop(224) with antialiasing, RandomHorizontalFlip, uint8
tensor, batch. They take turns. Before the first turn all workers run and all files have been read. A turn is
timed from the request of its first batch to the arrival of its last; all workers get equally many batches.
"""

from __future__ import annotations

import os
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.data
from PIL import Image

import fastload
from fastload.bench.comparison import take_turns
from fastload.bench.loading import RepeatSampler, use_one_thread
from fastload.bench.operations import draw_box
from fastload.sources.files import FileSource
from fastload.system.cpus import usable_cpus

IMAGE_SIDE = 224
BATCH_SIZE = 32
SEED = 0

_TURN_S = 1.2  # of the slowest side: so long that the turn's start and end hardly count
_MOST_WORKERS = 8  # more prove nothing further, and the workers of all sides live at once
# torch's workers pass batches through shared memory: two ready and one in the making for each.
_BATCHES_PER_WORKER = 3


class PilFolder(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Files decoded and transformed by PIL, as torchvision's ImageFolder and transforms do."""

    def __init__(self, files: FileSource) -> None:
        labels = np.asarray(files.values["label"]).tolist()
        self.samples = [(files.files.path(index), label) for index, label in enumerate(labels)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        top, left, height, width, is_flipped = draw_box((image.height, image.width), random.getrandbits(32))
        image = image.crop((left, top, left + width, top + height))
        image = image.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BILINEAR)
        if is_flipped:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), label


class Side:
    """A dataset with its loader and the images per second of each turn.

    `packed` is the packing that made the dataset; None for files.
    """

    def __init__(
        self,
        name: str,
        dataset: Any,
        size_bytes: int,
        loader: type[torch.utils.data.DataLoader[Any]] = fastload.DataLoader,
        packed: fastload.PackResult | None = None,
    ) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.packed = packed
        self.startup_s = 0.0
        self.images_per_s: tuple[float, ...] = ()
        self._dataset = dataset
        self._loader_class = loader
        self._sampler = RepeatSampler(np.random.default_rng(SEED).permutation(len(dataset)).tolist())
        self._loader: Any = None

    def start(self, workers: int) -> None:
        """Start the workers, which live on, and load a batch on each."""
        self._loader = self._loader_class(
            self._dataset,
            batch_size=BATCH_SIZE,
            sampler=self._sampler,
            num_workers=workers,
            persistent_workers=True,
            worker_init_fn=use_one_thread,
            generator=torch.Generator().manual_seed(SEED),
        )
        start = time.perf_counter()
        batches = self._batches(workers)
        next(batches)
        self.startup_s = time.perf_counter() - start
        for _ in batches:
            pass

    def load(self, batches: int) -> float:
        """Load batches without using them and return the images per second."""
        start = time.perf_counter()
        for _ in self._batches(batches):
            pass
        return batches * BATCH_SIZE / (time.perf_counter() - start)

    def to_json(self, first: Side) -> dict[str, Any]:
        """Return the results; the ratio is to the first side."""
        median = statistics.median(self.images_per_s)
        return {
            "name": self.name,
            "encoding": self.packed.encoding if self.packed else None,
            "size_bytes": self.size_bytes,
            "pack_s": self.packed.seconds if self.packed else None,
            "startup_s": self.startup_s,
            "loading": {
                "images_per_s": median,
                "turns_images_per_s": list(self.images_per_s),
                "ratio": median / statistics.median(first.images_per_s),
            },
        }

    def _batches(self, count: int) -> Iterator[Any]:
        self._sampler.count = count * BATCH_SIZE
        return iter(self._loader)


def race(sides: list[Side], workers: int, rounds: int, progress: Callable[[str, int, int], None]) -> int:
    """Measure all sides with so many worker processes each and return the images of a turn."""
    # Whoever asks for more workers than CPUs knows it; torch would repeat it for each side.
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    for number, side in enumerate(sides):
        progress(f"starting: {side.name}", number, len(sides))
        side.start(workers)
    slowest = min(side.load(workers) for side in sides)
    batches = max(1, round(slowest * _TURN_S / BATCH_SIZE / workers)) * workers
    done = 0

    def take_turn(side: Side) -> float:
        nonlocal done
        progress(f"loading: {side.name}", done, rounds * len(sides))
        done += 1
        return side.load(batches)

    turns = [lambda side=side: take_turn(side) for side in sides]
    for side, rates in zip(sides, take_turns(turns, rounds), strict=True):
        side.images_per_s = rates
    return batches * BATCH_SIZE


def default_workers() -> int:
    """Return one worker per usable CPU, at most eight, and no more than shared memory has room for.

    Docker gives containers 64 MB of it; a worker that finds none left dies of a bus error.
    """
    workers = min(usable_cpus(), _MOST_WORKERS)
    try:
        status = os.statvfs("/dev/shm")
    except OSError:  # not Linux: no such limit
        return workers
    batch_bytes = BATCH_SIZE * 3 * IMAGE_SIDE**2
    room = status.f_bavail * status.f_frsize // (batch_bytes * _BATCHES_PER_WORKER)
    return max(1, min(workers, room))
