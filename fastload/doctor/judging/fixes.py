"""Fixes: changes that are tried on the user's own data, others, their order, and the diagnosis with them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from dataclasses import replace

from fastload.doctor.findings import MOST_GAIN, Diagnosis, Fix, LoaderTrial, TrainingMeasurements
from fastload.doctor.judging.evidence import STORAGE_SHARE, diagnosis_of, fits_page_cache, rate_text
from fastload.doctor.judging.judge import (
    MAJORITY,
    Judgement,
    Rates,
    attributed,
    is_colder,
    judge,
    ran_out_of,
)
from fastload.doctor.judging.step_changes import COSTLY, EFFORT, LEAST_GAIN, OF_STEP, TriedChange
from fastload.doctor.judging.step_fixes import OF_LOADER, STEP_CHANGES, combination, seen_fixes
from fastload.doctor.trials import Trials
from fastload.system.units import format_duration, format_size

ENOUGH = 0.95
"""The fewest workers that reach this share of the best rate are advised: each takes some 200 MB."""

MOST_OF_MEMORY = 0.7
"""The share of the available memory that may be filled with data; the rest is for the training."""

_COSTLY = frozenset({"decoder", "pack", *COSTLY})
# What is known to cost most comes first, although its gain is unknown here.
_FIRST = frozenset({"device", "parallel"})

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
_CREATE_ONCE = "create the loader once, before the first epoch: "
_COMPILED = "import fastload; from fastload import DataLoader; DataLoader(fastload.{}({!r}, transform=…), …)"


def _has_workers(judged: Judgement) -> bool:
    return judged.measured.num_workers > 0


def _reads_much(judged: Judgement) -> bool:
    """Return whether loading is the limit, and reads for a part of it that is worth mentioning."""
    return judged.is_of_loading and judged.share("storage") >= STORAGE_SHARE


def _decodes_much(judged: Judgement) -> bool:
    return judged.is_of_loading and judged.share("decoding") >= STORAGE_SHARE


def _waits(judged: Judgement) -> bool:
    """Return whether the training waits for the loader, whatever the verdict: it may be a close one."""
    measured = judged.measured
    copying_s = measured.copying_s / (measured.waits or 1)
    return judged.verdict != "little" and measured.wait_s - copying_s > (LEAST_GAIN - 1) * measured.step_s


def _needs_other_workers(judged: Judgement) -> bool:
    return _waits(judged) or (judged.verdict == "little" and _has_workers(judged))


def _with_workers(trials: Trials, judged: Judgement) -> Iterator[LoaderTrial]:
    for number in workers_to_try(judged.measured):
        yield from trials.with_workers(number, is_cold=_reads_much(judged))


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


def _rates_without(judged: Judgement) -> Rates:
    """Return the rates with which trials are compared: those of the loader's own trial if they differ.

    Workers that were slower during the training than in their trial, although they read little, had to share
    the CPUs with the step. So would those of any other loader.
    """
    same = judged.measured.trial("same")
    if same is None or _reads_much(judged) or not is_colder(judged.measured):
        return judged.rates
    return judged.rates.with_trial(same)


def _fix(judged: Judgement, trial: LoaderTrial, action: str) -> Fix:
    """Return the fix behind a trial, with its gain and a sentence with all parts of the gain."""
    measured, rates = judged.measured, _rates_without(judged)
    text = functools.partial(rate_text, unit=measured.unit)
    # Files that are packed, or decoded differently, still have to be read.
    is_read = trial.kind not in ("workers", "cache") and measured.made_samples and _reads_much(judged)
    read_s = measured.work.blocked_s / measured.made_samples if is_read else 0.0
    after = rates.with_trial(trial, read_s)
    with_it, without = text(trial.samples_per_s), text(rates.loading)
    why = [f"tried on your data: the loader gives {with_it} with it, {without} without"]
    why += ["reading takes as long as before"] if read_s else []
    if bool(after.num_workers) != bool(rates.num_workers):
        why.append(f"loading and training {'overlap' if after.num_workers else 'take turns'} with it")
    if after.num_workers and rates.step < after.loading:
        why.append(f"the training step alone takes at most {text(rates.step)}")
    if after.num_workers and after.by_cpus < min(after.loading, rates.step):
        why.append(f"the CPUs suffice for {text(after.by_cpus)}")
    if judged.verdict == "little" and rates.start_s > after.start_s:
        why.append(
            f"it saves {format_duration(rates.start_s - after.start_s)} of starting workers in each epoch"
        )
    before, with_fix = judged.throughput(rates), judged.throughput(after)
    why.append(f"in all, {text(with_fix)} instead of {text(before)}")
    return Fix(trial.kind, action, "; ".join(why), with_fix / before)


def _persistence(judged: Judgement) -> Iterator[Fix]:
    measured, rates = judged.measured, judged.rates
    if measured.epochs > 1 and rates.start_s and not measured.persistent_workers:
        yield Fix(
            "persistent workers",
            f"{_CREATE_ONCE if measured.is_recreated else ''}DataLoader(…, persistent_workers=True)",
            f"each of {measured.epochs} epochs starts workers for {format_duration(rates.start_s)}",
            replace(rates, start_s=rates.start_s / measured.epochs).of_epoch() / rates.of_epoch(),
        )


def _number_of_workers(judged: Judgement) -> Iterator[Fix]:
    measured, rates = judged.measured, _rates_without(judged)
    tried = {trial.num_workers: trial for trial in measured.trials_of("workers")}
    present = measured.num_workers
    totals = {number: judged.throughput(rates.with_trial(trial)) for number, trial in tried.items()}
    totals[present] = judged.throughput(rates)
    best = min(number for number, total in totals.items() if total >= ENOUGH * max(totals.values()))
    # Where other programs take the CPUs, fewer workers only seem to suffice.
    is_doubtful = best < present and judged.is_machine_busy and judged.verdict != "little"
    if best == present or is_doubtful:
        return
    fix = _fix(judged, tried[best], f"DataLoader(…, num_workers={best}) instead of num_workers={present}")
    if (fix.gain or 0.0) < LEAST_GAIN and 0 < 2 * best <= present:
        why = f"{best} workers are as fast as {present}, and each takes some 200 MB"
        fix = replace(fix, gain=None, why=why)
    yield replace(fix, kind="workers" if best else "no workers")


def _cache(judged: Judgement) -> Iterator[Fix]:
    measured, trial = judged.measured, judged.measured.trial("cache")
    store, available = measured.store, measured.machine.available_bytes
    if trial is None or store is None or fits_page_cache(store, available):
        return
    places = []
    if store.size_bytes < MOST_OF_MEMORY * (available or 0):
        places.append("copy the files to /dev/shm once, and read them there")
    kind = "FolderDataset" if measured.encoding is None else "PackedDataset"
    places.append(f'fastload.{kind}(…, cache="auto")')
    fix = _fix(judged, trial, f"keep the data in memory: {', or '.join(places)}")
    yield replace(fix, why=f"{fix.why}; from the second epoch on")


def _one_line(judged: Judgement) -> Iterator[Fix]:
    measured, loader = judged.measured, _use_fastload(judged.measured)
    for trial in measured.trials_of("loader"):
        yield _fix(judged, trial, loader)
    for trial in measured.trials_of("compile"):
        unedited = f"; or, without editing: fastload run {measured.command}" if measured.command else ""
        yield _fix(judged, trial, "leave out compile=False" if measured.is_fastload else loader + unedited)


def _use_fastload(measured: TrainingMeasurements) -> str:
    """Return how to use fastload's loader, in words."""
    action = "from fastload import DataLoader instead of torch.utils.data"
    return f"{action} as the base class of {measured.own_class}" if measured.own_class else action


