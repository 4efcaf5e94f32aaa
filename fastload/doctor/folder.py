"""Examination of data without a training run: a folder of images, a table, a packed dataset."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from fastload.datasets.packed import PackedDataset
from fastload.doctor.examine import Examination, ExaminedLoader, try_changes
from fastload.doctor.findings import Diagnosis, Fix, TrainingMeasurements
from fastload.doctor.judging.evidence import CAUSES, fits_page_cache, rate_text
from fastload.doctor.judging.fixes import diagnose
from fastload.doctor.trials import WITHOUT_END, Trials
from fastload.doctor.watching.dataset_files import drop_pages, files_of, storage_of
from fastload.doctor.watching.machine import BusyWatch
from fastload.doctor.watching.watch import Enough, Watcher
from fastload.errors import SourceError
from fastload.images.blosc import find_blosc
from fastload.images.decode import decode
from fastload.images.jpegtran import find_jpegtran
from fastload.loader.report import LEAST_S
from fastload.packing.encoding.options import choose_encoding, estimate_stats
from fastload.shards.manifest import ShardEntry, is_packed, packed_splits
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder, is_url
from fastload.sources import open_source
from fastload.sources.file_source import ImageFileSource
from fastload.sources.left_out import describe_left_out
from fastload.sources.pixel_type import first_pixel_type
from fastload.sources.protocol import CLASS_FOLDERS, IMAGES_ALONE, Source, evenly_spaced
from fastload.system.signals import deferred_signals
from fastload.system.units import format_count, format_duration, format_size

# Samples are read for 1.5 s and the loader is watched for as long: thirty batches of 50 ms each.
_BATCH_S, _CHECKED_S, _WATCHED_S = 0.05, 1.5, 1.5
_MOST_SAMPLES, _LARGEST_BATCH = 4096, 256
# Like the parallel ranges in which a shard is fetched. At 10 Mbit/s, they take six seconds.
_RANGES, _RANGE_BYTES = 4, 2 << 20


class _Images(Dataset[object]):
    """Image files as most training scripts read them: with PIL, or with OpenCV if PIL is not installed."""

    transform = None

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> object:
        try:
            from PIL import Image
        except ImportError:
            return decode(Path(self.paths[index]).read_bytes())
        with Image.open(self.paths[index]) as image:
            return np.asarray(image.convert("RGB"))


def examine_data(path: Path | str, on_trials: Callable[[], None] = lambda: None) -> list[Examination]:
    """Measure loaders of a dataset, which may be packed at a URL, for some seconds per split.

    `on_trials` is called before changes are tried. Raises SourceError if there is no dataset.
    """
    with tempfile.TemporaryDirectory(prefix="fastload-doctor-") as root:
        folder = Path(root)
        if is_url(path):
            splits = [_watched_remote(str(path), folder / "remote")]
        elif packed := [Path(path)] if is_packed(path) else packed_splits(path):
            splits = [_watched(str(each), PackedDataset(each), folder / each.name) for each in packed]
        else:
            splits = _watched_sources(os.fspath(path), folder)
        # Where loading does not matter, nothing can be gained by a change.
        if slow := [split for split in splits if split.result().diagnosis.verdict != "little"]:
            on_trials()
            try_changes(slow)
        return [split.result() for split in splits]


def _watched_sources(path: str, folder: Path) -> list[ExaminedLoader]:
    """Watch a loader of each split; raise SourceError if its images have no files of their own."""
    sources = dict[str, ImageFileSource]()
    for split, source in open_source(path).items():
        if not isinstance(source, ImageFileSource):
            raise SourceError(
                f"{path}: must have a file for each image to be examined, got the layout {source.kind!r}: "
                f"pack it first ('fastload pack {path} DEST'), and examine the result"
            )
        sources[split] = source
    # Packing, too, chooses one encoding for all splits.
    stats = estimate_stats(sources.values(), None)
    encoding, reason = choose_encoding(
        replace(stats, pixel_type=first_pixel_type(sources.values())),
        is_resized=False,
        has_jpegtran=find_jpegtran() is not None,
        has_blosc=find_blosc() is not None,
        space_bytes=None,
    )
    splits = []
    for number, (split, source) in enumerate(sources.items()):
        paths = [source.files.path(index) for index in evenly_spaced(len(source), _MOST_SAMPLES)]
        name = f"{path}, {split}" if split else path
        notes = [
            f"'fastload pack --encode auto' chooses {encoding}: {reason}.",
            *source.warnings,
            *describe_left_out(entry for entry in source.left_out if not entry.is_clutter),
        ]
        splits.append(_watched(name, _Images(paths), folder / str(number), notes, source, encoding))
    return splits


def _watched_remote(url: str, folder: Path) -> ExaminedLoader:
    """Watch a loader of the first shard at a URL, from a copy, and measure how fast the server sends."""
    remote = RemoteFolder(url)
    reader = RecordReader(remote)
    manifest = reader.manifest
    shard = manifest.shards[0]
    began = time.perf_counter()
    sent_bytes = read_some(remote, shard)
    bytes_per_s = sent_bytes / (time.perf_counter() - began)
    reader.fetch(np.arange(shard.records))  # into the copies that the dataset reads, too
    rate = rate_text(bytes_per_s * manifest.records / manifest.size_bytes, "samples")
    note = (
        f"The server sends {format_size(bytes_per_s)}/s: the first epoch has at most {rate}. Later ones read "
        f"copies of the shards from the disk, if it has room for {format_size(manifest.size_bytes)}."
    )
    return _watched(str(remote), PackedDataset(remote), folder, [note], indices=range(shard.records))


def read_some(remote: RemoteFolder, shard: ShardEntry) -> int:
    """Read ranges of a shard in parallel, or its beginning if the server ignores ranges; return the bytes."""
    size = min(_RANGE_BYTES, shard.size_bytes // _RANGES)
    if remote.ignores_ranges(shard):
        with contextlib.closing(remote.parts(shard)) as parts:
            sent = accumulate(map(len, parts))
            return next(count for count in sent if count >= _RANGES * size)
    remote.read_ranges(shard, [(size * at, size * (at + 1)) for at in range(_RANGES)])
    return _RANGES * size


def _watched(
    name: str,
    dataset: Any,
    folder: Path,
    notes: Sequence[str] = (),
    source: Source | None = None,
    encode: str = "",
    indices: range | None = None,
) -> ExaminedLoader:
    """Watch a loader of a dataset, of some `indices` or all; the dataset may be a sample of a source."""
    busy, files, samples = BusyWatch(), files_of(dataset), len(dataset if source is None else source)
    store = storage_of(files, samples)
    readable, size, damage = _readable(dataset, range(len(dataset)) if indices is None else indices)
    if not readable:
        raise SourceError(f"{name}: at least one sample must be readable, got none of {samples}: {damage[0]}")
    machine = busy.state()
    is_warm = store is None or fits_page_cache(store, machine.available_bytes)
    workers = max(1, int(machine.usable_cpus))
    batches = [readable[begin : begin + size] for begin in range(0, len(readable), size)]
    if is_warm:
        # The samples were just read, as in the epochs after the first.
        batches *= -(-WITHOUT_END // len(batches))
    else:
        drop_pages(files)
    loader: DataLoader[object] = DataLoader(
        dataset, batch_sampler=batches, num_workers=workers, collate_fn=len, persistent_workers=True
    )
    folder.mkdir()
    watcher = Watcher(folder, seconds=_WATCHED_S)
    with watcher.watching(), contextlib.suppress(Enough):
        with deferred_signals():  # until the watcher can end the workers
            iterator = iter(loader)
        for _ in iterator:
            pass
    [record] = watcher.records
    measured = replace(
        record.measured(watcher.logs_of(record), busy.state()),
        batch_size=size,
        epoch_batches=-(-samples // size),
        was_cut=True,
        warmup_steps=0,
        store=store,
        folder=name if source is None else source.name,
    )
    # FolderDataset has labels, but no columns or annotations.
    has_counterpart = source is None or source.kind in (CLASS_FOLDERS, IMAGES_ALONE)
    trials = Trials(record.settings, workers, folder / "trials", _WATCHED_S, encode, has_counterpart)
    repairs: tuple[Fix, ...] = ()
    if damage:
        count = f"{len(damage)} of {len(readable) + len(damage)}"
        action = f"replace the damaged or missing samples: {count} cannot be read"
        repairs = (Fix("damage", action, f"training ends at the first: {damage[0]}"),)
    said = functools.partial(diagnose_data, samples=samples, is_warm=is_warm, notes=notes, repairs=repairs)
    return ExaminedLoader(name, measured, record, trials, said)


def _readable(dataset: Any, indices: range) -> tuple[list[int], int, list[str]]:
    """Read some samples for a second or so.

    Returns:
        Those that can be read, the size of a batch that takes 50 ms, and errors.
    """
    found, damage = list[int](), list[str]()
    names = dataset.paths if isinstance(dataset, _Images) else None
    ends_at, began = time.perf_counter() + _CHECKED_S, time.thread_time()
    for position in evenly_spaced(len(indices), _MOST_SAMPLES):
        index = indices[position]
        try:
            dataset[index]
            found.append(index)
        except Exception as error:  # decoders raise any
            damage.append(f"{names[index] if names else f'sample {index}'}: {error}")
        if time.perf_counter() > ends_at:
            break
    sample_s = (time.thread_time() - began) / max(1, len(found))
    return found, int(min(_LARGEST_BATCH, max(1, _BATCH_S / sample_s))), damage


def diagnose_data(
    measured: TrainingMeasurements,
    samples: int,
    is_warm: bool,
    notes: Sequence[str] = (),
    repairs: tuple[Fix, ...] = (),
) -> Diagnosis:
    """Return the bottleneck of loading a dataset of `samples` samples without training, and its fixes.

    `repairs` come first.
    """
    found = diagnose(measured)
    workers, rate = format_count(measured.num_workers, "worker"), found.loading_per_s
    all_s = samples / rate if rate else 0.0
    about = f"{measured.folder}: {format_count(samples, 'sample')}."
    if found.verdict == "little" or all_s < LEAST_S:
        took = f"{workers} load all of it in {format_duration(all_s)}"
        headline = f"There is too little data for loading to matter: {took}."
        return replace(found, verdict="little", headline=headline, evidence=(about, *notes), fixes=repairs)
    when = " after the first epoch" if is_warm else ""
    gives = rate_text(rate, measured.unit)
    headline = f"{CAUSES[found.verdict][0]}: a loader with {workers} gives {gives}{when}."
    # A training run would overlap with the workers; here there is none.
    fixes = (*repairs, *(fix for fix in found.fixes if fix.kind != "no workers"))
    return replace(found, headline=headline, evidence=(about, *found.evidence[1:], *notes), fixes=fixes)
