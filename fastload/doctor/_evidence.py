"""The verdict in a sentence, the evidence behind it, reasons for doubt, and limits of the machine."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastload.doctor._categories import work_name
from fastload.doctor._rates import CauseSeconds, Rates, attributed, blocked_s, is_colder, share
from fastload.doctor.findings import DataStorage, Sampled, Side, TrainingMeasurements, Verdict
from fastload.loader.report import batch_text, loading_text
from fastload.system.units import format_count, format_duration, format_size

MOST_OF_OTHERS = 0.2
"""On a machine whose other programs take more than this share of its CPUs, figures differ from day to day."""

SMALL_SHARED_MEMORY = 64 << 20
"""Docker gives a container so much unless told otherwise."""

FEW_OPEN_FILES = 4096
"""Below this a training comes to the end of its descriptors: torch's file_descriptor strategy takes one for
each tensor on its way, h5py and LMDB one for each shard and worker (pytorch 973). Distributions give 1024."""

STORAGE_SHARE = 0.15
"""Reading that takes less than this share of loading is not mentioned, and nothing is advised against it."""

_MOST_PLACES = 3
_LEAST_SHARE = 0.05
_FEW_STEPS = 5

_NO_DESCRIPTORS = re.compile(r"too many open files|received 0 items of ancdata", re.IGNORECASE)
_FULL_SHARED_MEMORY = re.compile(
    r"bus error|/dev/shm|unable to (write|mmap|allocate|resize).*(shared memory|torch_)"
    # A file of the user's that is named fills another disk.
    r"|no space left on device(?!: ['\"](?!/(torch_|psm_|dev/shm)))",
    re.IGNORECASE,
)
_ENDED = {
    "open files": "it had as many files open as 'ulimit -n' allows",
    "shared memory": "/dev/shm was full",
}


class Cause(NamedTuple):
    """A cause in words: its headline, and the noun for its part of the time."""

    headline: str
    part: str


CAUSES: dict[Verdict, Cause] = {
    "storage": Cause("Reading from storage is the limit", "reading"),
    "decoding": Cause("Decoding is the limit", "decoding"),
    "transforms": Cause("Transforms are the limit", "transforms"),
    "preparing": Cause("Making samples (decoding and transforms) is the limit", "making samples"),
    "transport": Cause("Collating and moving batches is the limit", "collating"),
    "copy": Cause("Copying batches to the device is the limit", "copying to the device"),
    "main thread": Cause("{work} on the main thread is the limit", "logging and the like"),
    "model": Cause("The model is the limit", "the model's step"),
}


def headline_of(measured: TrainingMeasurements, rates: Rates, seconds: CauseSeconds, verdict: Verdict) -> str:
    """Return the verdict as a sentence, with the figures behind it."""
    if verdict == "little":
        all_s = measured.first_wait_s + measured.waiting_s + measured.stepping_s + measured.warmup_s
        batches = format_count(measured.batches, "batch", "batches")
        return (
            f"There is too little work for loading to matter: {batches} took {format_duration(all_s)} in all."
        )
    work = next((work_name(one.place) for one in measured.training if one.category == "work"), "")
    limit = CAUSES[verdict].headline.format(work=work.capitalize())
    ended = ran_out_of(measured.error)
    if ended:
        return f"{limit}: the training ended because {_ENDED[ended]}."
    step: tuple[Verdict, ...] = ("model", "main thread", "copy")
    side = {cause: taken for cause, taken in seconds.items() if (cause in step) == (verdict in step)}
    if verdict in ("model", "copy") or share(side, verdict) < _LEAST_SHARE:
        part = ""
    else:
        part = f", with {share(side, verdict):.0%} of {'each step' if verdict in step else 'loading'}"
    loading, training = (_rate(rate, measured.unit) for rate in (rates.loading, rates.step))
    return f"{limit}{part}: the loader alone gives {loading}, the training step alone takes {training}."


def _rate(rate: float, unit: str) -> str:
    if not math.isfinite(rate):
        return f"any number of {unit}"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"


def ran_out_of(error: str) -> str:
    """Return the resource that the training ran out of, if that ended it; "" for none.

    "unable to open shared memory object </torch_1>: Too many open files" is a matter of descriptors.
    """
    if _NO_DESCRIPTORS.search(error):
        return "open files"
    return "shared memory" if _FULL_SHARED_MEMORY.search(error) else ""


def evidence_of(measured: TrainingMeasurements, rates: Rates, loading: CauseSeconds) -> Iterator[str]:
    """Yield the measurements, a sentence each, the steps first."""
    yield from _step_evidence(measured)
    yield from _loading_evidence(measured, loading)
    making = [one for one in attributed(measured.loading) if one.category != "collate"]
    yield from _places(making, "making samples")
    yield from _places(measured.training, "the training step")
    if rates.start_s * measured.epochs > 0.05:
        yield f"Starting and ending the workers takes {format_duration(rates.start_s)} in each epoch."
    yield from _store_evidence(measured, loading)
    if measured.gpu_busy:
        yield f"The GPU was busy {measured.gpu_share:.0%} of the time."
    if measured.error:
        yield f"The training ended with {measured.error}."


def _step_evidence(measured: TrainingMeasurements) -> Iterator[str]:
    batches = f"batches of {measured.batch_size}" if measured.batch_size else "whole batches of the dataset"
    if measured.waits and measured.steps:
        rate = f"{_rate(measured.samples_per_s, measured.unit)} in {batches}"
        yield batch_text(rate, measured.wait_s, measured.step_s)
    else:
        yield f"Too few batches to tell: {measured.batches}, in {batches}."
    if measured.warmup_steps:
        steps = "first step" if measured.warmup_steps == 1 else f"first {measured.warmup_steps} steps"
        yield (
            f"The {steps} took {format_duration(measured.warmup_s)}: warm-up, such as compilation. It is "
            "left out of all other figures."
        )
    if measured.role == "evaluation":
        yield "No optimizer stepped on these batches: they are evaluation."


def _loading_evidence(measured: TrainingMeasurements, loading: CauseSeconds) -> Iterator[str]:
    made = measured.made_samples
    if not made:
        return
    cpu_s, delayed_s = (
        sum(getattr(worker, name) for worker in measured.workers) / made for name in ("cpu_s", "delayed_s")
    )
    one = "sample" if measured.batch_size else "batch"
    yield loading_text(measured.num_workers, one, cpu_s, blocked_s(measured) / made, delayed_s)
    parts = [
        f"{CAUSES[cause].part} {share(loading, cause):.0%}"
        for cause, seconds in loading.items()
        if seconds > 0
    ]
    if parts:
        yield f"Loading's time: {', '.join(parts)}."
    if measured.num_workers and measured.trial("same") is None:
        yield "The loader could not be iterated again: its rate is that of its workers during the training."


def _places(sampled: Sequence[Sampled], where: str) -> Iterator[str]:
    """Yield the user's lines that take most of the time."""
    by_place: Counter[str] = Counter()
    for one in sampled:
        by_place[one.place] += one.seconds  # type: ignore[assignment]
    all_s = sum(by_place.values())
    shown = [
        f"{seconds / all_s:.0%} {place}"
        for place, seconds in by_place.most_common(_MOST_PLACES + 1)
        if place and seconds > _LEAST_SHARE * all_s
    ]
    if shown:
        yield f"Lines in {where}: {'; '.join(shown[:_MOST_PLACES])}."


