"""The verdict in a sentence, the evidence behind it, reasons for doubt, and limits of the machine."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fastload.doctor.categories import work_name
from fastload.doctor.findings import Sampled, Side, Store, TrainingMeasurements, Verdict
from fastload.doctor.rates import LoadingWork, Rates, attributed, blocked_s, is_colder, spent
from fastload.system.units import format_count, format_duration, format_size

MOST_OF_OTHERS = 0.2
"""A machine of whose CPUs other programs take more than this share gives other figures on another day."""

SMALL_SHARED_MEMORY = 64 << 20
"""Docker gives a container so much unless told otherwise."""

FEW_OPEN_FILES = 4096
"""Below this a training comes to the end of its descriptors: torch's file_descriptor strategy takes one for
each tensor on its way, h5py and LMDB one for each shard and worker (pytorch 973). Distributions give 1024."""

KEPT_BY_MEMORY = 0.6
"""Later epochs that wait for less than this share of the first one's waits no longer wait for the disk."""

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

_NAMES: dict[Verdict, str] = {
    "storage": "Reading from storage is the limit",
    "decoding": "Decoding is the limit",
    "transforms": "Transforms are the limit",
    "preparing": "Making samples (decoding and transforms) is the limit",
    "transport": "Collating and moving batches is the limit",
    "copy": "Copying batches to the device is the limit",
    "model": "The model is the limit",
}
_ENDED = {
    "open files": "it had as many files open as 'ulimit -n' allows",
    "shared memory": "/dev/shm was full",
}


def headline_of(measured: TrainingMeasurements, rates: Rates, work: LoadingWork, verdict: Verdict) -> str:
    """Return the verdict as a sentence, with the figures behind it."""
    ended = ran_out_of(measured.error)
    if ended:
        return f"{_NAMES[verdict]}: the training ended because {_ENDED[ended]}."
    if verdict == "little":
        seconds = measured.first_wait_s + measured.waiting_s + measured.stepping_s + measured.warmup_s
        batches = format_count(measured.batches, "batch", "batches")
        return (
            f"There is too little work for loading to matter: {batches} took {format_duration(seconds)} "
            "in all."
        )
    unit = measured.unit
    loading, step = _rate(rates.loading, unit), _rate(rates.step, unit)
    alone = f"the loader alone gives {loading}, the training step alone takes {step}"
    seen = spent(measured.training, "work", "model", "copy")
    if verdict == "main thread":
        works = [one for one in measured.training if one.category == "work"]
        name = work_name(works[0].place).capitalize()
        share = f"{spent(works, 'work') / seen:.0%} of each step"
        return f"{name} on the main thread is the limit, with {share}: {alone}."
    seconds = {
        "storage": work.storage_s,
        "decoding": work.decoding_s,
        "transforms": work.transforms_s,
        "preparing": work.transforms_s,
        "transport": work.collate_s,
    }.get(verdict, 0.0)
    share = f", with {work.share(seconds):.0%} of loading" if work.share(seconds) > _LEAST_SHARE else ""
    return f"{_NAMES[verdict]}{share}: {alone}."


def _rate(rate: float, unit: str) -> str:
    if not math.isfinite(rate):
        return f"any number of {unit}"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"


def ran_out_of(error: str) -> str:
    """Return what the training ran out of, if that ended it; "" for nothing.

    "unable to open shared memory object </torch_1>: Too many open files" is a matter of descriptors.
    """
    if _NO_DESCRIPTORS.search(error):
        return "open files"
    return "shared memory" if _FULL_SHARED_MEMORY.search(error) else ""


