"""The verdict in a sentence, the evidence for it, reasons for doubt, and limits of the machine."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fastload.doctor.findings import (
    DataStorage,
    Diagnosis,
    Fix,
    Sampled,
    TimePart,
    TrainingMeasurements,
    Verdict,
    spent,
)
from fastload.doctor.judging.judge import MAJORITY, Judgement, attributed, is_colder, per_s, ran_out_of
from fastload.loader.report import batch_text, loading_text
from fastload.system.units import format_count, format_duration, format_size

SMALL_SHARED_MEMORY = 64 << 20
"""Docker's default for /dev/shm."""

FEW_OPEN_FILES = 4096
"""With fewer, training may run out of descriptors: torch's file_descriptor strategy takes one per tensor,
h5py and LMDB one per shard and worker (pytorch 973). Distributions set 1024."""

STORAGE_SHARE = 0.15
"""Reading that takes less than this share of loading is not mentioned, and no fix is advised for it."""

LEAST_SHARE = 0.05
"""A part that takes less than this share of a time is not mentioned: without it, the gain would be below
what measuring resolves (LEAST_GAIN)."""

LEAST_SWAPPED = 64 << 20
"""Kernels write some idle pages to the swap space at any time."""

NEARLY_FULL = 0.1
"""With less than this share of a memory free, the next larger batch may fail."""

LEAST_GROWN = 0.01
"""A process whose memory grows by this share in each epoch doubles it in 70 epochs."""

MOST_PLACES = 3
_FEW_STEPS = 5

_ENDED = {
    "open files": "it had as many files open as 'ulimit -n' allows",
    "shared memory": "/dev/shm was full",
}

# For each cause, the beginning of the headline and a phrase for its part of the time.
CAUSES: dict[Verdict, tuple[str, str]] = {
    "storage": ("Reading from storage is the limit", "reading"),
    "decoding": ("Decoding is the limit", "decoding"),
    "transforms": ("Transforms are the limit", "transforms"),
    "transport": ("Collating and moving batches is the limit", "collating"),
    "copy": ("Copying batches to the device is the limit", "copying to the device"),
    "main thread": ("The script's own code between two batches is the limit", "the script's own code"),
    "model": ("The model is the limit", "the model's step"),
    "network": ("Synchronising gradients over the network is the limit", "synchronising gradients"),
}


def diagnosis_of(judged: Judgement, fixes: tuple[Fix, ...]) -> Diagnosis:
    """Return a judgement in words, with its fixes."""
    loading, step = (
        rate if math.isfinite(rate) else 0.0 for rate in (judged.rates.loading, judged.rates.step)
    )
    return Diagnosis(
        verdict=judged.verdict,
        headline=_headline_of(judged),
        evidence=tuple(_evidence_of(judged)),
        fixes=fixes,
        limits=tuple(_limits_of(judged.measured)),
        samples_per_s=judged.measured.samples_per_s,
        side=judged.side,
        loading_per_s=loading,
        step_per_s=step,
        doubts=tuple(_doubts_of(judged)),
        parts=tuple(_parts_of(judged)),
    )


def _parts_of(judged: Judgement) -> Iterator[TimePart]:
    """Yield the parts of one batch's time, the wait first, then the work of the workers meanwhile."""
    measured = judged.measured
    if not measured.waits or not measured.steps:
        return
    loading_s = (measured.waiting_s - measured.copying_s) / measured.waits
    yield TimePart("waiting for the loader" if measured.num_workers else "loading", loading_s)
    seconds = {
        "model, backward pass, optimizer": judged.step["model"],
        "logging, saving, drawing": spent(measured.training, "work"),
        "other code of the script": spent(measured.training, "script"),
        "copying to the device": judged.step["copy"],
        "synchronising gradients": judged.step["network"],
        "waiting for other ranks": measured.held_up_s,
    }
    for name, part_s in seconds.items():
        copied_s = measured.copying_s / measured.waits if name.startswith("copying") else 0.0
        mean_s = measured.step_s * part_s / (sum(seconds.values()) or 1.0) + copied_s
        if mean_s or name.startswith("model"):
            yield TimePart(name, mean_s)
    if measured.num_workers:
        made_s = per_s(judged.rates.loading, measured.samples_a_batch)
        yield TimePart(f"{format_count(measured.num_workers, 'worker')}, loading", made_s, is_meanwhile=True)


