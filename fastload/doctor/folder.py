"""Examining data that nobody trains on yet: a folder of images, a table, a packed dataset."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastload.datasets.packed import PackedDataset
from fastload.doctor._dataset_files import DataFiles, encoding_of, measure_store
from fastload.doctor._evidence import fits_page_cache, limits_of
from fastload.doctor._fixes import LEAST_GAIN, MOST_OF_MEMORY
from fastload.doctor._judge import LEAST_S
from fastload.doctor._machine import BusyWatch
from fastload.doctor._trials import link_files
from fastload.doctor._workspace import workspace
from fastload.doctor.findings import (
    DataStorage,
    Diagnosis,
    Fix,
    Forecast,
    MachineState,
    TrainingMeasurements,
    Verdict,
)
from fastload.errors import FastloadError, SourceError
from fastload.images.decode import decode
from fastload.images.jpegtran import find_jpegtran
from fastload.images.opencv import cv2
from fastload.packing.choose import choose_encoding, estimate_stats
from fastload.packing.job import pack
from fastload.shards.manifest import is_packed
from fastload.sources import Source, open_source
from fastload.sources.files import FileSource
from fastload.sources.left_out import describe_left_out
from fastload.sources.protocol import evenly_spaced
from fastload.system.units import format_count, format_duration, format_size

Step = Callable[[str, int, int], None]
"""Called with the name of a step, its number, and the number of all steps."""

_STEPS = 4
_MOST_FILES = 4096
_SAMPLES = 48
_MOST_BYTES = 32 << 20
_PACKED_SAMPLES = 96
_TURNS = 3

# No clock can measure a shorter time for a sample.
_LEAST_S = 1e-7


@dataclass(frozen=True, slots=True)
class DataMeasurements:
    """Measurements of a dataset that nobody trains on yet.

    `way` is the decoder of the dataset as it is (`PIL`, `OpenCV`, or the encoding of a packed dataset) and
    `decoding` holds the CPU seconds of a sample with each one that was tried. `encoding` is the choice of
    `fastload pack --encode auto`; "" for a packed dataset.
    """

    name: str
    samples: int
    classes: int
    way: str
    sample_s: float
    machine: MachineState
    store: DataStorage | None = None
    decoding: dict[str, float] = field(default_factory=dict)
    encoding: str = ""
    encoding_reason: str = ""
    stored_bytes: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def is_warm(self) -> bool:
        """True if every epoch after the first reads from memory."""
        return self.store is None or fits_page_cache(self.store, self.machine.available_bytes)

    def rate(self, workers: int, sample_s: float | None = None, is_warm: bool | None = None) -> float:
        """Return the samples a second that so many workers make, in the epochs after the first."""
        taken_s = self.sample_s if sample_s is None else sample_s
        made = min(workers, self.machine.usable_cpus) / taken_s
        store = self.store
        if store is None or store.random_per_s <= 0 or (self.is_warm if is_warm is None else is_warm):
            return made
        # Each worker waits for its own file; all together get no more than the disk gives.
        one_s = 1 / store.random_per_s + taken_s
        return min(made, workers / one_s, max(store.parallel_per_s, store.random_per_s))


def examine_data(path: Path, step: Step = lambda label, done, total: None) -> list[DataMeasurements]:
    """Measure a dataset's files and this machine, some seconds for each split; SourceError for none."""
    step("listing", 0, _STEPS)
    packed = [path] if is_packed(path) else []
    # A folder that cannot be listed is refused below, as for packing.
    with contextlib.suppress(PermissionError):
        packed = packed or [child for child in sorted(path.glob("*")) if is_packed(child)]
    if packed:
        return [_examine_packed(child, step) for child in packed]
    sources = open_source(os.fspath(path)).items()
    return [
        _examine_source(f"{path}, {split}" if split else str(path), source, step) for split, source in sources
    ]


