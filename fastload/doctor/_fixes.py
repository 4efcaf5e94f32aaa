"""Fixes and their gains: the rates of the trials, combined with the step by one rule."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastload.doctor._evidence import LEAST_SHARE, STORAGE_SHARE, fits_page_cache, ran_out_of, rate_text
from fastload.doctor._rates import (
    LOADING_CAUSES,
    MAJORITY,
    STEP_CAUSES,
    CauseSeconds,
    Rates,
    attributed,
    loading_work,
    share,
    step_work,
)
from fastload.doctor.findings import MOST_GAIN, Fix, LoaderTrial, TrainingMeasurements, Verdict
from fastload.system.units import format_duration, format_size

LEAST_GAIN = 1.05
"""A smaller gain is not worth the trouble, and one second of measuring cannot resolve it."""

WRITES_LEFT = 0.1
"""The share of log writes that is left when logging less often."""

DATA_EFFORT = 2.0
"""A fix that packs the files or replaces the dataset has to gain this many times as much to be listed before
one that changes a line."""

_OTHER_DATA = frozenset({"decoder", "pack"})

ENOUGH = 0.95
"""The fewest workers that reach this share of the best rate are advised: each takes some 200 MB."""

MOST_OF_MEMORY = 0.7
"""The share of the available memory that may be filled with data; the rest is for the training."""

_CREATE_ONCE = "create the loader once, before the first epoch: "
_IMPORT = "import fastload; from fastload import DataLoader"

_MORE_FILES = Fix(
    "open files",
    "'ulimit -n 65536' before the training (docker run --ulimit nofile=65536:65536), or "
    "torch.multiprocessing.set_sharing_strategy('file_system')",
    "torch's workers pass one descriptor per tensor",
)
_PINNED = Fix(
    "pin",
    "DataLoader(…, pin_memory=True) with batch.to(device, non_blocking=True), or fastload's "
    'DataLoader(…, device="cuda")',
    "copies from page-locked memory overlap with the model",
)
_ACCUMULATION = "accumulate gradients over several batches: 'with model.no_sync():' around all but the last"
_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook"
_COMPRESSION = Fix(
    "compression",
    f"compress gradients: model.register_comm_hook(None, {_HOOKS}), or fp16_compress_hook, or powerSGD_hook",
    "the first two halve the bytes of float32; PowerSGD sends fewer, and approximates the gradients",
)


def fixes_of(
    measured: TrainingMeasurements, rates: Rates, loading: CauseSeconds, verdict: Verdict
) -> tuple[Fix, ...]:
    """Return the fixes by gain, which counts less if other data is needed; unmeasured fixes come last."""
    found = _candidates(measured, rates, loading, verdict)

    def rank(fix: Fix) -> tuple[bool, float]:
        return fix.gain is None, -(fix.gain or 0.0) / (DATA_EFFORT if fix.kind in _OTHER_DATA else 1.0)

    ranked = sorted((fix for fix in found if fix.gain is None or fix.gain >= LEAST_GAIN), key=rank)
    return tuple(fix if fix.gain is None else replace(fix, gain=min(fix.gain, MOST_GAIN)) for fix in ranked)


def _candidates(
    measured: TrainingMeasurements, rates: Rates, loading: CauseSeconds, verdict: Verdict
) -> Iterator[Fix]:
    ended = ran_out_of(measured.error)
    if ended:
        why = "its batches do not go through /dev/shm"
        yield _MORE_FILES if ended == "open files" else Fix("loader", _use_fastload(measured), why)
        return
    if verdict in STEP_CAUSES:
        yield from _log_fix(measured, rates)
    if verdict == "network":
        yield from _network_fixes(measured)
    if verdict in ("transport", "copy") and measured.device != "cpu" and not measured.pin_memory:
        yield _PINNED
    yield from _worker_fixes(measured, rates)
    if verdict in LOADING_CAUSES:
        yield from _loading_fixes(measured, rates, loading)


def _tried(
    measured: TrainingMeasurements, rates: Rates, trial: LoaderTrial, read_s: float = 0.0
) -> tuple[float, str]:
    """Return the gain of a trial, and a sentence with all of its parts."""
    after, text = rates.with_trial(trial, read_s), functools.partial(rate_text, unit=measured.unit)
    with_it, without = text(trial.samples_per_s), text(rates.loading)
    why = [f"tried on your data: the loader gives {with_it} with it, {without} without"]
    why += ["reading takes as long as before"] if read_s else []
    if bool(after.num_workers) != bool(rates.num_workers):
        why.append(f"loading and training {'overlap' if after.num_workers else 'take turns'} with it")
    if after.num_workers and rates.step < after.loading:
        why.append(f"the training step alone could use {text(rates.step)}")
    if after.num_workers and after.by_cpus < min(after.loading, rates.step):
        why.append(f"the CPUs suffice for {text(after.by_cpus)}")
    saved_s = rates.start_s - after.start_s
    if abs(saved_s) > LEAST_SHARE * rates.epoch_samples / rates.combined():
        start = f"{'saves' if saved_s > 0 else 'adds'} {format_duration(abs(saved_s))}"
        why.append(f"it {start} of starting workers in each epoch")
    warm_up = ", with warm-up" if rates.warmup_s else ""
    why.append(f"in all, {text(after.combined())} instead of {text(rates.combined())}{warm_up}")
    return after.combined() / rates.combined(), "; ".join(why)


def _worker_fixes(measured: TrainingMeasurements, rates: Rates) -> Iterator[Fix]:
    if measured.epochs > 1 and rates.start_s and not measured.persistent_workers:
        once = replace(rates, start_s=rates.start_s / measured.epochs)
        yield Fix(
            "persistent workers",
            f"{_CREATE_ONCE if measured.is_recreated else ''}DataLoader(…, persistent_workers=True)",
            f"each of {measured.epochs} epochs starts workers for {format_duration(rates.start_s)}",
            once.combined() / rates.combined(),
        )
    tried = {trial.num_workers: trial for trial in measured.trials_of("workers")}
    present = measured.num_workers
    totals = {number: rates.with_trial(trial).combined() for number, trial in tried.items()}
    totals[present] = rates.combined()
    best = min(number for number, total in totals.items() if total >= ENOUGH * max(totals.values()))
    if best == present:
        return
    gain: float | None
    gain, why = _tried(measured, rates, tried[best])
    if gain < LEAST_GAIN and 0 < 2 * best <= present:
        gain, why = None, f"{best} workers are as fast as {present}, and each takes some 200 MB"
    kind = "workers" if best else "no workers"
    action = f"DataLoader(…, num_workers={best}) instead of num_workers={present}"
    yield Fix(kind, action, why, gain)


def _loading_fixes(measured: TrainingMeasurements, rates: Rates, loading: CauseSeconds) -> Iterator[Fix]:
    if measured.is_iterable and not measured.num_workers:
        action = "DataLoader(…, num_workers=…), if the dataset divides its samples by get_worker_info()"
        yield Fix("workers", action, "not tried: otherwise, each worker repeats all samples")
    reads = share(loading, "storage") >= STORAGE_SHARE
    # Files that are packed, or decoded differently, still have to be read.
    read_s = measured.work.blocked_s / measured.made_samples if reads and measured.made_samples else 0.0
    compiling = 0.0
    for trial in measured.trials:
        if trial.kind == "cache":
            yield from _cache_fix(measured, rates, trial)
        elif trial.kind in ("loader", "compile", "decoder", "pack"):
            gain, why = _tried(measured, rates, trial, read_s)
            compiling = gain if trial.kind == "compile" else compiling
            yield Fix(trial.kind, _change(measured, trial), why, gain)
    if reads and measured.encoding is None and not measured.trial("pack"):
        packing = f"pack the files into shards: fastload pack {shlex.quote(measured.folder)} data.fl"
        why = "shards are read in long runs; how fast depends on the disk that they will be on"
        yield Fix("pack", f"{packing}, then fastload.PackedDataset('data.fl')", why)
    slowest = next((one.place for one in attributed(measured.loading) if one.category == "transform"), "")
    # In a compiled dataset, another transform may be the slowest.
    if slowest and share(loading, "transforms") >= STORAGE_SHARE and compiling < LEAST_GAIN:
        where = "once before the training, on whole batches, on the device, or with fastload.transforms"
        yield Fix(
            "transform", f"make {slowest} cheaper: do it {where}", "it takes most of the transforms' time"
        )


def _use_fastload(measured: TrainingMeasurements) -> str:
    """Return how to use fastload's loader, in words."""
    action = "from fastload import DataLoader instead of torch.utils.data"
    return f"{action} as the base class of {measured.own_class}" if measured.own_class else action