def _headline_of(judged: Judgement) -> str:
    """Return the verdict as a sentence."""
    measured, verdict = judged.measured, judged.verdict
    if verdict == "little":
        all_s = format_duration(measured.waited_s + measured.stepping_s + measured.warmup_s)
        start = f", starting workers {format_duration(measured.first_wait_s)} of it"
        batches = format_count(measured.batches, "batch", "batches")
        took = f"{batches} took {all_s}{start if measured.num_workers else ''}"
        return f"There is too little work for loading to matter: {took}."
    limit = CAUSES[verdict][0]
    if verdict == "main thread" and spent(measured.training, "work") > spent(measured.training, "script"):
        limit = "Logging, saving or drawing on the main thread is the limit"
    if ended := ran_out_of(measured.error):
        return f"{limit}: the training ended because {_ENDED[ended]}."
    part = judged.share(verdict)
    if verdict not in ("model", "copy") and part >= LEAST_SHARE:
        limit += f", with {part:.0%} of {'each step' if verdict in judged.step else 'loading'}"
    loading, step = (rate_text(rate, measured.unit) for rate in (judged.rates.loading, judged.rates.step))
    return f"{limit}: the loader alone makes {loading}, the training step alone takes {step}."


def rate_text(rate: float, unit: str) -> str:
    """Return a rate for printing: `1,200 samples/s`."""
    if not math.isfinite(rate):
        return f"any number of {unit}"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"


def _evidence_of(judged: Judgement) -> Iterator[str]:
    """Yield the measurements in sentences."""
    measured, start_s = judged.measured, judged.rates.start_s
    yield from _step_evidence(measured)
    if measured.made_samples:
        yield from _loading_evidence(judged)
    making = [one for one in attributed(measured.loading) if one.category != "collate"]
    yield from _places(making, "when making samples")
    yield from _places(measured.training, "in the training step")
    if start_s * measured.epochs > LEAST_SHARE * (measured.waited_s + measured.stepping_s):
        yield f"Starting and stopping the workers takes {format_duration(start_s)} in each epoch."
    if measured.store is not None and judged.share("storage") >= STORAGE_SHARE:
        size = format_size(measured.store.size_bytes)
        yield f"The data takes up {size} (file system: {measured.store.kind})."
        if fits_page_cache(measured.store, measured.machine.available_bytes):
            yield "That is less than half of the available memory: only the first epoch reads from the disk."
    for trial in measured.step_trials[:1]:
        if trial.flops and not trial.failure:
            share = trial.flops / trial.step_s / trial.peak_flops_per_s
            work = f"A step computes {trial.flops / 1e9:.3g} GFLOP, at {share:.0%} of the rate of a large"
            yield f"{work} matrix product: far below 100%, memory, Python or small operations take the time."
    if measured.gpu_share:
        yield f"The GPU was busy {measured.gpu_share:.0%} of the time."


def _step_evidence(measured: TrainingMeasurements) -> Iterator[str]:
    batches = f"batches of {measured.batch_size}" if measured.batch_size else "batches made by the dataset"
    if measured.waits and measured.steps:
        rate = f"{rate_text(measured.samples_per_s, measured.unit)} in {batches}"
        text = batch_text(rate, measured.wait_s, measured.step_s)
        if measured.step_delayed_s > LEAST_SHARE * measured.stepping_s:
            delayed = format_duration(measured.step_delayed_s / measured.steps)
            text += f" For {delayed} of a step no CPU was free, which the two rates leave out."
        yield text
    else:
        yield f"Too few batches to measure: {measured.batches}, in {batches}."
    if measured.warmup_steps:
        steps = "first step" if measured.warmup_steps == 1 else f"first {measured.warmup_steps} steps"
        yield (
            f"The {steps} took {format_duration(measured.warmup_s)}: warm-up, such as compilation. All other "
            "figures exclude it."
        )
    if measured.role == "evaluation":
        yield "No optimizer step used these batches, so they count as evaluation."


def _loading_evidence(judged: Judgement) -> Iterator[str]:
    measured = judged.measured
    made, work = measured.made_samples, measured.work
    one = "sample" if measured.batch_size else "batch"
    seconds = (taken_s / made for taken_s in (work.cpu_s, work.blocked_s, work.delayed_s))
    yield loading_text(measured.num_workers, one, *seconds)
    shares = {CAUSES[cause][1]: f"{judged.share(cause):.0%}" for cause in judged.loading}
    parts = [f"{name} {percent}" for name, percent in shares.items() if percent != "0%"]
    if parts:
        yield f"Time of loading: {', '.join(parts)}."
    if measured.num_workers and measured.trial("same") is None:
        yield "The loader could not be iterated again: its rate is that of its workers during the training."