def _other_data(judged: Judgement) -> Iterator[Fix]:
    measured = judged.measured
    for trial in measured.trials_of("decoder"):
        yield _fix(judged, trial, _COMPILED.format("FolderDataset", measured.folder))
    for trial in measured.trials_of("pack"):
        samples = measured.store.samples if measured.store is not None else 0
        room = f" ({format_size(samples * trial.stored_bytes)})" if samples and trial.stored_bytes else ""
        packing = f"fastload pack {shlex.quote(measured.folder)} data.fl --encode {trial.encoding}"
        use = _COMPILED.format("PackedDataset", "data.fl")
        yield _fix(judged, trial, f"{packing}, which makes data.fl{room}, then {use}")


CHANGES = (
    TriedChange("none", _has_workers, lambda trials, _: trials.tried("same"), _persistence),
    TriedChange("cache", _reads_much, lambda trials, _: trials.cached(), _cache),
    TriedChange("workers", _needs_other_workers, _with_workers, _number_of_workers),
    TriedChange("loader", _waits, lambda trials, _: trials.one_line(), _one_line, is_last=True),
    TriedChange("data", _decodes_much, lambda trials, _: trials.from_files(), _other_data, is_last=True),
    *STEP_CHANGES,
)


# torch refuses persistent workers without workers.
_EITHER = ("no workers", "persistent workers")