def _change(measured: TrainingMeasurements, trial: LoaderTrial) -> str:
    """Return the change behind a trial, in words."""
    if trial.kind == "loader":
        return _use_fastload(measured)
    if trial.kind == "compile":
        if measured.is_fastload:
            return "DataLoader(…, compile=True)"
        unedited = f"; or, without editing: fastload run {measured.command}" if measured.command else ""
        own = measured.own_class or "DataLoader"
        return f"{_use_fastload(measured)}, and {own}(…, compile=True){unedited}"
    compiled = f"{_IMPORT}; DataLoader(fastload.{{}}({{!r}}, transform=…), …, compile=True)"
    if trial.kind == "decoder":
        return compiled.format("FolderDataset", measured.folder)
    samples = measured.store.samples if measured.store is not None else 0
    room = f" ({format_size(samples * trial.stored_bytes)})" if samples and trial.stored_bytes else ""
    packing = f"fastload pack {shlex.quote(measured.folder)} data.fl --encode {trial.encoding}"
    return f"{packing}, which makes data.fl{room}, then {compiled.format('PackedDataset', 'data.fl')}"


def _cache_fix(measured: TrainingMeasurements, rates: Rates, trial: LoaderTrial) -> Iterator[Fix]:
    store, available = measured.store, measured.machine.available_bytes
    if store is None or fits_page_cache(store, available):
        return
    places = []
    if store.size_bytes < MOST_OF_MEMORY * (available or 0):
        places.append("copy the files to /dev/shm once, and read them there")
    kind = "FolderDataset" if measured.encoding is None else "PackedDataset"
    places.append(f'fastload.{kind}(…, cache="auto")')
    gain, why = _tried(measured, rates, trial)
    action = f"keep the data in memory: {', or '.join(places)}"
    yield Fix("cache", action, f"{why}; from the second epoch on", gain)


