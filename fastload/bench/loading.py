"""DataLoaders that load the same images in turns, after all workers have started and all files were read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.utils.data

from fastload.bench import operations
from fastload.bench.peers import PIL_STEPS, decode_by_pil
from fastload.images.opencv import cv2
from fastload.sources.file_source import FileSource
from fastload.system.cpus import usable_cpus
from fastload.system.memory import shared_memory

_Result = TypeVar("_Result")

OnProgress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""

IMAGE_SIDE = operations.IMAGE_SIDE
BATCH_SIZE = 32
TURN_S = 1.2
"""Duration of the slowest loader's turn: long enough that its start and end hardly count."""

_MOST_WORKERS = 8  # more show nothing new, and the workers of all loaders run at once
# torch's workers pass batches through shared memory: for each worker, two ready and one in the making.
_BATCHES_PER_WORKER = 3


class FilesByPil(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Files decoded and transformed by PIL, as torchvision's ImageFolder and transforms do.

    A sample is uint8, (3, 224, 224): a random crop, resized and perhaps flipped.
    """

    def __init__(self, files: FileSource) -> None:
        labels = np.asarray(files.values["label"]).tolist()
        self.samples = [(files.files.path(index), label) for index, label in enumerate(labels)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        image = decode_by_pil(Path(path).read_bytes())
        box = operations.draw_box((image.height, image.width), random.getrandbits(32))
        return torch.from_numpy(np.array(PIL_STEPS.augmented(image, box))).permute(2, 0, 1), label


class TimedLoader:
    """A DataLoader with running workers; `startup_s` is the time from their start to the first batch."""

    def __init__(self, dataset: Any, workers: int, kind: type[torch.utils.data.DataLoader[Any]]) -> None:
        self.order: list[int] = np.random.default_rng(0).permutation(len(dataset)).tolist()
        self._loader = kind(
            dataset,
            batch_size=BATCH_SIZE,
            sampler=self.order,
            num_workers=workers,
            persistent_workers=True,
            worker_init_fn=_use_one_thread,
        )
        start = time.perf_counter()
        batches = iter(self._loader)
        next(batches)
        self.startup_s = time.perf_counter() - start
        for _ in batches:  # so that all files are in memory
            pass

    def images_per_s(self) -> float:
        """Load the images of `order` without using them, and return the rate."""
        start = time.perf_counter()
        for _ in self._loader:
            pass
        return len(self.order) / (time.perf_counter() - start)


def _use_one_thread(worker: int) -> None:
    """Limit OpenCV to one thread in a worker, as torch does with its own threads."""
    cv2.setNumThreads(0)


def set_turns(loaders: Sequence[TimedLoader]) -> int:
    """Repeat the images of all loaders until the slowest one takes `TURN_S`; return their number."""
    slowest = min(loader.images_per_s() for loader in loaders)
    images = max(1, round(slowest * TURN_S / BATCH_SIZE)) * BATCH_SIZE
    for loader in loaders:
        loader.order[:] = (loader.order * -(-images // len(loader.order)))[:images]
    return images


def take_turns(
    turns: Sequence[Callable[[], _Result]], rounds: int, step: Callable[[], None] = lambda: None
) -> list[tuple[_Result, ...]]:
    """Call every function once in each round and return the results of each; `step` follows each call.

    Each round begins with another function, so that drift of the machine affects all of them alike.
    """
    results: list[list[_Result]] = [[] for _ in turns]
    for first in range(rounds):
        for offset in range(len(turns)):
            turn = (first + offset) % len(turns)
            results[turn].append(turns[turn]())
            step()
    return [tuple(values) for values in results]


def default_workers() -> int:
    """Return one worker per usable CPU, at most eight, and no more than shared memory has room for.

    Docker gives containers 64 MB of it; a worker that finds it full crashes with a bus error.
    """
    workers = min(usable_cpus(), _MOST_WORKERS)
    shared = shared_memory()
    if shared is None:  # not Linux: no such limit
        return workers
    batch_bytes = BATCH_SIZE * 3 * IMAGE_SIDE**2
    return max(1, min(workers, shared.free_bytes // (batch_bytes * _BATCHES_PER_WORKER)))