def _examine_source(name: str, source: Source, step: Step) -> DataMeasurements:
    if not isinstance(source, FileSource):
        raise SourceError(f"{name}: must be files to be examined, got a {source.kind}")
    busy = BusyWatch()
    paths = [source.files.path(index) for index in evenly_spaced(len(source), _MOST_FILES)]
    step("reading", 1, _STEPS)
    store = measure_store(DataFiles(paths), len(source))
    step("decoding", 2, _STEPS)
    chosen = choose_encoding(
        estimate_stats(source, None),
        is_resized=False,
        has_jpegtran=find_jpegtran() is not None,
        space_bytes=None,
    )
    decoding, stored_bytes = _measure_decoding(paths, chosen.encode)
    if not decoding:
        raise SourceError(
            f"{name}: at least one image that can be decoded is needed, got none among {len(paths)}"
        )
    way = "PIL" if "PIL" in decoding else "OpenCV"
    return DataMeasurements(
        name=name,
        samples=len(source),
        classes=len(source.classes),
        way=way,
        sample_s=decoding[way],
        machine=busy.state(),
        store=store,
        decoding=decoding,
        encoding=chosen.encode,
        encoding_reason=chosen.reason,
        stored_bytes=stored_bytes,
        notes=(
            *source.warnings,
            *describe_left_out(entry for entry in source.left_out if not entry.is_clutter),
        ),
    )


def _examine_packed(path: Path, step: Step) -> DataMeasurements:
    busy, dataset = BusyWatch(), PackedDataset(path)
    shards = sorted(os.fspath(shard) for shard in path.glob("shard-*"))
    step("reading", 1, _STEPS)
    store = measure_store(DataFiles(shards, are_shards=True), len(dataset))
    step("decoding", 2, _STEPS)
    sample_s = _packed_sample_s(dataset)
    if sample_s is None:
        raise SourceError(
            f"{path}: at least one record that can be read is needed, got none of {len(dataset)}"
        )
    way = encoding_of(dataset) or "keep"
    classes = len(dataset.classes)
    return DataMeasurements(
        str(path), len(dataset), classes, way, sample_s, busy.state(), store, {way: sample_s}
    )


