"""The comparison in a DataLoader: whole pipelines in worker processes, from files to batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.data

import fastload
import fastload.transforms as T
from fastload.bench.comparing import median_s, titled
from fastload.bench.measure import turns
from fastload.bench.operations import BY_KEY, MEAN, STD, Box, Sample, shorter_side
from fastload.bench.pictures import Picture
from fastload.bench.result import Comparison, Missing, Row
from fastload.bench.sides import first_line, load_side
from fastload.images.opencv import cv2

PIPELINES = ("training", "evaluation")
"""The operations that are done in a DataLoader too."""

TURN_S = 0.8
"""About what a turn lasts: many batches for each worker."""

_BATCH_SIZE = 32
_MOST_BATCHES = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """What all loaders share.

    Attributes:
        pictures: What they load, again and again.
        folder: Where the files lie.
        size: Of crops, in pixels.
        workers: Processes.
        runs: The turns of each.
        turn_s: About what a turn lasts.
    """

    pictures: Sequence[Picture]
    folder: Path
    size: int
    workers: int
    runs: int
    turn_s: float = TURN_S


def compare_loading(alone: Comparison, setting: Setting, step: Callable[[], None]) -> Comparison:
    """Has every way that did a pipeline on one core do it in a DataLoader.

    Args:
        alone: What one core did.
        setting: What all share.
        step: Called after each turn.
    """
    operation = BY_KEY[alone.key]
    expected = (median_s(alone, "PIL") or 0.01) / setting.workers  # seconds for an image
    batch_size = max(1, min(_BATCH_SIZE, round(setting.turn_s / 2 / setting.workers / expected)))
    batches = max(2, min(_MOST_BATCHES, round(setting.turn_s / expected / batch_size)))
    kept: list[Row] = []
    missing: list[Missing] = []
    works: list[Callable[[], float]] = []
    for row in _rows(alone):
        loader = _loader_of(row, alone.key, setting, batch_size)
        try:
            loader(1)
        except Exception as error:  # see compare_operation
            missing.append(Missing(row.library, row.call, first_line(error)))
            continue
        kept.append(row)
        works.append(lambda loader=loader: loader(batches))  # type: ignore[misc]
    seconds = turns(works, setting.runs, step)
    rows = (
        Row(row.library, row.call, taken, row.difference) for row, taken in zip(kept, seconds, strict=True)
    )
    title = titled(operation, setting.size)
    return Comparison(f"loader-{alone.key}", "Pipeline, DataLoader", title, tuple(rows), tuple(missing))


def _rows(alone: Comparison) -> Iterator[Row]:
    for row in alone.rows:
        if row.library == "fastload":
            yield Row(row.library, "FolderDataset, fastload.DataLoader", (), row.difference)
        else:
            yield row


def _loader_of(row: Row, key: str, setting: Setting, batch_size: int) -> Callable[[int], float]:
    """A function that loads so many batches and returns the seconds that an image took."""
    is_ours = row.library == "fastload"
    kind = fastload.DataLoader if is_ours else torch.utils.data.DataLoader

    def load(batches: int) -> float:
        dataset = _our_dataset(key, setting) if is_ours else _Samples(row, key, setting)
        order = _Repeats(len(setting.pictures), setting.workers * batch_size)
        loader: Any = kind(
            dataset,
            batch_size,
            sampler=order,
            num_workers=setting.workers,
            worker_init_fn=_begin_worker,
            persistent_workers=True,
        )
        for _ in loader:  # the start of the workers is not timed
            pass
        order.count = batches * batch_size
        began = time.perf_counter()
        for _ in loader:
            pass
        return (time.perf_counter() - began) / order.count

    return load


def _our_dataset(key: str, setting: Setting) -> Any:
    if key == "training":
        steps = [T.RandomResizedCrop(setting.size), T.RandomHorizontalFlip()]
    else:
        steps = [T.Resize(shorter_side(setting.size)), T.CenterCrop(setting.size)]
    end = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    return fastload.FolderDataset(setting.folder, transform=T.Compose([*steps, *end]))


class _Samples(torch.utils.data.Dataset[Any]):
    """Files, put through one library's pipeline; it finds that library anew in every process."""

    def __init__(self, row: Row, key: str, setting: Setting) -> None:
        self._named = row.library, row.call, key, setting.size
        self._files: list[tuple[str, Box]] = [(picture.path, picture.box) for picture in setting.pictures]
        self._work: Callable[[Sample], Any] | None = None

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Any:
        if self._work is None:
            self._work = _work_named(*self._named)
        path, box = self._files[index]
        result = self._work(Sample(Path(path).read_bytes(), box))
        return result.reshape(result.shape[-3:])  # kornia's are batches of one


def _work_named(library: str, call: str, key: str, size: int) -> Callable[[Sample], Any]:
    ways = load_side(library, size).ways
    return next(way.work for way in ways if (way.operation, way.call) == (key, call))


class _Repeats(torch.utils.data.Sampler[int]):
    """All indices again and again, `count` in all."""

    def __init__(self, length: int, count: int) -> None:
        self.length = length
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return (number % self.length for number in range(self.count))

    def __len__(self) -> int:
        return self.count


def _begin_worker(worker: int) -> None:
    cv2.setNumThreads(0)  # each worker is one core's worth; torch sees to its own threads