def diagnose(measured: TrainingMeasurements) -> Diagnosis:
    """Return the verdict, its evidence and the fixes for a training run that was measured."""
    judged = judge(measured)
    fixes = _fixes_of(judged)
    found = diagnosis_of(judged, fixes)
    first = fixes[0].kind if fixes else ""
    # The headline names both sides if the first fix is not of the slower one.
    if (judged.verdict in judged.step and first in OF_LOADER) or (judged.is_of_loading and first in OF_STEP):
        both = f"Loading and the training step both limit it: {found.headline.partition(': ')[2]}"
        found = replace(found, headline=both)
    return replace(found, combination=tuple(combination(judged, fixes)))


def _fixes_of(judged: Judgement) -> tuple[Fix, ...]:
    """Return the fixes by gain, which counts less if other data is needed; unmeasured fixes come last.

    Before these come workers that persist: what they gain depends on the length of an epoch, which is often
    shorter in a trial run than in the training.
    """
    if ended := ran_out_of(judged.measured.error):
        why = "its batches do not go through /dev/shm"
        return (_MORE_FILES if ended == "open files" else Fix("loader", _use_fastload(judged.measured), why),)
    tried = [fix for change in CHANGES if change.can_help(judged) for fix in change.fixes(judged)]
    is_compiled = any(fix.kind == "compile" and (fix.gain or 0.0) >= LEAST_GAIN for fix in tried)
    found = [*_untried_fixes(judged, is_compiled), *tried]

    def rank(fix: Fix) -> tuple[bool, bool, bool, float]:
        is_of_start = fix.kind == "persistent workers" and judged.verdict != "little"
        effort = EFFORT if fix.kind in _COSTLY else 1.0
        return fix.kind not in _FIRST, fix.gain is None, is_of_start, -(fix.gain or 0.0) / effort

    ranked = sorted((fix for fix in found if fix.gain is None or fix.gain >= LEAST_GAIN), key=rank)
    excluded = [fix for fix in ranked if fix.kind in _EITHER][1:]
    return tuple(
        fix if fix.gain is None else replace(fix, gain=min(fix.gain, MOST_GAIN))
        for fix in ranked
        if fix not in excluded
    )


def _untried_fixes(judged: Judgement, is_compiled: bool) -> Iterator[Fix]:
    measured, verdict = judged.measured, judged.verdict
    yield from seen_fixes(judged)
    if verdict == "network":
        wait = format_duration(measured.network_s / measured.steps)
        why = (
            "which are then exchanged once for several batches; to the optimizer, these are one larger batch"
        )
        yield Fix("accumulation", _ACCUMULATION, f"each step waits {wait} for gradients, {why}")
        yield _COMPRESSION
        if measured.machines > 1:
            action = "train on the GPUs of one machine, or connect the machines by a faster network"
            why = f"gradients cross the network between {measured.machines} machines"
            yield Fix("one machine", action, why)
    if verdict in ("transport", "copy") and measured.device != "cpu" and not measured.pin_memory:
        yield _PINNED
    if not judged.is_of_loading:
        return
    if measured.is_iterable and not measured.num_workers:
        action = "DataLoader(…, num_workers=…), if the dataset divides its samples by get_worker_info()"
        yield Fix("workers", action, "not tried: otherwise, each worker repeats all samples")
    if _reads_much(judged) and measured.encoding is None and not measured.trial("pack"):
        packing = f"pack the files into shards: fastload pack {shlex.quote(measured.folder)} data.fl"
        why = "shards are read in long runs; how fast depends on the disk that they will be on"
        yield Fix("pack", f"{packing}, then fastload.PackedDataset('data.fl')", why)
    slowest = next((one.place for one in attributed(measured.loading) if one.category == "transform"), "")
    # In a compiled dataset, another transform may be the slowest.
    if slowest and judged.share("transforms") >= STORAGE_SHARE and not is_compiled:
        where = "once before the training, on whole batches, on the device, or with fastload.transforms"
        why = "it takes most of the transforms' time"
        yield Fix("transform", f"make {slowest} cheaper: do it {where}", why)