def _store_evidence(measured: TrainingMeasurements, loading: CauseSeconds) -> Iterator[str]:
    store = measured.store
    if store is None or share(loading, "storage") < STORAGE_SHARE:
        return
    if store.random_per_s:
        state = "from the disk" if store.is_cold else "out of the page cache"
        yield (
            f"Samples {state}{f' ({store.kind})' if store.kind else ''}: {store.random_per_s:,.0f} a second "
            f"one by one, {store.parallel_per_s:,.0f} by several readers; "
            f"{format_duration(store.latency_s)} to the first byte."
        )
    if fits_page_cache(store, measured.machine.available_bytes):
        yield "The data take less than half of the available memory: later epochs read from the page cache."


def fits_page_cache(store: DataStorage, available_bytes: int | None) -> bool:
    """Return whether the kernel keeps a dataset in memory: on a local disk, and small beside the memory."""
    return 2 * store.size_bytes < (available_bytes or 0) and not store.kind.startswith(("network", "fuse"))


def doubts_of(measured: TrainingMeasurements, rates: Rates, side: Side) -> Iterator[str]:
    """Yield the reasons why the figures may be wrong."""
    machine = measured.machine
    if machine.other_cpus > MOST_OF_OTHERS * machine.cpus:
        yield (
            f"The machine was busy with other work: other programs took {machine.other_cpus:.1f} of "
            f"{machine.cpus} CPUs. On an idle machine, loading and training may both be faster."
        )
    if machine.stolen_cpus > MOST_OF_OTHERS / 4 * machine.cpus:
        yield f"Other virtual machines took {machine.stolen_cpus:.1f} CPUs' worth of time (steal time)."
    if side == "balanced":
        yield "Loading and the training step are nearly equally fast: either may be the limit on another day."
    cpu_s = rates.loading_cpu_s + rates.step_cpu_s
    if rates.num_workers and cpu_s > 1.1 * rates.cpus / min(rates.loading, rates.step):
        yield (
            f"Workers and the training step compete for {rates.cpus:g} CPUs: together they need "
            f"{format_duration(cpu_s)} of CPU time for each of the {measured.unit}."
        )
    if 0 < measured.steps < _FEW_STEPS:
        yield f"Few steps were measured: {measured.steps}."
    if is_colder(measured):
        yield (
            "During the training, workers made batches much slower than afterwards: files came from the "
            "disk rather than from memory, or CPUs were taken. The training's own rate is used."
        )


def limits_of(measured: TrainingMeasurements) -> Iterator[str]:
    """Yield the limits of the machine that the training meets, or soon will."""
    machine = measured.machine
    waiting_bytes = measured.num_workers * (measured.prefetch_factor or 2) * measured.batch_bytes
    if machine.usable_cpus < machine.cpus:
        yield (
            f"CPU quota: {machine.usable_cpus:g} CPUs' worth of time on {machine.cpus} CPUs. os.cpu_count() "
            "does not know of it, so programs start too many threads and workers."
        )
    if machine.open_files is not None and machine.open_files < FEW_OPEN_FILES:
        yield (
            f"ulimit -n: {machine.open_files} open files. torch's loader takes one for each tensor on its "
            "way, and shards one each a worker: 'ulimit -n 65536' before the training."
        )
    shared = machine.shared_memory_bytes
    if shared is not None and (waiting_bytes > 0.5 * shared or shared <= SMALL_SHARED_MEMORY):
        way = (
            "fastload's loader does not use it."
            if measured.is_fastload
            else "torch's loader dies of a bus error where it is full: docker run --shm-size=8g, or "
            "fastload's DataLoader, which does not use it."
        )
        yield f"/dev/shm: {format_size(shared)}, for {format_size(waiting_bytes)} of waiting batches. {way}"