def _log_fix(measured: TrainingMeasurements, rates: Rates) -> Iterator[Fix]:
    logged = share(step_work(measured), "main thread")
    if logged:
        places = dict.fromkeys(one.place for one in measured.training if one.category == "work" and one.place)
        yield Fix(
            "fewer log writes",
            f"log, save and draw ten times less often: {'; '.join(list(places)[:3])}".rstrip(": "),
            f"logging, saving and drawing take {logged:.0%} of the step, and a tenth of that would be left",
            rates.with_step(1 - logged * (1 - WRITES_LEFT)).combined() / rates.combined(),
        )


def _network_fixes(measured: TrainingMeasurements) -> Iterator[Fix]:
    wait = format_duration(measured.network_s / measured.steps)
    why = "which are then exchanged once for several batches; to the optimizer, these are one larger batch"
    yield Fix("accumulation", _ACCUMULATION, f"each step waits {wait} for gradients, {why}")
    yield _COMPRESSION
    if measured.machines > 1:
        action = "train on the GPUs of one machine, or connect the machines by a faster network"
        yield Fix("one machine", action, f"gradients cross the network between {measured.machines} machines")


def trials_to_make(measured: TrainingMeasurements, verdict: Verdict) -> Sequence[str]:
    """Return the kinds of trials that can change the advice."""
    if verdict == "little":
        return ["workers"] if measured.num_workers else []
    kinds = ["workers"] if measured.wait_s > (LEAST_GAIN - 1) * measured.step_s else []
    if verdict in LOADING_CAUSES:
        loading = loading_work(measured)
        kinds.append("one line")
        if share(loading, "storage") >= STORAGE_SHARE:
            kinds.append("cache")
        if share(loading, "decoding") >= STORAGE_SHARE:
            kinds.append("files")
    return kinds


def workers_to_try(measured: TrainingMeasurements) -> list[int]:
    """Return the numbers of workers to try: about the usable CPUs; more if loading is often blocked."""
    cpus = max(1, round(measured.machine.usable_cpus + 0.49))
    if measured.is_iterable:
        return []  # Unless the dataset splits itself, each worker repeats all samples.
    numbers = {cpus, cpus // 2 if cpus >= 4 else cpus}
    if measured.work.blocked_s > MAJORITY * measured.work.busy_s:
        numbers.add(min(32, 4 * cpus))
    if measured.num_workers:
        numbers.add(0)
    return sorted(numbers - {measured.num_workers})
