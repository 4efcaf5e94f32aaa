"""Comparison in a DataLoader: pipelines in worker processes, from files to batches."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.utils.data

import fastload
import fastload.transforms as T
from fastload.bench._comparison import Contender, compare
from fastload.bench._operations import MEAN, STD, Sample, shorter_side
from fastload.bench._peers import load_peer
from fastload.bench.images import LoadedImage
from fastload.bench.results import REFERENCE, Comparison, Difference, Timing
from fastload.images.opencv import cv2

PIPELINES = ("training", "evaluation")
"""Operations that are measured in a DataLoader, too."""

TURN_S = 0.8
"""Approximate duration of a turn: many batches for each worker."""

SEED = 0
_BATCH_SIZE = 32
_MOST_BATCHES = 64


@dataclass(frozen=True, slots=True)
class LoaderSetup:
    """Conditions that all loaders share: files, crop size in pixels, worker processes, turns of each."""

    images: Sequence[LoadedImage]
    folder: Path
    size: int
    workers: int
    runs: int
    turn_s: float = TURN_S


class TimedLoader:
    """A DataLoader with running workers; `startup_s` is the time from their start to the first batch."""

    def __init__(
        self,
        dataset: Any,
        order: Sequence[int],
        batch_size: int,
        workers: int,
        loader_class: type[torch.utils.data.DataLoader[Any]],
    ) -> None:
        self._batch_size = batch_size
        self._order = _RepeatSampler(order)
        self._loader = loader_class(
            dataset,
            batch_size=batch_size,
            sampler=self._order,
            num_workers=workers,
            persistent_workers=True,
            worker_init_fn=_use_one_thread,
            generator=torch.Generator().manual_seed(SEED),
        )
        self._order.count = workers * batch_size
        start = time.perf_counter()
        batches = iter(self._loader)
        next(batches)
        self.startup_s = time.perf_counter() - start
        for _ in batches:
            pass

    def images_per_s(self, batches: int) -> float:
        """Load batches without using them and return the rate."""
        self._order.count = batches * self._batch_size
        start = time.perf_counter()
        for _ in self._loader:
            pass
        return self._order.count / (time.perf_counter() - start)


def compare_loading(on_one_core: Comparison, setup: LoaderSetup, step: Callable[[], None]) -> Comparison:
    """Time the calls of a pipeline in a DataLoader; `step` is called after each turn."""
    rates = [row.images_per_s for row in on_one_core.rows if row.library == REFERENCE]
    expected_s = 1 / max(rates, default=100.0) / setup.workers  # for an image
    # Batches are made so small that each worker gets two of them in a turn, also of large images.
    batch_size = max(1, min(_BATCH_SIZE, round(setup.turn_s / 2 / setup.workers / expected_s)))
    batches = max(2, min(_MOST_BATCHES, round(setup.turn_s / expected_s / batch_size)))

    def turn(row: Timing, batches: int) -> float:
        is_own, order = row.library == "fastload", range(len(setup.images))
        dataset = (_own_dataset if is_own else _PeerDataset)(row, on_one_core.key, setup)
        loader_class = fastload.DataLoader if is_own else torch.utils.data.DataLoader
        # Each turn has workers of its own: those of all sides at once would fill the memory.
        return 1 / TimedLoader(dataset, order, batch_size, setup.workers, loader_class).images_per_s(batches)

    def prepare(row: Timing) -> tuple[Callable[[], float], Difference | None]:
        turn(row, 1)
        return partial(turn, row, batches), row.difference

    candidates = (
        Contender(
            row.library,
            "FolderDataset, fastload.DataLoader" if row.library == "fastload" else row.call,
            partial(prepare, row),
        )
        for row in on_one_core.rows
    )
    key, group = f"loader-{on_one_core.key}", "Pipeline, DataLoader"
    return compare(key, group, on_one_core.title, candidates, setup.runs, step)


def _own_dataset(row: Timing, key: str, setup: LoaderSetup) -> fastload.FolderDataset:
    if key == "training":
        steps = [T.RandomResizedCrop(setup.size), T.RandomHorizontalFlip()]
    else:
        steps = [T.Resize(shorter_side(setup.size)), T.CenterCrop(setup.size)]
    end = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    return fastload.FolderDataset(setup.folder, transform=T.Compose([*steps, *end]))


class _PeerDataset(torch.utils.data.Dataset[Any]):
    """Files put through a peer's pipeline; each process imports the library itself."""

    def __init__(self, row: Timing, key: str, setup: LoaderSetup) -> None:
        self._library, self._call, self._key, self._size = row.library, row.call, key, setup.size
        self._files = [(image.path, image.box) for image in setup.images]
        self._run: Callable[[Sample], Any] | None = None

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Any:
        if self._run is None:
            self._run = dict(load_peer(self._library, self._size).calls_for(self._key))[self._call]
        path, box = self._files[index]
        result = self._run(Sample(Path(path).read_bytes(), box))
        return result.reshape(result.shape[-3:])  # kornia returns batches of one


class _RepeatSampler(torch.utils.data.Sampler[int]):
    """Indices in a fixed order again and again; each iteration goes on for `count` of them."""

    def __init__(self, order: Sequence[int]) -> None:
        self.count = 0
        self._order = itertools.cycle(order)

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self._order, self.count)

    def __len__(self) -> int:
        return self.count


def _use_one_thread(worker: int) -> None:
    """Limit OpenCV to one thread in a worker, as torch does with its own threads."""
    cv2.setNumThreads(0)
