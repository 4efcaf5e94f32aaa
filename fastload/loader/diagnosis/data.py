"""What a dataset's files and this machine allow, before anything is trained on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fastload.loader.diagnosis.findings import Diagnosis, Fix, Forecast, Share, Verdict
from fastload.loader.diagnosis.fixes import LEAST_GAIN
from fastload.loader.diagnosis.limits import machine_limits
from fastload.loader.diagnosis.measurements import Decoding, Limits, Setting, Store
from fastload.loader.diagnosis.storing import MOST_OF_MEMORY, is_kept_by_kernel
from fastload.system.units import count, milliseconds, size

_FORECAST = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

LEAST_S = 1.0
"""Images that one core decodes in so many seconds in all are too few to matter."""


@dataclass(frozen=True, slots=True)
class DataMeasurements:
    """What was measured of a dataset that nobody trains on yet.

    Attributes:
        name: Its path.
        samples: How many it has.
        classes: How many classes.
        way: What decodes a sample as the dataset is: `PIL`, `OpenCV`, or the encoding of a packed dataset.
        sample_s: What that takes on one core.
        setting: Where it would be loaded.
        store: Where its files lie.
        decoding: What other ways take.
        limits: What the machine allows.
        notes: What was found odd.
    """

    name: str
    samples: int
    classes: int
    way: str
    sample_s: float
    setting: Setting
    store: Store | None = None
    decoding: Decoding | None = None
    limits: Limits | None = None
    notes: tuple[str, ...] = ()

    def rate(self, workers: int, sample_s: float | None = None, is_cold: bool = True) -> float:
        """Samples a second that so many workers make, if nothing else takes the CPUs."""
        taken_s = self.sample_s if sample_s is None else sample_s
        made = min(workers, self.setting.usable_cpus) / taken_s if taken_s > 0 else math.inf
        return min(made, self._read_per_s(workers, taken_s) if is_cold else math.inf)

    def _read_per_s(self, workers: int, sample_s: float) -> float:
        store = self.store
        if store is None or not store.is_cold or store.random_per_s <= 0:
            return math.inf
        # Each worker waits for its own file; all together get no more than the disk gives.
        alone_s = 1 / store.random_per_s + sample_s
        together = max(store.parallel_per_s, store.random_per_s)
        return min(workers / alone_s, together)


def of_data(measured: DataMeasurements) -> Diagnosis:
    """What holds the loading of a dataset back, and what to do about it."""
    workers = max(1, math.floor(measured.setting.usable_cpus))
    rate = measured.rate(workers)
    verdict = _verdict(measured, workers)
    # Of too little data, nobody would feel it.
    found = [] if verdict == "little" else list(_fixes(measured, workers))
    fixes = sorted(
        (fix for fix in found if fix.gain is None or fix.gain >= LEAST_GAIN),
        key=lambda fix: -(fix.gain or 0.0),
    )
    shares = [Share(f"decoding ({measured.way})", measured.sample_s, False)]
    if measured.store is not None and measured.store.random_per_s > 0:
        shares.insert(0, Share("reading", 1 / measured.store.random_per_s, True))
    numbers = sorted({*(n for n in _FORECAST if n <= max(4, 2 * measured.setting.cpus)), workers})
    return Diagnosis(
        verdict=verdict,
        headline=_headline(measured, verdict, workers, rate),
        evidence=tuple(_evidence(measured)),
        fixes=tuple(fixes),
        limits=tuple(machine_limits(measured.setting, measured.limits)),
        samples_per_s=rate,
        shares=tuple(shares),
        forecast=tuple(Forecast(n, measured.rate(n)) for n in numbers),
    )


def _verdict(measured: DataMeasurements, workers: int) -> Verdict:
    if measured.samples * measured.sample_s < LEAST_S:
        return "little"
    return "storage" if measured.rate(workers) < 0.8 * measured.rate(workers, is_cold=False) else "decoding"


def _headline(measured: DataMeasurements, verdict: Verdict, workers: int, rate: float) -> str:
    if verdict == "little":
        all_of_it = milliseconds(measured.samples * measured.sample_s)
        return f"There is too little data for loading to matter: one core makes all of it in {all_of_it}."
    what = "Reading is the limit" if verdict == "storage" else "Decoding is the limit"
    who = "1 worker feeds" if workers == 1 else f"{workers} workers feed"
    return f"{what}: {who} a model {rate:,.0f} samples/s at most."


def _evidence(measured: DataMeasurements) -> Iterator[str]:
    classes = f" in {measured.classes:,} classes" if measured.classes else ""
    store, decoding = measured.store, measured.decoding
    space = f", {size(store.size_bytes)}" if store is not None else ""
    yield f"{measured.name}: {count(measured.samples, 'sample')}{classes}{space}."
    if store is not None and store.random_per_s > 0:
        yield (
            f"The disk ({store.kind}): {store.random_per_s:,.0f} samples/s one by one, "
            f"{store.parallel_per_s:,.0f} by several at once, {store.warm_per_s:,.0f} out of the page cache; "
            f"{milliseconds(store.latency_s)} to the first byte."
        )
        if store.note:
            yield store.note
    yield f"One core makes {1 / max(1e-9, measured.sample_s):,.0f} samples/s ({measured.way})."
    if decoding is not None:
        yield f"Images have {decoding.width:.0f} × {decoding.height:.0f} pixels on average."
        ways = (f"{name} {1 / max(1e-9, seconds):,.0f}" for name, seconds in decoding.seconds.items())
        yield f"Images a second, decoded on one core: {', '.join(ways)}."
    yield from measured.notes


def _fixes(measured: DataMeasurements, workers: int) -> Iterator[Fix]:
    rate = measured.rate(workers)
    yield from _cache(measured, workers, rate)
    decoding = measured.decoding
    if decoding is None:
        return
    opencv_s = decoding.seconds.get("OpenCV")
    if measured.way == "PIL" and opencv_s is not None:
        yield Fix(
            "decoder",
            f"fastload.FolderDataset({measured.name!r}, transform=…) in place of torchvision's ImageFolder",
            measured.rate(workers, opencv_s) / rate,
            f"it decodes with OpenCV: {milliseconds(opencv_s)} an image in place of "
            f"{milliseconds(measured.sample_s)}",
        )
    for encoding in ("raw", "tiled"):
        seconds = decoding.seconds.get(encoding)
        if seconds is None or seconds >= measured.sample_s:
            continue
        stored = decoding.stored_bytes[encoding]
        yield Fix(
            "pack",
            f"fastload pack {measured.name} data.fl --encode {encoding}, then "
            "fastload.PackedDataset('data.fl')",
            measured.rate(workers, seconds) / rate,
            f"{milliseconds(seconds)} an image in place of {milliseconds(measured.sample_s)}; "
            f"{size(stored * measured.samples)} in all. A crop takes less still",
        )
    if decoding.shrunk_s is not None and decoding.shrunk_s < measured.sample_s:
        yield Fix(
            "shrink",
            f"fastload pack {measured.name} data.fl --shorter-side {decoding.shrunk_side}, if the model "
            "sees no more",
            measured.rate(workers, decoding.shrunk_s) / rate,
            f"{milliseconds(decoding.shrunk_s)} an image in place of {milliseconds(measured.sample_s)}",
        )


def _cache(measured: DataMeasurements, workers: int, rate: float) -> Iterator[Fix]:
    store, limits = measured.store, measured.limits
    available = 0 if limits is None or limits.available_bytes is None else limits.available_bytes
    if store is None or not store.is_cold or store.size_bytes <= 0:
        return
    if store.size_bytes > MOST_OF_MEMORY * available or is_kept_by_kernel(store, limits):
        return
    kind = "FolderDataset" if measured.decoding is not None else "PackedDataset"
    yield Fix(
        "cache",
        f'keep the data in memory: fastload.{kind}({measured.name!r}, cache="ram")',
        measured.rate(workers, is_cold=False) / rate,
        f"all {size(store.size_bytes)} fit into the {size(available)} of memory that are available; from the "
        "second epoch on",
    )
