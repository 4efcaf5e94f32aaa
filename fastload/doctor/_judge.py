"""Verdict on a training run: its side is the slower of two rates, its cause the largest part of that side."""

from __future__ import annotations

import math

from fastload.doctor._evidence import doubts_of, evidence_of, headline_of, limits_of, ran_out_of
from fastload.doctor._fixes import fixes_of
from fastload.doctor._rates import (
    MAJORITY,
    CauseSeconds,
    Rates,
    loading_work,
    per_s,
    rates_of,
    seen_loading_per_s,
    step_work,
)
from fastload.doctor.findings import Diagnosis, SlowerSide, TrainingMeasurements, Verdict
from fastload.loader.report import LEAST_S, slower_cause

BALANCED = 0.9
"""Two rates are balanced if the slower is more than this share of the faster: on a machine that does other
work, stack samples and clocks cannot resolve a smaller difference."""

MOST_STARTING, LITTLE_WORK_S = 0.4, 1.0
"""Workers have too little to do if starting them takes more than 40 % of the epoch, and the rest of the epoch
takes less than a second."""

GPU_BUSY = 0.9
"""A GPU that computes for more than this share of the time is the limit, wherever the host waits."""


def diagnose(measured: TrainingMeasurements) -> Diagnosis:
    """Return the verdict, its evidence and the fixes for a training run that was measured."""
    rates, loading, step = rates_of(measured), loading_work(measured), step_work(measured)
    side = _side_of(measured, rates)
    verdict = _verdict_of(measured, rates, loading, step)
    return Diagnosis(
        verdict=verdict,
        headline=headline_of(measured, rates, step if verdict in step else loading, verdict),
        evidence=tuple(evidence_of(measured, rates, loading)),
        fixes=fixes_of(measured, rates, loading, verdict),
        limits=tuple(limits_of(measured)),
        samples_per_s=measured.samples_per_s,
        side=side,
        loading_per_s=rates.loading if math.isfinite(rates.loading) else 0.0,
        step_per_s=rates.step if math.isfinite(rates.step) else 0.0,
        doubts=tuple(doubts_of(measured, rates, side)),
    )


def _side_of(measured: TrainingMeasurements, rates: Rates) -> SlowerSide:
    """Return the slower side."""
    if measured.gpu_share > GPU_BUSY:
        return "training step"
    slower, faster = sorted((rates.loading, rates.step))
    if math.isfinite(faster) and slower > BALANCED * faster:
        return "balanced"
    return "loading" if rates.loading < rates.step else "training step"


def _verdict_of(
    measured: TrainingMeasurements, rates: Rates, loading: CauseSeconds, step: CauseSeconds
) -> Verdict:
    """Return the cause on which the slower side spends most."""
    if ran_out_of(measured.error):
        return "transport"
    if _is_little(measured, rates):
        return "little"
    if measured.gpu_share > GPU_BUSY:
        # A GPU that waits for gradients is busy, too.
        return "network" if step["network"] > step["model"] else "model"
    is_step_slower = rates.step <= rates.loading
    if not is_step_slower and measured.copying_s > MAJORITY * measured.waiting_s > 0:
        return "copy"
    return slower_cause(step, loading, is_step_slower, _busy_share(measured), "transport")


def _is_little(measured: TrainingMeasurements, rates: Rates) -> bool:
    batches = measured.batches / measured.epochs
    if measured.was_cut and measured.epoch_batches:
        batches = max(batches, measured.epoch_batches)
    seen_s = measured.samples_a_batch / seen_loading_per_s(measured)
    working_s = batches * ((measured.wait_s if measured.waits else seen_s) + measured.step_s)
    start_s = measured.first_wait_s / measured.epochs if measured.num_workers else 0.0
    if measured.trial("same") is not None:
        start_s = min(start_s, rates.start_s)
    if measured.epochs * (working_s + start_s) < LEAST_S:
        return True
    return working_s < LITTLE_WORK_S and start_s > MOST_STARTING * (start_s + working_s)


def _busy_share(measured: TrainingMeasurements) -> float:
    """Return the share of what its workers could make that the loader gives; 1 if unknown."""
    same = measured.trial("same")
    if not measured.work.batches or same is None or measured.batches < 4 * measured.num_workers:
        return 1.0
    # By the busiest worker, because one that is much slower than the others holds all of them up.
    made_per_s = per_s(measured.busiest_s, measured.made_samples)
    # Other programs may have slowed down one of the two runs.
    return max(same.samples_per_s, measured.samples_per_s) / made_per_s if made_per_s else 1.0
