"""Diagnosis of a training run that was measured: the judgement in words, and the fixes in their order."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace

from fastload.doctor._changes import CHANGES, LEAST_GAIN, reads_much, use_fastload
from fastload.doctor._evidence import STORAGE_SHARE, doubts_of, evidence_of, headline_of, limits_of
from fastload.doctor._judge import Judgement, attributed, judge, ran_out_of
from fastload.doctor.findings import MOST_GAIN, Diagnosis, Fix, TrainingMeasurements
from fastload.system.units import format_duration

WRITES_LEFT = 0.1
"""The share of log writes that is left when logging less often."""

DATA_EFFORT = 2.0
"""A fix that packs the files or replaces the dataset has to gain this many times as much to be listed before
one that changes a line."""

_OTHER_DATA = frozenset({"decoder", "pack"})

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


def diagnose(measured: TrainingMeasurements) -> Diagnosis:
    """Return the verdict, its evidence and the fixes for a training run that was measured."""
    judged = judge(measured)
    loading, step = (
        rate if math.isfinite(rate) else 0.0 for rate in (judged.rates.loading, judged.rates.step)
    )
    return Diagnosis(
        verdict=judged.verdict,
        headline=headline_of(judged),
        evidence=tuple(evidence_of(judged)),
        fixes=_fixes_of(judged),
        limits=tuple(limits_of(measured)),
        samples_per_s=measured.samples_per_s,
        side=judged.side,
        loading_per_s=loading,
        step_per_s=step,
        doubts=tuple(doubts_of(judged)),
    )


def _fixes_of(judged: Judgement) -> tuple[Fix, ...]:
    """Return the fixes by gain, which counts less if other data is needed; unmeasured fixes come last."""
    if ended := ran_out_of(judged.measured.error):
        why = "its batches do not go through /dev/shm"
        return (_MORE_FILES if ended == "open files" else Fix("loader", use_fastload(judged.measured), why),)
    tried = [fix for change in CHANGES if change.can_help(judged) for fix in change.fixes(judged)]
    is_compiled = any(fix.kind == "compile" and (fix.gain or 0.0) >= LEAST_GAIN for fix in tried)
    found = [*_untried_fixes(judged, is_compiled), *tried]

    def rank(fix: Fix) -> tuple[bool, float]:
        return fix.gain is None, -(fix.gain or 0.0) / (DATA_EFFORT if fix.kind in _OTHER_DATA else 1.0)

    ranked = sorted((fix for fix in found if fix.gain is None or fix.gain >= LEAST_GAIN), key=rank)
    return tuple(fix if fix.gain is None else replace(fix, gain=min(fix.gain, MOST_GAIN)) for fix in ranked)


def _untried_fixes(judged: Judgement, is_compiled: bool) -> Iterator[Fix]:
    measured, verdict = judged.measured, judged.verdict
    if verdict in judged.step and (logged := judged.share("main thread")):
        places = dict.fromkeys(one.place for one in measured.training if one.category == "work" and one.place)
        yield Fix(
            "fewer log writes",
            f"log, save and draw ten times less often: {'; '.join(list(places)[:3])}".rstrip(": "),
            f"logging, saving and drawing take {logged:.0%} of the step, and a tenth of that would be left",
            judged.rates.with_step(1 - logged * (1 - WRITES_LEFT)).combined() / judged.rates.combined(),
        )
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
    if reads_much(judged) and measured.encoding is None and not measured.trial("pack"):
        packing = f"pack the files into shards: fastload pack {shlex.quote(measured.folder)} data.fl"
        why = "shards are read in long runs; how fast depends on the disk that they will be on"
        yield Fix("pack", f"{packing}, then fastload.PackedDataset('data.fl')", why)
    slowest = next((one.place for one in attributed(measured.loading) if one.category == "transform"), "")
    # In a compiled dataset, another transform may be the slowest.
    if slowest and judged.share("transforms") >= STORAGE_SHARE and not is_compiled:
        where = "once before the training, on whole batches, on the device, or with fastload.transforms"
        why = "it takes most of the transforms' time"
        yield Fix("transform", f"make {slowest} cheaper: do it {where}", why)