def evidence_of(measured: TrainingMeasurements, rates: Rates, work: LoadingWork) -> Iterator[str]:
    """Yield what was measured, a sentence each, the steps first."""
    yield from _step_evidence(measured)
    yield from _loading_evidence(measured, rates, work)
    yield from _places(
        attributed(measured.loading), "making samples", ("transform", "decode", "load", "read")
    )
    yield from _places(measured.training, "the training step", ("work", "model", "copy"))
    if rates.start_s * measured.epochs > 0.05:
        yield f"Starting and ending the workers takes {format_duration(rates.start_s)} in each epoch."
    busy = [worker.busy_s for worker in measured.workers if worker.busy_s]
    if len(busy) > 1 and max(busy) > 1.5 * sum(busy) / len(busy) and max(busy) > 0.5:
        ratio = max(busy) * len(busy) / sum(busy)
        yield f"One worker was busy {ratio:.1f} times as long as the mean: look at its samples."
    if measured.slow_samples:
        slowest = ", ".join(f"{index} ({seconds:.2f} s)" for index, seconds in measured.slow_samples[:5])
        yield f"Slowest samples, by index: {slowest}."
    yield from _store_evidence(measured, work)
    if measured.gpu_busy:
        yield f"The GPU was busy {sum(measured.gpu_busy) / len(measured.gpu_busy):.0%} of the time."
    if measured.error:
        yield f"The training ended with {measured.error}."


def _step_evidence(measured: TrainingMeasurements) -> Iterator[str]:
    batches = (
        f"batches of {measured.batch_size}"
        if measured.batch_size
        else "whole batches, as the dataset makes them"
    )
    if measured.waits and measured.steps:
        batch_s = measured.wait_s + measured.step_s
        yield (
            f"{_rate(measured.samples_per_s, measured.unit)} in {batches}: each batch takes "
            f"{format_duration(batch_s)}: {format_duration(measured.wait_s)} waiting for data, "
            f"{format_duration(measured.step_s)} training."
        )
    else:
        seen = format_count(measured.batches, "batch was", "batches were")
        yield f"Only {seen} seen, in {batches}." if measured.batches else "The loader gave no batch."
    if measured.warmup_steps:
        steps = "first step" if measured.warmup_steps == 1 else f"first {measured.warmup_steps} steps"
        yield (
            f"The {steps} took {format_duration(measured.warmup_s)}: warm-up, such as compilation. It is "
            "left out of all other figures."
        )
    if measured.role == "evaluation":
        yield "No optimizer stepped on these batches: they are evaluation."


def _loading_evidence(measured: TrainingMeasurements, rates: Rates, work: LoadingWork) -> Iterator[str]:
    made = sum(worker.batches for worker in measured.workers) * measured.samples_a_batch
    if not made:
        return
    cpu_s, delayed_s = (
        sum(getattr(worker, name) for worker in measured.workers) / made for name in ("cpu_s", "delayed_s")
    )
    who = (
        "The training process loads"
        if not measured.num_workers
        else format_count(measured.num_workers, "worker") + " load"
    )
    one = measured.unit.removesuffix("s") if measured.batch_size else "batch"
    yield (
        f"{who}{'s' if measured.num_workers == 1 else ''}: a {one} takes {format_duration(cpu_s)} of CPU "
        f"time, {format_duration(blocked_s(measured) / made)} of waiting (for a disk, a lock, a sleep) and "
        f"{format_duration(delayed_s)} of waiting for a free CPU."
    )
    making = "transforms" if work.is_told_apart else "making samples"
    parts = (
        ("reading", work.storage_s),
        ("decoding", work.decoding_s),
        (making, work.transforms_s),
        ("collating", work.collate_s),
    )
    shown = [f"{name} {work.share(seconds):.0%}" for name, seconds in parts if seconds > 0]
    if shown:
        yield f"Of loading's time: {', '.join(shown)}."
    if measured.num_workers and measured.trial("same") is None:
        yield "The loader could not be iterated again: its rate is that of its workers during the training."


