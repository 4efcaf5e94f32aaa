"""Examining data that nobody trains on yet: a folder of images, a table, a packed dataset."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from fastload.datasets.packed import PackedDataset
from fastload.doctor.data import encoding_of
from fastload.doctor.decodings import measure_decoding
from fastload.doctor.machine import cpus_of, limits_of
from fastload.doctor.stores import measure_store
from fastload.errors import FastloadError, SourceError
from fastload.loader.diagnosis.data import DataMeasurements
from fastload.loader.diagnosis.measurements import Setting, Store
from fastload.shards.manifest import is_packed
from fastload.sources import Source, open_source
from fastload.sources.files import FileSource
from fastload.sources.left_out import told
from fastload.system.overview import read_machine

Step = Callable[[str, int, int], None]
"""Told what is being done, which step it is, and of how many."""

_MOST_FILES = 4096
_PACKED_SAMPLES = 96
_STEPS = 4

# A sample whose time the clock is too coarse for took less than this.
_LEAST_S = 1e-7


def examine_data(path: Path, step: Step = lambda label, done, total: None) -> list[DataMeasurements]:
    """Measures what a dataset's files and this machine allow: some seconds for each split.

    Args:
        path: What `fastload pack` takes, or what it made.
        step: Called before each step.

    Raises:
        SourceError: There is nothing at the path that can be read, or no image or record of it.
        FormatError: A packed dataset cannot be read.
    """
    step("listing", 0, _STEPS)
    if is_packed(path):
        return [_examine_packed(path, step)]
    packed: list[Path] = []
    # What cannot be listed is refused below, as for packing.
    with contextlib.suppress(PermissionError):
        packed = [child for child in sorted(path.iterdir()) if is_packed(child)] if path.is_dir() else []
    if packed:
        return [_examine_packed(child, step) for child in packed]
    sources = open_source(os.fspath(path))
    return [_examine_source(_named(path, split), source, step) for split, source in sources.items()]


def _named(path: Path, split: str) -> str:
    return f"{path}, {split}" if split else str(path)


def _examine_source(name: str, source: Source, step: Step) -> DataMeasurements:
    if not isinstance(source, FileSource):
        raise SourceError(f"{name}: must be files to be examined, got a {source.kind}")
    indices = source.sample(_MOST_FILES)
    paths = [source.files.path(index) for index in indices]
    step("reading", 1, _STEPS)
    store = measure_store(paths, len(source))
    step("decoding", 2, _STEPS)
    decoding = measure_decoding(paths, most_s=3.0, are_images=True)
    step("this machine", 3, _STEPS)
    if decoding is None:
        raise SourceError(
            f"{name}: at least one image that can be decoded is needed, got none among {len(paths)}"
        )
    way = "PIL" if "PIL" in decoding.seconds else "OpenCV"
    notes = (*source.warnings, *told(entry for entry in source.left_out if not entry.is_clutter))
    return _measured(
        name, len(source), len(source.classes), way, decoding.seconds[way], store, decoding, notes
    )


def _examine_packed(path: Path, step: Step) -> DataMeasurements:
    dataset = PackedDataset(path)
    shards = sorted(os.fspath(shard) for shard in path.iterdir() if shard.name.startswith("shard-"))
    step("reading", 1, _STEPS)
    store = measure_store(shards, len(dataset), are_containers=True)
    step("decoding", 2, _STEPS)
    sample_s = _sample_s(dataset)
    if sample_s is None:
        raise SourceError(
            f"{path}: at least one record that can be read is needed, got none of {len(dataset)}"
        )
    step("this machine", 3, _STEPS)
    way = encoding_of(dataset) or "keep"
    return _measured(str(path), len(dataset), len(dataset.classes), way, sample_s, store, None, ())


def _sample_s(dataset: PackedDataset) -> float | None:
    """What making a sample takes one core, out of memory; None where none can be made."""
    length = len(dataset)
    indices = range(0, length, max(1, length // _PACKED_SAMPLES)) if length else range(0)
    taken, made = 0.0, 0
    for index in indices:
        with contextlib.suppress(FastloadError):
            dataset.read(index)
            began = time.thread_time()
            dataset[index]
            taken += time.thread_time() - began
            made += 1
    return max(_LEAST_S, taken / made) if made else None


def _measured(
    name: str,
    samples: int,
    classes: int,
    way: str,
    sample_s: float,
    store: Store | None,
    decoding: object,
    notes: tuple[str, ...],
) -> DataMeasurements:
    machine = read_machine()
    cpus, most_cpus = cpus_of(machine)
    return DataMeasurements(
        name=name,
        samples=samples,
        classes=classes,
        way=way,
        sample_s=sample_s,
        setting=Setting(cpus, most_cpus),
        store=store,
        decoding=decoding,  # type: ignore[arg-type]
        limits=limits_of(machine),
        notes=notes,
    )
