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
from fastload.bench.comparison import REFERENCE, median_s, take_turns
from fastload.bench.images import LoadedImage
from fastload.bench.operations import MEAN, STD, Sample, shorter_side
from fastload.bench.peers import first_line, load_peer
from fastload.bench.results import Comparison, Missing, Timing
from fastload.images.opencv import cv2

PIPELINES = ("training", "evaluation")
"""Operations that are measured in a DataLoader, too."""

TURN_S = 0.8
"""Approximate duration of a turn: many batches for each worker."""

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


def compare_loading(on_one_core: Comparison, setup: LoaderSetup, step: Callable[[], None]) -> Comparison:
    """Time the calls of a pipeline in a DataLoader; `step` is called after each turn."""
    # Batches are made so small that each worker gets two of them in a turn, also of large images.
    expected_s = (median_s(on_one_core, REFERENCE) or 0.01) / setup.workers  # for an image
    batch_size = max(1, min(_BATCH_SIZE, round(setup.turn_s / 2 / setup.workers / expected_s)))
    batches = max(2, min(_MOST_BATCHES, round(setup.turn_s / expected_s / batch_size)))
    measured: list[Timing] = []
    missing: list[Missing] = []
    turns: list[Callable[[], float]] = []
    for row in on_one_core.rows:
        is_own = row.library == "fastload"
        call = "FolderDataset, fastload.DataLoader" if is_own else row.call
        load = partial(_load, row, on_one_core.key, setup, batch_size)
        try:
            load(1)
        except Exception as error:  # as in compare_operation
            missing.append(Missing(row.library, call, first_line(error)))
            continue
        measured.append(Timing(row.library, call, (), row.difference))
        turns.append(partial(load, batches))
    seconds = take_turns(turns, setup.runs, step)
    rows = (Timing(m.library, m.call, s, m.difference) for m, s in zip(measured, seconds, strict=True))
    key = f"loader-{on_one_core.key}"
    return Comparison(key, "Pipeline, DataLoader", on_one_core.title, tuple(rows), tuple(missing))


def _load(row: Timing, key: str, setup: LoaderSetup, batch_size: int, batches: int) -> float:
    """Load batches with a loader of its own and return the seconds per image."""
    order = RepeatSampler(range(len(setup.images)), setup.workers * batch_size)
    is_own = row.library == "fastload"
    loader: Any = (fastload.DataLoader if is_own else torch.utils.data.DataLoader)(
        _own_dataset(key, setup) if is_own else _PeerDataset(row, key, setup),
        batch_size,
        sampler=order,
        num_workers=setup.workers,
        worker_init_fn=use_one_thread,
        persistent_workers=True,
    )
    for _ in loader:  # the start of the workers is not timed
        pass
    order.count = batches * batch_size
    start = time.perf_counter()
    for _ in loader:
        pass
    return (time.perf_counter() - start) / order.count


def _own_dataset(key: str, setup: LoaderSetup) -> fastload.FolderDataset:
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
            self._run = load_peer(self._library, self._size).calls[self._key][self._call]
        path, box = self._files[index]
        result = self._run(Sample(Path(path).read_bytes(), box))
        return result.reshape(result.shape[-3:])  # kornia returns batches of one


class RepeatSampler(torch.utils.data.Sampler[int]):
    """Indices in a fixed order again and again; each iteration goes on for `count` of them."""

    def __init__(self, order: Sequence[int], count: int = 0) -> None:
        self.count = count
        self._order = itertools.cycle(order)

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self._order, self.count)

    def __len__(self) -> int:
        return self.count


def use_one_thread(worker: int) -> None:
    """Limit OpenCV to one thread in a worker, as torch does with its own threads."""
    cv2.setNumThreads(0)
