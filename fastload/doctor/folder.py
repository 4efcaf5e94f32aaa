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
from fastload.doctor.dataset_files import encoding_of, measure_store
from fastload.doctor.evidence import fits_page_cache, limits_of
from fastload.doctor.findings import (
    Diagnosis,
    Fix,
    Forecast,
    MachineState,
    Share,
    Store,
    TrainingMeasurements,
    Verdict,
)
from fastload.doctor.fixes import LEAST_GAIN, MOST_OF_MEMORY
from fastload.doctor.judge import LEAST_S
from fastload.doctor.machine import BusyWatch
from fastload.doctor.workspace import workspace
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
"""Called with what is being done, the number of the step, and the number of all steps."""

_STEPS = 4
_MOST_FILES = 4096
_SAMPLES = 48
_MOST_BYTES = 32 << 20
_PACKED_SAMPLES = 96
_TURNS = 3

# A sample that takes less than the clock can tell.
_LEAST_S = 1e-7


@dataclass(frozen=True, slots=True)
class DataMeasurements:
    """Everything that was measured of a dataset that nobody trains on yet.

    Attributes:
        way: What decodes a sample as the dataset is: `PIL`, `OpenCV`, or the encoding of a packed dataset.
        sample_s: CPU seconds that this takes.
        decoding: CPU seconds of a sample in each way that was tried.
        encoding: What `fastload pack --encode auto` chooses; "" for a packed dataset.
        encoding_reason: Why.
        stored_bytes: Bytes of a sample in that encoding.
        notes: Oddities of the source.
    """

    name: str
    samples: int
    classes: int
    way: str
    sample_s: float
    machine: MachineState
    store: Store | None = None
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
    """Measure a dataset's files and this machine, some seconds for each split.

    Raises:
        SourceError: There is nothing at the path that can be read, or no image or record of it.
        FormatError: A packed dataset cannot be read.
    """
    step("listing", 0, _STEPS)
    if is_packed(path):
        return [_examine_packed(path, step)]
    packed: list[Path] = []
    # A folder that cannot be listed is refused below, as for packing.
    with contextlib.suppress(PermissionError):
        packed = [child for child in sorted(path.iterdir()) if is_packed(child)] if path.is_dir() else []
    if packed:
        return [_examine_packed(child, step) for child in packed]
    sources = open_source(os.fspath(path))
    return [
        _examine_source(f"{path}, {split}" if split else str(path), source, step)
        for split, source in sources.items()
    ]


