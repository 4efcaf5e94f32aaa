"""Trials of loaders on the user's own data: the same loader created again, with one change at a time."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, default_convert

from fastload.datasets.compiled.stand_in import StandIn
from fastload.datasets.folder import FolderDataset
from fastload.datasets.packed import PackedDataset
from fastload.datasets.within import image_datasets_in
from fastload.doctor.findings import LoaderTrial, StepTrial
from fastload.doctor.rerunning.runs import ScriptRuns
from fastload.doctor.watching.dataset_files import count_of, drop_pages, files_of, parts_of
from fastload.doctor.watching.machine import process_cpu_s
from fastload.doctor.watching.record import LoaderSettings
from fastload.doctor.watching.torch_calls import end_workers
from fastload.doctor.watching.workers import count_in
from fastload.loader.compiling import Compiling
from fastload.loader.dataloader import DataLoader as FastloadDataLoader
from fastload.packing.job import pack
from fastload.sources.protocol import evenly_spaced
from fastload.system.page_cache import can_drop
from fastload.system.signals import deferred_signals

MOST_TRIAL_S, LEAST_TRIAL_S = 1.0, 0.3
"""A trial takes a quarter of the time that the training was watched, within these bounds: with two workers
and batches of 100 ms, one second gives some twenty batches."""

# No trial begins later; other numbers of workers not after the half, so that time is left for larger gains.
_MOST_S, _TIMEOUT_S = 20.0, 30.0
# Fewer batches may be outliers; of more batches, no indices are drawn, but the first ones are repeated.
_LEAST_BATCHES, _MOST_BATCHES = 4, 256
# Packing so many photos of 110 kB takes 0.8 s on one core.
_MOST_FILES, _MOST_BYTES = 64, 16 << 20
WITHOUT_END = 100_000


@dataclass
class Trials:
    """Trials of one loader, whose training was watched for `watched_s`.

    None begins after 20 s, except that of fastload's loader, which gains most. Trials that fail, for whatever
    reason, are left out. With `encode`, the files are packed with this encoding, and the dataset is known to
    do nothing but decode. `has_counterpart` is False if FolderDataset would lack something of the dataset.
    With `runs`, the script can be run again, and the steps of its `loader`, a record's name, measured.
    """

    settings: LoaderSettings
    num_workers: int
    folder: Path
    watched_s: float
    encode: str = ""
    has_counterpart: bool = True
    runs: ScriptRuns | None = None
    loader: str = ""
    is_evaluation: bool = False

    def __post_init__(self) -> None:
        self.files = files_of(self.settings.dataset)
        self._trial_s = min(MOST_TRIAL_S, max(LEAST_TRIAL_S, self.watched_s / 4))
        self._began_at = time.perf_counter()
        self._batches = _batches_of(self.settings)

    @functools.cached_property
    def _compiled(self) -> object:
        return _compiled(self.settings.dataset)

    def tried(self, name: str, most_s: float = _MOST_S, **changes: Any) -> list[LoaderTrial]:
        """Measure the loader once, as it is or with changes; return nothing if it fails or the time is up."""
        if time.perf_counter() < self._began_at + most_s:
            with contextlib.suppress(Exception):
                trial, _ = self._measured(**changes)
                return [replace(trial, kind=name)] if trial.samples_per_s else []
        return []

    def run_again(
        self, kind: str, value: str = "", changes: Sequence[tuple[str, str]] = ()
    ) -> list[StepTrial]:
        """Run the script with changes of its step, if it can be run."""
        return [self.runs.run(kind, value, changes, self.loader, self.is_evaluation)] if self.runs else []

    def with_workers(self, number: int, is_cold: bool) -> list[LoaderTrial]:
        """Measure another number of workers; a cold trial reads from the disk, or is left out."""
        if is_cold:
            if len(self.files.paths) < count_of(self.settings.dataset) or not can_drop():
                return []
            drop_pages(self.files)
        return self.tried("workers", _MOST_S / 2, workers=number)

    def cached(self) -> list[LoaderTrial]:
        """Measure a second pass over samples that a first pass has just read."""
        batches = self._batches or []
        with contextlib.suppress(Exception):
            _, taken = self._measured(batches=batches, passes=1)
            return self.tried("cache", batches=batches[: max(1, taken)])
        return []

    def one_line(self) -> list[LoaderTrial]:
        """Measure fastload's loader: with the compiled dataset, if compiling changes it."""
        is_compiled = self.settings.is_fastload and self.settings.compile is not False
        if self._compiled is not self.settings.dataset and not is_compiled:
            return self.tried("compile", math.inf, dataset=self._compiled, kind=FastloadDataLoader)
        if self.num_workers and not self.settings.is_fastload:
            return self.tried("loader", math.inf, kind=FastloadDataLoader)
        return []

    def from_files(self) -> Iterator[LoaderTrial]:
        """Measure a sample of the image files with fastload's datasets, compiled: as they are, and packed."""
        parts = parts_of(self.settings.dataset)
        dataset: Any = next((part for part in parts if hasattr(part, "transform")), None)
        is_possible = self.files.are_images and self._batches and self.settings.batch_sampler is not None
        if not is_possible or dataset is None:
            return
        with contextlib.suppress(Exception):
            photos = link_files(self.files.paths, self.folder / "files")
            # A compiled transform takes only the images of its own dataset.
            transform = dataset.transform
            transform = transform.theirs if isinstance(transform, StandIn) else transform
            if self.has_counterpart and not any(map(image_datasets_in, parts_of(self._compiled))):
                yield from self._of_files("decoder", FolderDataset(photos, transform=transform))
            options: Any = {"encode": self.encode or "auto", "workers": 1, "on_error": "skip"}
            result = pack(photos, self.folder / "sample.fl", **options)
            packed = PackedDataset(self.folder / "sample.fl", transform=transform)
            stored_bytes = result.size_bytes / max(1, len(packed))
            for trial in self._of_files("pack", packed):
                yield replace(trial, encoding=result.encoding, stored_bytes=stored_bytes)

    def _of_files(self, kind: str, dataset: Any) -> list[LoaderTrial]:
        assert self._batches
        # If the samples have other images than the dataset's own, they cannot be compared.
        first = self.settings.dataset[self._batches[0][0]]
        if not self.encode and _images_in(dataset[0]) != _images_in(first):
            return []
        size = len(self._batches[0])
        indices = itertools.cycle(range(len(dataset)))
        batches = [list(itertools.islice(indices, size)) for _ in range(max(1, len(dataset)))]
        return self.tried(kind, dataset=_compiled(dataset), batches=batches, kind=FastloadDataLoader)

    def _measured(
        self,
        dataset: Dataset[object] | None = None,
        batches: Sequence[object] | None = None,
        workers: int | None = None,
        kind: type[DataLoader[object]] | None = None,
        passes: int = WITHOUT_END,
    ) -> tuple[LoaderTrial, int]:
        """Return the trial and the number of batches that it took."""
        dataset = self.settings.dataset if dataset is None else dataset
        batches = batches or self._batches
        workers = self.num_workers if workers is None else workers
        # Not endless, because a loader draws the indices of many batches in advance.
        repeated = None if batches is None else list(batches) * min(passes, -(-WITHOUT_END // len(batches)))
        with warnings.catch_warnings(), contextlib.ExitStack() as ending:
            warnings.simplefilter("ignore")
            began = time.perf_counter()
            with deferred_signals():  # until the workers can be ended
                iterator = iter(self._loader(dataset, repeated, workers, kind))
                ending.callback(end_workers, iterator)
            next(iterator)
            started_s = time.perf_counter() - began
            # The batches that were requested at first are made in new memory and while workers still start.
            requested = workers * (self.settings.options["prefetch_factor"] or 2)
            for _ in range(requested):
                next(iterator, None)
            pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
            at, cpu_s, taken = time.perf_counter(), _cpu_s(pids), 0
            for _ in iterator:
                taken += 1
                seconds = time.perf_counter() - at
                # The workers' batches come in rounds, so whole rounds are counted.
                if seconds >= self._trial_s and taken >= _LEAST_BATCHES and taken % max(1, workers) == 0:
                    break
            seconds, spent_s = time.perf_counter() - at, _cpu_s(pids) - cpu_s
        ended_s = time.perf_counter() - at - seconds
        samples = taken * (count_in(batches[0]) if batches else self.settings.batch_size or 1)
        batch_s = seconds / max(1, taken) * max(1, workers)
        start_s = max(0.0, started_s - batch_s) + ended_s if workers else 0.0
        sample_cpu_s = max(0.0, spent_s) / max(1, samples)
        return LoaderTrial("same", workers, samples / seconds, sample_cpu_s, start_s), taken + 1 + requested

    def _loader(
        self,
        dataset: Dataset[object],
        batches: list[object] | None,
        workers: int,
        kind: type[DataLoader[object]] | None,
    ) -> DataLoader[object]:
        options = self.settings.options
        arguments = {name: options[name] for name in ("collate_fn", "worker_init_fn", "pin_memory")}
        if arguments["collate_fn"] in (default_collate, default_convert):
            del arguments["collate_fn"]
        if workers:
            arguments["multiprocessing_context"] = options["multiprocessing_context"]
            arguments["prefetch_factor"] = options["prefetch_factor"]
            arguments["timeout"] = options["timeout"] or _TIMEOUT_S
        if batches is None:
            arguments |= {"batch_size": options["batch_size"], "drop_last": options["drop_last"]}
        elif self.settings.batch_sampler is None:
            arguments |= {"batch_size": None, "sampler": batches}
        else:
            arguments["batch_sampler"] = batches
        if kind is None and self.settings.is_fastload:
            kind, arguments["compile"] = FastloadDataLoader, self.settings.compile
        kind = kind or DataLoader
        return kind(dataset, num_workers=workers, **arguments)


def link_files(paths: Sequence[str], folder: Path) -> Path:
    """Create a folder of links to some of the files: 64 at most, and 16 MiB if these are more than 8."""
    folder.mkdir(parents=True)
    left_bytes = _MOST_BYTES
    for number, index in enumerate(evenly_spaced(len(paths), _MOST_FILES)):
        path = paths[index]
        left_bytes -= os.path.getsize(path)
        if left_bytes < 0 and number >= 8:
            break
        link = folder / f"{number:04d}{Path(path).suffix.lower() or '.jpg'}"
        link.symlink_to(os.path.abspath(path))
    return folder


def _batches_of(settings: LoaderSettings) -> Sequence[Any] | None:
    """Return the indices of the first batches of a new epoch, equal in size; None if they are unknown."""
    if isinstance(settings.dataset, IterableDataset):
        return None
    with contextlib.suppress(Exception):
        source: Any = settings.sampler if settings.batch_sampler is None else settings.batch_sampler
        found = list(itertools.islice(iter(source), _MOST_BATCHES))
        if settings.batch_sampler is not None:
            found = [list(batch) for batch in found if len(batch) == len(found[0])]
        return found or None
    return None


def _cpu_s(workers: Sequence[int]) -> float:
    return time.process_time() + process_cpu_s(*workers)


def _images_in(sample: object) -> list[tuple[object, ...]]:
    """Return the shapes and types of a sample's images."""
    if isinstance(sample, (torch.Tensor, np.ndarray)):
        return [(*sample.shape, str(sample.dtype))] if sample.ndim > 2 else []
    parts = list(sample.values()) if isinstance(sample, dict) else sample
    return [image for part in parts for image in _images_in(part)] if isinstance(parts, (list, tuple)) else []


def _compiled(dataset: object) -> object:
    """Return the counterpart from which fastload's loader would make samples, or the dataset itself."""
    return Compiling(dataset, None).source