def _places(sampled: Sequence[Sampled], where: str) -> Iterator[str]:
    """Yield the user's lines that take most of the time."""
    by_place: dict[str, float] = defaultdict(float)
    for one in sampled:
        by_place[one.place] += one.seconds
    all_s = sum(by_place.values())
    shown = [
        f"{seconds / all_s:.0%} {place}"
        for place, seconds in sorted(by_place.items(), key=lambda item: -item[1])
        if place and seconds > LEAST_SHARE * all_s
    ]
    if shown:
        yield f"Slowest lines {where}: {'; '.join(shown[:MOST_PLACES])}."


def fits_page_cache(store: DataStorage, available_bytes: int | None) -> bool:
    """Return whether the kernel keeps a dataset in memory: on a local disk, and small compared to memory."""
    return 2 * store.size_bytes < (available_bytes or 0) and not store.kind.startswith(("network", "fuse"))


def _doubts_of(judged: Judgement) -> Iterator[str]:
    """Yield the reasons why the figures may be wrong."""
    measured, machine = judged.measured, judged.measured.machine
    if judged.is_machine_busy:
        yield (
            f"The machine was busy with other work: other programs took {machine.other_cpus:.1f} of "
            f"{machine.cpus} CPUs. On an idle machine, loading and training may both be faster."
        )
    if judged.side == "balanced":
        yield "Loading and the training step are nearly equally fast: either may be the limit in another run."
    if 0 < measured.steps < _FEW_STEPS:
        yield f"Few steps were measured: {measured.steps}."
    if is_colder(measured):
        yield (
            "During the training, workers made batches much more slowly than afterwards: files came from the "
            "disk rather than from memory, or CPUs were busy. The verdict is by the training's own rate."
        )


def _limits_of(measured: TrainingMeasurements) -> Iterator[str]:
    """Yield the machine's limits that the training reaches, or may reach soon."""
    machine = measured.machine
    waiting_bytes = measured.num_workers * (measured.prefetch_factor or 2) * measured.batch_bytes
    if machine.usable_cpus < machine.cpus:
        yield (
            f"CPU quota: {machine.usable_cpus:g} CPUs' worth of time on {machine.cpus} CPUs (docker run "
            "--cpus, or Kubernetes' resources.limits.cpu). os.cpu_count() does not know of it, so programs "
            "start too many threads and workers."
        )
    if machine.open_files is not None and machine.open_files < FEW_OPEN_FILES:
        yield (
            f"ulimit -n: {machine.open_files} open files. torch's loader needs one per tensor that it "
            "passes, and each worker one per shard: run 'ulimit -n 65536' before the training."
        )
    yield from _memory_limits(measured)
    shared = machine.shared_memory_bytes
    if shared is not None and (waiting_bytes > MAJORITY * shared or shared <= SMALL_SHARED_MEMORY):
        remedy = (
            "fastload's loader does not use it."
            if measured.is_fastload
            else "torch's loader crashes with a bus error when it is full: use docker run --shm-size=8g, or "
            "fastload's DataLoader, which does not need it."
        )
        size, waiting = format_size(shared), format_size(waiting_bytes)
        yield f"/dev/shm: {size}, for {waiting} of prefetched batches. {remedy}"


def _memory_limits(measured: TrainingMeasurements) -> Iterator[str]:
    machine, sizes, text = measured.machine, measured.epoch_memory_bytes, format_size
    if machine.swapped_bytes > LEAST_SWAPPED:
        swapped = text(machine.swapped_bytes)
        yield f"Memory: {swapped} were swapped out to the disk: use fewer workers, or a smaller cache."
    spaces = (
        ("Memory", machine.available_bytes or 0, machine.memory_bytes or 0),
        ("GPU memory", machine.free_device_bytes, machine.device_bytes),
    )
    for name, free_bytes, all_bytes in spaces:
        if free_bytes < NEARLY_FULL * all_bytes:
            yield f"{name}: only {text(free_bytes)} are free of {text(all_bytes)}."
    # The first epoch fills caches.
    grown = [after - before for before, after in itertools.pairwise(sizes[1:])]
    if len(grown) > 1 and min(grown) > LEAST_GROWN * sizes[-1]:
        mean = text(sum(grown) / len(grown))
        yield f"Memory grows by {mean} in each epoch: keep loss.item(), because a loss keeps its graph."