def _places(sampled: Sequence[Sampled], where: str, categories: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of the user's that most time goes into."""
    by_place: dict[str, float] = defaultdict(float)
    chosen = [one for one in sampled if one.category in categories]
    for one in chosen:
        by_place[one.place] += one.seconds
    all_s = sum(by_place.values())
    top = sorted(((seconds, place) for place, seconds in by_place.items() if place), reverse=True)[
        :_MOST_PLACES
    ]
    shown = [f"{seconds / all_s:.0%} {place}" for seconds, place in top if seconds > _LEAST_SHARE * all_s]
    if shown:
        yield f"Lines in {where}: {'; '.join(shown)}."


def _store_evidence(measured: TrainingMeasurements, work: LoadingWork) -> Iterator[str]:
    store = measured.store
    if store is None:
        return
    if store.random_per_s:
        state = "from the disk" if store.is_cold else "out of the page cache"
        yield (
            f"Samples {state}{f' ({store.kind})' if store.kind else ''}: {store.random_per_s:,.0f} a second "
            f"one by one, {store.parallel_per_s:,.0f} by several readers; {format_duration(store.latency_s)} "
            "to the first byte."
        )
    if store.note:
        yield store.note
    if work.share(work.storage_s) < STORAGE_SHARE:
        return
    if was_kept(measured):
        first_s, *_, last_s = measured.epoch_waits_s
        yield (
            f"Only the first epoch waits for the disk: {format_duration(first_s)} a batch, and "
            f"{format_duration(last_s)} in the last one. What is read once stays in memory."
        )
    elif fits_page_cache(store, measured.machine.available_bytes):
        yield (
            f"The data take {format_size(store.size_bytes)}, less than half of the memory that is available: "
            "after the first epoch they are read from the page cache."
        )


def fits_page_cache(store: Store, available_bytes: int | None) -> bool:
    """Return whether the kernel keeps a dataset in memory: on a local disk, and small beside the memory."""
    return 2 * store.size_bytes < (available_bytes or 0) and not store.kind.startswith(("network", "fuse"))


def was_kept(measured: TrainingMeasurements) -> bool:
    """Return whether later epochs waited much less than the first one."""
    first_s, *later_s = measured.epoch_waits_s or (0.0,)
    return bool(later_s) and max(later_s) < KEPT_BY_MEMORY * first_s


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
        yield (
            f"Only {format_count(measured.steps, 'step')} were measured."
            if measured.steps > 1
            else "Only one step was measured."
        )
    if is_colder(measured):
        yield (
            "During the training, workers made batches much slower than afterwards: files came from the "
            "disk rather than from memory, or CPUs were taken. The training's own rate is used."
        )


def limits_of(measured: TrainingMeasurements) -> Iterator[str]:
    """Yield the limits of the machine that the training meets, or soon will."""
    machine, workers = measured.machine, measured.num_workers
    waiting_bytes = workers * (measured.prefetch_factor or 2) * measured.batch_bytes
    if machine.usable_cpus < machine.cpus:
        yield (
            f"CPU quota: {machine.usable_cpus:g} CPUs' worth of time on {machine.cpus} CPUs. Programs that "
            "count CPUs start too many threads and workers; os.cpu_count() does not know of it."
        )
    if machine.open_files is not None and machine.open_files < FEW_OPEN_FILES:
        yield (
            f"ulimit -n: {machine.open_files} open files. torch's loader takes one for each tensor on its "
            "way, and shards one each a worker: 'ulimit -n 65536' before the training (Docker: --ulimit "
            "nofile=65536)."
        )
    shared = machine.shared_memory_bytes
    if shared is not None and (waiting_bytes > 0.5 * shared or shared <= SMALL_SHARED_MEMORY):
        waiting = f", and {format_size(waiting_bytes)} of batches wait in it" if waiting_bytes else ""
        way = (
            "fastload's loader does not use it."
            if measured.is_fastload
            else "torch's loader dies of a bus error where it is full: docker run --shm-size=8g, or "
            "fastload's DataLoader, which does not use it."
        )
        yield f"/dev/shm: {format_size(shared)}{waiting}. {way}"
    if machine.available_bytes is not None and waiting_bytes > 0.5 * machine.available_bytes:
        available = format_size(machine.available_bytes)
        yield f"Memory: {available} are available, and {format_size(waiting_bytes)} of batches wait in it."
    if workers > 2 * machine.cpus:
        yield f"{workers} workers share {machine.cpus} CPUs."
