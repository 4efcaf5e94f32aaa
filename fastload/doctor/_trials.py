"""Trials of loaders on the user's own data: the same loader made again, with one change at a time."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate
from torch.utils.data._utils.collate import default_convert

import fastload.transforms
from fastload.datasets.folder import FolderDataset
from fastload.datasets.packed import PackedDataset
from fastload.doctor._dataset_files import DataFiles, count_of, parts_of
from fastload.doctor._machine import process_cpu_s
from fastload.doctor._record import LoaderSettings
from fastload.doctor._workers import count_in
from fastload.doctor.findings import LoaderTrial
from fastload.loader.dataloader import DataLoader as FastloadDataLoader
from fastload.packing.job import pack

MOST_TRIAL_S, LEAST_TRIAL_S = 1.0, 0.3
"""Seconds of one trial, a quarter of the training that was watched: with two workers and batches of 100 ms,
one second gives some twenty batches."""

_LEAST_BATCHES = 4
_MOST_BATCHES = 256
_MOST_FILES = 64
_MOST_BYTES = 128 << 20
_TIMEOUT_S = 30.0
# A loader asks for the indices of many batches ahead, but not without limit.
_WITHOUT_END = 1_000_000


class Trials:
    """Trials of one loader, whose training was watched for `watched_s`; none begins after `most_s`."""

    def __init__(
        self,
        view: LoaderSettings,
        num_workers: int,
        files: DataFiles,
        folder: Path,
        watched_s: float,
        most_s: float = 20.0,
    ) -> None:
        self._view = view
        self._workers = num_workers
        self._files = files
        self._folder = folder
        self._trial_s = min(MOST_TRIAL_S, max(LEAST_TRIAL_S, watched_s / 4))
        self._ends_at = time.perf_counter() + most_s
        self._batches = _batches_of(view)

    def same(self) -> list[LoaderTrial]:
        """Measure the loader as it is."""
        return self._tried("same", self._workers)

    def with_workers(self, number: int, is_cold: bool) -> list[LoaderTrial]:
        """Measure it with another number of workers; cold: from the disk, or not at all."""
        return [] if is_cold and not self._drop_pages() else self._tried("workers", number)

    def with_fast_loader(self) -> list[LoaderTrial]:
        """Measure fastload's loader with the same arguments."""
        return self._tried("loader", self._workers, kind=FastloadDataLoader)

    def cached(self) -> list[LoaderTrial]:
        """Measure a second pass over samples that a first pass has just read."""
        with contextlib.suppress(Exception):
            _, taken = self._measured(self._view.dataset, self._batches, self._workers, None, passes=1)
            return self._tried("cache", self._workers, batches=(self._batches or [])[: max(1, taken)])
        return []

    def from_files(self) -> Iterator[LoaderTrial]:
        """Measure a sample of the image files: decoded by OpenCV, with fastload's transforms, and packed."""
        dataset = next((part for part in parts_of(self._view.dataset) if hasattr(part, "transform")), None)
        is_possible = self._files.are_images and self._batches and self._view.batch_sampler is not None
        if not is_possible or dataset is None:
            return
        with contextlib.suppress(Exception):
            photos = link_files(self._files.paths, self._folder / "files", _MOST_FILES, _MOST_BYTES // 8)
            transform = dataset.transform
            ours = translated(transform)
            if not isinstance(dataset, (FolderDataset, PackedDataset)):
                yield from self._of_files("decoder", FolderDataset(photos, transform=transform))
            if ours is not None:
                for trial in self._of_files("transforms", FolderDataset(photos, transform=ours)):
                    yield replace(trial, detail=repr(ours))
            result = pack(photos, self._folder / "sample.fl", workers=1, on_error="skip")
            packed = PackedDataset(self._folder / "sample.fl", transform=transform if ours is None else ours)
            detail = result.encoding if ours is None else f"{result.encoding} {ours!r}"
            for trial in self._of_files("pack", packed):
                yield replace(trial, detail=detail, stored_bytes=result.size_bytes / max(1, len(packed)))

    def _of_files(self, kind: str, dataset: Any) -> list[LoaderTrial]:
        assert self._batches
        # A dataset that makes something else of a file cannot be compared.
        if _images_in(dataset[0]) != _images_in(self._view.dataset[self._batches[0][0]]):
            return []
        size = len(self._batches[0])
        indices = itertools.cycle(range(len(dataset)))
        batches = [list(itertools.islice(indices, size)) for _ in range(max(1, len(dataset)))]
        return self._tried(kind, self._workers, dataset=dataset, batches=batches)

    def _drop_pages(self) -> bool:
        """Drop the files from the page cache; False where not all of them are known, or it cannot be done."""
        if len(self._files.paths) < count_of(self._view.dataset) or not hasattr(os, "posix_fadvise"):
            return False
        for path in dict.fromkeys(self._files.paths):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return True

    def _tried(
        self,
        name: str,
        workers: int,
        *,
        dataset: Any = None,
        batches: Sequence[Any] | None = None,
        kind: type[Any] | None = None,
    ) -> list[LoaderTrial]:
        """Measure once; none where it fails, whatever the reason, or the time is up."""
        if time.perf_counter() < self._ends_at:
            dataset = self._view.dataset if dataset is None else dataset
            with contextlib.suppress(Exception):
                trial, _ = self._measured(dataset, batches or self._batches, workers, kind)
                return [replace(trial, kind=name)] if trial.samples_per_s else []
        return []

    def _measured(
        self,
        dataset: Any,
        batches: Sequence[Any] | None,
        workers: int,
        kind: type[Any] | None,
        passes: int = _WITHOUT_END,
    ) -> tuple[LoaderTrial, int]:
        """Return the trial and the number of batches that it took."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = None if batches is None else _Cycled(batches, passes)
            began = time.perf_counter()
            iterator: Any = iter(self._made(dataset, source, workers, kind))
            next(iterator)
            started_s = time.perf_counter() - began
            for _ in range(workers):
                next(iterator, None)
            pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
            at, cpu_s, taken = time.perf_counter(), _cpu_s(pids), 0
            for _ in iterator:
                taken += 1
                seconds = time.perf_counter() - at
                # Workers finish together: whole rounds of them are counted.
                if seconds >= self._trial_s and taken >= _LEAST_BATCHES and taken % max(1, workers) == 0:
                    break
            seconds, spent_s = time.perf_counter() - at, _cpu_s(pids) - cpu_s
            ending = time.perf_counter()
            del iterator
            ended_s = time.perf_counter() - ending
        samples = taken * (count_in(batches[0]) if batches else self._view.batch_size or 1)
        own_s = seconds / max(1, taken) * max(1, workers)
        start_s = max(0.0, started_s - own_s) + ended_s if workers else 0.0
        sample_cpu_s = max(0.0, spent_s) / max(1, samples)
        return LoaderTrial("same", workers, samples / seconds, sample_cpu_s, start_s), taken + 1 + workers

    def _made(self, dataset: Any, source: _Cycled | None, workers: int, kind: type[Any] | None) -> Any:
        options = self._view.options
        arguments = {name: options[name] for name in ("collate_fn", "worker_init_fn", "pin_memory")}
        if arguments["collate_fn"] in (default_collate, default_convert):
            del arguments["collate_fn"]
        if workers:
            arguments["multiprocessing_context"] = options["multiprocessing_context"]
            arguments["prefetch_factor"] = options["prefetch_factor"]
            arguments["timeout"] = options["timeout"] or _TIMEOUT_S
        if source is None:
            arguments |= {"batch_size": options["batch_size"], "drop_last": options["drop_last"]}
        elif self._view.batch_sampler is None:
            arguments |= {"batch_size": None, "sampler": source}
        else:
            arguments["batch_sampler"] = source
        kind = kind or (FastloadDataLoader if self._view.is_fastload else DataLoader)
        return kind(dataset, num_workers=workers, **arguments)


class _Cycled:
    """A sampler that gives the same batches of indices `passes` times."""

    def __init__(self, batches: Sequence[Any], passes: int) -> None:
        self._batches = batches
        self._passes = passes

    def __iter__(self) -> Iterator[Any]:
        most = min(_WITHOUT_END, self._passes * len(self._batches))
        return itertools.islice(itertools.cycle(self._batches), most)


def link_files(paths: Sequence[str], folder: Path, most: int, most_bytes: int) -> Path:
    """Make a folder of links to some of the files: at least 8, at most so many or so many bytes."""
    folder.mkdir()
    for number, path in enumerate(paths[:: max(1, len(paths) // most)][:most]):
        most_bytes -= os.path.getsize(path)
        if most_bytes < 0 and number >= 8:
            break
        link = folder / f"{number:04d}{Path(path).suffix.lower() or '.jpg'}"
        link.symlink_to(os.path.abspath(path))
    return folder


def _batches_of(view: LoaderSettings) -> list[Any] | None:
    """Return the indices of the first batches of a new epoch, equal in size; None for an iterable dataset."""
    if isinstance(view.dataset, IterableDataset):
        return None
    with contextlib.suppress(Exception):
        source: Any = view.sampler if view.batch_sampler is None else view.batch_sampler
        found = list(itertools.islice(iter(source), _MOST_BATCHES))
        if view.batch_sampler is not None:
            found = [list(batch) for batch in found if len(batch) == len(found[0])]
        return found or None
    return None


def _cpu_s(workers: Sequence[int]) -> float:
    return time.process_time() + sum(map(process_cpu_s, workers))


def _images_in(sample: Any) -> list[tuple[Any, ...]]:
    """Return the shapes and types of a sample's images."""
    if isinstance(sample, (torch.Tensor, np.ndarray)):
        return [(*sample.shape, str(sample.dtype))] if sample.ndim > 2 else []
    parts = list(sample.values()) if isinstance(sample, dict) else sample
    return [image for part in parts for image in _images_in(part)] if isinstance(parts, (list, tuple)) else []


def translated(transform: Any) -> Any:
    """Return fastload's transforms for a pipeline of torchvision's; None where one of them is not known."""
    if isinstance(getattr(transform, "transforms", None), (list, tuple)):
        parts = [translated(part) for part in transform.transforms]
        return None if not parts or None in parts else fastload.transforms.Compose(parts)
    if not type(transform).__module__.startswith("torchvision.transforms"):
        return None
    ours: Callable[..., Any] | None = getattr(fastload.transforms, type(transform).__name__, None)
    if ours is None:
        return None
    arguments = {}
    for name in inspect.signature(ours).parameters:
        if hasattr(transform, name):
            value = getattr(transform, name)
            arguments[name] = getattr(value, "value", value)  # An InterpolationMode stands for its name.
    with contextlib.suppress(Exception):
        return ours(**arguments)
    return None