def _examine_source(name: str, source: Source, step: Step) -> DataMeasurements:
    if not isinstance(source, FileSource):
        raise SourceError(f"{name}: must be files to be examined, got a {source.kind}")
    busy = BusyWatch()
    paths = [source.files.path(index) for index in evenly_spaced(len(source), _MOST_FILES)]
    step("reading", 1, _STEPS)
    store = measure_store(paths, len(source))
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
    step("this machine", 3, _STEPS)
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
    shards = sorted(os.fspath(shard) for shard in path.iterdir() if shard.name.startswith("shard-"))
    step("reading", 1, _STEPS)
    store = measure_store(shards, len(dataset), are_containers=True)
    step("decoding", 2, _STEPS)
    sample_s = _packed_sample_s(dataset)
    if sample_s is None:
        raise SourceError(
            f"{path}: at least one record that can be read is needed, got none of {len(dataset)}"
        )
    step("this machine", 3, _STEPS)
    way = encoding_of(dataset) or "keep"
    return DataMeasurements(
        str(path), len(dataset), len(dataset.classes), way, sample_s, busy.state(), store, {way: sample_s}
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
    """Return the CPU seconds of an image in each way, and its bytes when packed."""
    images: list[tuple[str, bytes]] = []
    for path in paths[:: max(1, len(paths) // _SAMPLES)][:_SAMPLES]:
        if sum(len(data) for _, data in images) > _MOST_BYTES:
            break
        with contextlib.suppress(OSError, FastloadError):
            data = Path(path).read_bytes()
            decode(data)
            images.append((path, data))
    if not images:
        return {}, 0.0
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        found = {"OpenCV": _seconds_of([data for _, data in images], decode)}
        with contextlib.suppress(ImportError, OSError):  # not installed, or no reader of a file's format
            found["PIL"] = _seconds_of([data for _, data in images], _decode_with_pil)
        with contextlib.suppress(FastloadError, OSError), workspace() as folder:
            (folder / "files").mkdir()
            for number, (path, _) in enumerate(images):
                (folder / "files" / f"{number:04d}{Path(path).suffix or '.jpg'}").symlink_to(
                    os.path.abspath(path)
                )
            result = pack(folder / "files", folder / "sample.fl", encode=encoding, workers=1, on_error="skip")
            sample_s = _packed_sample_s(PackedDataset(folder / "sample.fl"))
            if sample_s is not None:
                return {**found, encoding: sample_s}, result.size_bytes / len(images)
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
    """Return what limits the loading of a dataset after the first epoch, and what to do about it."""
    workers = max(1, int(measured.machine.usable_cpus))
    rate, warm_rate = measured.rate(workers), measured.rate(workers, is_warm=True)
    verdict: Verdict = "decoding" if rate > 0.8 * warm_rate else "storage"
    if measured.samples * measured.sample_s < LEAST_S:
        verdict = "little"
    # Of too little data, nobody would feel it.
    found = [] if verdict == "little" else _fixes(measured, workers)
    fixes = [fix for fix in found if (fix.gain or 0.0) >= LEAST_GAIN]
    shares = [Share(f"decoding ({measured.way})", measured.sample_s, False)]
    if measured.store is not None and min(measured.store.warm_per_s, measured.store.random_per_s) > 0:
        read_s = 1 / (measured.store.warm_per_s if measured.is_warm else measured.store.random_per_s)
        shares.insert(0, Share("reading", read_s, True))
    numbers = sorted({1, 2, 4, workers, 2 * workers})
    return Diagnosis(
        verdict=verdict,
        headline=_headline(measured, verdict, workers, rate),
        evidence=tuple(_evidence(measured)),
        fixes=tuple(sorted(fixes, key=lambda fix: -(fix.gain or 0.0))),
        limits=tuple(limits_of(TrainingMeasurements(measured.machine, is_fastload=True))),
        samples_per_s=rate,
        side="loading",
        loading_per_s=rate,
        shares=tuple(shares),
        forecast=tuple(Forecast(number, measured.rate(number)) for number in numbers),
    )


def _headline(measured: DataMeasurements, verdict: Verdict, workers: int, rate: float) -> str:
    if verdict == "little":
        all_s = format_duration(measured.samples * measured.sample_s)
        return f"There is too little data for loading to matter: one core makes all of it in {all_s}."
    name = "Reading" if verdict == "storage" else "Decoding"
    who = "1 worker feeds" if workers == 1 else f"{workers} workers feed"
    when = " after the first epoch" if measured.is_warm else ""
    return f"{name} is the limit: {who} a model {rate:,.0f} samples/s at most{when}."


def _evidence(measured: DataMeasurements) -> Iterator[str]:
    classes = f" in {measured.classes:,} classes" if measured.classes else ""
    store = measured.store
    space = f", {format_size(store.size_bytes)}" if store is not None else ""
    yield f"{measured.name}: {format_count(measured.samples, 'sample')}{classes}{space}."
    if store is not None and store.random_per_s > 0:
        yield (
            f"The disk ({store.kind}): {store.random_per_s:,.0f} samples/s one by one, "
            f"{store.parallel_per_s:,.0f} by several readers, {store.warm_per_s:,.0f} out of the page cache; "
            f"{format_duration(store.latency_s)} to the first byte."
        )
        if store.note:
            yield store.note
        if measured.is_warm:
            yield (
                "The data take less than half of the memory that is available: only the first epoch reads "
                "from the disk, and the epochs after it are judged."
            )
    yield f"One core makes {1 / measured.sample_s:,.0f} samples/s ({measured.way})."
    if len(measured.decoding) > 1:
        ways = (f"{name} {1 / seconds:,.0f}" for name, seconds in measured.decoding.items())
        yield f"Images a second, decoded on one core: {', '.join(ways)}."
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
            f"all {format_size(store.size_bytes)} fit into the {format_size(available)} of memory that are "
            "available; from the second epoch on",
        )
    present = format_duration(measured.sample_s)
    opencv_s = measured.decoding.get("OpenCV")
    if measured.way == "PIL" and opencv_s is not None:
        yield Fix(
            "decoder",
            f"fastload.FolderDataset({measured.name!r}, transform=…) in place of torchvision's ImageFolder",
            measured.rate(workers, opencv_s) / rate,
            f"it decodes with OpenCV: {format_duration(opencv_s)} an image in place of {present}",
        )
    packed_s = measured.decoding.get(measured.encoding)
    if packed_s is not None:
        yield Fix(
            "pack",
            f"fastload pack {measured.name} data.fl --encode {measured.encoding}, then "
            "fastload.PackedDataset('data.fl')",
            measured.rate(workers, packed_s) / rate,
            f"a packed sample of your files takes {format_duration(packed_s)} an image in place of "
            f"{present}; {format_size(measured.stored_bytes * measured.samples)} in all. A crop takes "
            "less still",
        )