def _packed_sample_s(dataset: PackedDataset) -> float | None:
    """Return the CPU seconds of making a sample, out of memory; None where none can be made."""
    taken_s, made = 0.0, 0
    for index in range(0, len(dataset), max(1, len(dataset) // _PACKED_SAMPLES)):
        with contextlib.suppress(FastloadError):
            dataset.read(index)
            began = time.thread_time()
            dataset[index]
            taken_s += time.thread_time() - began
            made += 1
    return max(_LEAST_S, taken_s / made) if made else None


def _measure_decoding(paths: Sequence[str], encoding: str) -> tuple[dict[str, float], float]:
    """Return the CPU seconds of an image with each decoder, and its bytes when packed."""
    readable: dict[str, bytes] = {}
    with workspace() as folder:
        photos = link_files(paths, folder / "files", _SAMPLES, _MOST_BYTES)
        for path in sorted(photos.iterdir()):
            with contextlib.suppress(OSError, FastloadError):
                data = path.read_bytes()
                decode(data)
                readable[path.name] = data
        images = list(readable.values())
        if not images:
            return {}, 0.0
        threads = cv2.getNumThreads()
        cv2.setNumThreads(1)
        try:
            found = {"OpenCV": _seconds_of(images, decode)}
            with contextlib.suppress(ImportError, OSError):  # not installed, or no reader of a file's format
                found["PIL"] = _seconds_of(images, _decode_with_pil)
            with contextlib.suppress(FastloadError, OSError):
                result = pack(photos, folder / "sample.fl", encode=encoding, workers=1, on_error="skip")
                packed_s = _packed_sample_s(PackedDataset(folder / "sample.fl"))
                if packed_s is not None:
                    return {**found, encoding: packed_s}, result.size_bytes / len(images)
            return found, 0.0
        finally:
            cv2.setNumThreads(threads)


def _decode_with_pil(data: bytes) -> object:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def _seconds_of(images: Sequence[bytes], function: Callable[[bytes], object]) -> float:
    function(images[0])
    turns = []
    for _ in range(_TURNS):
        began = time.thread_time()
        for data in images:
            function(data)
        turns.append((time.thread_time() - began) / len(images))
    return max(_LEAST_S, min(turns))


def diagnose_data(measured: DataMeasurements) -> Diagnosis:
    """Return the limit of loading a dataset after the first epoch, and the fixes for it."""
    workers = max(1, int(measured.machine.usable_cpus))
    rate, all_s = measured.rate(workers), measured.samples * measured.sample_s
    verdict: Verdict = "decoding" if rate > 0.8 * measured.rate(workers, is_warm=True) else "storage"
    fixes = [fix for fix in _fixes(measured, workers) if (fix.gain or 0.0) >= LEAST_GAIN]
    name = "Reading" if verdict == "storage" else "Decoding"
    when = " after the first epoch" if measured.is_warm else ""
    headline = (
        f"{name} is the limit: a loader with {format_count(workers, 'worker')} gives {rate:,.0f} samples/s "
        f"at most{when}."
    )
    if all_s < LEAST_S:
        # With so little data, nobody would notice a fix.
        verdict, fixes = "little", []
        headline = (
            "There is too little data for loading to matter: one core makes all of it in "
            f"{format_duration(all_s)}."
        )
    return Diagnosis(
        verdict=verdict,
        headline=headline,
        evidence=tuple(_evidence(measured)),
        fixes=tuple(sorted(fixes, key=lambda fix: -(fix.gain or 0.0))),
        limits=tuple(limits_of(TrainingMeasurements(measured.machine, is_fastload=True))),
        samples_per_s=rate,
        side="loading",
        loading_per_s=rate,
        forecast=tuple(
            Forecast(number, measured.rate(number)) for number in sorted({1, 2, 4, workers, 2 * workers})
        ),
    )


def _evidence(measured: DataMeasurements) -> Iterator[str]:
    classes = f" in {measured.classes:,} classes" if measured.classes else ""
    store = measured.store
    space = f", {format_size(store.size_bytes)}" if store is not None else ""
    yield f"{measured.name}: {format_count(measured.samples, 'sample')}{classes}{space}."
    if store is not None and store.random_per_s > 0:
        yield (
            f"The disk ({store.kind}): {store.random_per_s:,.0f} samples/s one by one, "
            f"{store.parallel_per_s:,.0f} by several readers, {store.warm_per_s:,.0f} out of the page cache."
        )
        if measured.is_warm:
            yield (
                "The data take less than half of the memory that is available: only the first epoch reads "
                "from the disk, and the epochs after it are judged."
            )
    decoders = (f"{name} {1 / seconds:,.0f}" for name, seconds in measured.decoding.items())
    yield f"Images a second, decoded on one core: {', '.join(decoders)}."
    if measured.encoding:
        yield f"'fastload pack --encode auto' chooses {measured.encoding}: {measured.encoding_reason}."
    yield from measured.notes


def _fixes(measured: DataMeasurements, workers: int) -> Iterator[Fix]:
    rate, store = measured.rate(workers), measured.store
    available = measured.machine.available_bytes or 0
    if store is not None and not measured.is_warm and store.size_bytes < MOST_OF_MEMORY * available:
        kind = "FolderDataset" if measured.encoding else "PackedDataset"
        yield Fix(
            "cache",
            f'keep the data in memory: fastload.{kind}({measured.name!r}, cache="ram")',
            measured.rate(workers, is_warm=True) / rate,
            f"all {format_size(store.size_bytes)} fit into the {format_size(available)} of available memory; "
            "from the second epoch on",
        )
    packed = f"fastload pack {measured.name} data.fl --encode {measured.encoding}"
    actions = {"OpenCV": ("decoder", f"fastload.FolderDataset({measured.name!r}, transform=…)")}
    actions[measured.encoding] = ("pack", f"{packed}, then fastload.PackedDataset('data.fl')")
    for name, (kind, action) in actions.items():
        seconds = measured.decoding.get(name)
        if name != measured.way and seconds is not None:
            why = (
                f"an image takes {format_duration(seconds)} in place of {format_duration(measured.sample_s)}"
            )
            if kind == "pack":
                why += f"; {format_size(measured.stored_bytes * measured.samples)} in all"
            yield Fix(kind, action, measured.rate(workers, seconds) / rate, why)
