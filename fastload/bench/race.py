"""Race of torch's DataLoader against fastload's on the same images.

All sides do the same work: decode, RandomResizedCrop(224) with antialiasing, RandomHorizontalFlip, uint8
tensor, batch. They take turns. Before the first turn all workers run and all files have been read. A turn is
timed from the request of its first batch to the arrival of its last; all workers get equally many batches.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data
from PIL import Image

import fastload
from fastload.bench._comparison import take_turns
from fastload.bench._operations import draw_box
from fastload.bench.loading import SEED, TimedLoader
from fastload.sources.files import FileSource
from fastload.system.cpus import usable_cpus

IMAGE_SIDE = 224
BATCH_SIZE = 32

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


class Side(NamedTuple):
    """A dataset with its loader; `packed` is the packing that made the dataset, None for files."""

    name: str
    dataset: Any
    size_bytes: int
    loader_class: type[torch.utils.data.DataLoader[Any]] = fastload.DataLoader
    packed: fastload.PackResult | None = None


def race(
    sides: Sequence[Side], workers: int, rounds: int, progress: Callable[[str, int, int], None]
) -> tuple[int, list[dict[str, Any]]]:
    """Measure all sides with `workers` processes each; return the images of a turn, and results as JSON."""
    # A user who asks for more workers than CPUs knows it; torch would repeat the warning for each side.
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    loaders: list[TimedLoader] = []
    for side in sides:
        progress(f"starting: {side.name}", len(loaders), len(sides))
        order = np.random.default_rng(SEED).permutation(len(side.dataset)).tolist()
        loaders.append(TimedLoader(side.dataset, order, BATCH_SIZE, workers, side.loader_class))
    slowest = min(loader.images_per_s(workers) for loader in loaders)
    batches = max(1, round(slowest * _TURN_S / BATCH_SIZE / workers)) * workers
    turns = [partial(loader.images_per_s, batches) for loader in loaders]
    done = itertools.count(1)
    rates = take_turns(turns, rounds, lambda: progress("loading", next(done), rounds * len(sides)))
    medians = [statistics.median(values) for values in rates]
    results = [
        {
            "name": side.name,
            "encoding": side.packed.encoding if side.packed else None,
            "size_bytes": side.size_bytes,
            "pack_s": side.packed.seconds if side.packed else None,
            "startup_s": loader.startup_s,
            "loading": {
                "images_per_s": median,
                "turns_images_per_s": list(values),
                "ratio": median / medians[0],  # to torch's DataLoader
            },
        }
        for side, loader, values, median in zip(sides, loaders, rates, medians, strict=True)
    ]
    return batches * BATCH_SIZE, results


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
