"""The verdict on a training: the slower of two rates is the side, what it does most is the cause."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fastload.doctor.evidence import doubts_of, evidence_of, headline_of, limits_of, ran_out_of
from fastload.doctor.findings import Diagnosis, Forecast, Share, Side, TrainingMeasurements, Verdict
from fastload.doctor.fixes import fixes_of
from fastload.doctor.rates import LoadingWork, Rates, loading_work, rates_of, seen_loading_per_s, spent

BALANCED = 0.9
"""Two rates are balanced if the slower is more than this share of the faster: on a machine that does other
work, stack samples and clocks tell no smaller difference."""

LEAST_S = 0.25
"""A training of less than this in all has nothing to gain."""

MOST_STARTING, LONG_EPOCH_S = 0.4, 10.0
"""Workers whose start takes more than this share of an epoch have too little to do; nobody minds that in an
epoch of more than so many seconds."""

LEAST_BUSY = 0.6
"""Workers are not the cause where their loader gives less than this share of what they make."""


def diagnose(measured: TrainingMeasurements) -> Diagnosis:
    """Return the verdict, its evidence and the fixes for what was measured."""
    rates, work = rates_of(measured), loading_work(measured)
    side = side_of(measured, rates)
    verdict = verdict_of(measured, rates, work)
    return Diagnosis(
        verdict=verdict,
        headline=headline_of(measured, rates, work, verdict),
        evidence=tuple(evidence_of(measured, rates, work)),
        fixes=fixes_of(measured, rates, work, verdict),
        limits=tuple(limits_of(measured)),
        samples_per_s=measured.samples_per_s,
        side=side,
        loading_per_s=_finite(rates.loading),
        step_per_s=_finite(rates.step),
        doubts=tuple(doubts_of(measured, rates, side)),
        shares=tuple(_shares(measured, work)),
        forecast=_forecast(measured, rates),
    )


def side_of(measured: TrainingMeasurements, rates: Rates) -> Side:
    """Return the slower side."""
    slower, faster = sorted((rates.loading, rates.step))
    if math.isfinite(faster) and slower > BALANCED * faster:
        return "balanced"
    return "loading" if rates.loading < rates.step else "training step"


def verdict_of(measured: TrainingMeasurements, rates: Rates, work: LoadingWork) -> Verdict:
    """Return what the slower side does most."""
    if ran_out_of(measured.error):
        return "transport"
    if _is_little(measured, rates):
        return "little"
    if rates.step <= rates.loading:
        return _step_verdict(measured)
    if measured.copying_s > 0.5 * measured.waiting_s > 0:
        return "copy"
    if _are_workers_idle(measured):
        return "transport"
    parts: dict[Verdict, float] = {"storage": work.storage_s, "decoding": work.decoding_s}
    parts["transforms" if work.is_told_apart else "preparing"] = work.transforms_s
    parts["transport"] = work.collate_s
    return max(parts, key=lambda name: parts[name])


def _step_verdict(measured: TrainingMeasurements) -> Verdict:
    seconds: dict[Verdict, float] = {
        "model": spent(measured.training, "model"),
        "main thread": spent(measured.training, "work"),
        "copy": spent(measured.training, "copy"),
    }
    return max(seconds, key=lambda name: seconds[name])


def _is_little(measured: TrainingMeasurements, rates: Rates) -> bool:
    batches = measured.batches / measured.epochs
    if measured.was_cut and measured.epoch_batches:
        batches = max(batches, measured.epoch_batches)
    working_s = batches * (measured.wait_s + measured.step_s)
    if not measured.waits:
        working_s = batches * (measured.step_s + measured.samples_a_batch / seen_loading_per_s(measured))
    start_s = measured.first_wait_s / measured.epochs if measured.num_workers else 0.0
    if measured.trial("same") is not None:
        start_s = min(start_s, rates.start_s)
    if measured.epochs * (working_s + start_s) < LEAST_S:
        return True
    return start_s > MOST_STARTING * (start_s + working_s) and start_s + working_s < LONG_EPOCH_S


def _are_workers_idle(measured: TrainingMeasurements) -> bool:
    """Return whether the loader gives much less than its workers make, even while nobody trains."""
    busy_s = [worker.busy_s for worker in measured.workers if worker.batches]
    same = measured.trial("same")
    if not busy_s or same is None or measured.batches < 4 * measured.num_workers:
        return False
    # One that is much slower than the others holds up all: that is a matter of its samples.
    is_even = max(busy_s) <= 1.5 * sum(busy_s) / len(busy_s)
    batches = sum(worker.batches for worker in measured.workers)
    made_per_s = batches * measured.samples_a_batch * measured.num_workers / sum(busy_s)
    return is_even and same.samples_per_s < LEAST_BUSY * made_per_s


def _shares(measured: TrainingMeasurements, work: LoadingWork) -> Iterator[Share]:
    """Yield the parts of a sample's time: waits by what they wait for, steps by what they do."""
    size = measured.samples_a_batch
    loading_s = max(0.0, measured.waiting_s - measured.copying_s) / max(1, measured.waits) / size
    if measured.copying_s > 0:
        yield Share("waiting for the copy to the device", measured.copying_s / measured.waits / size, True)
    making = "transforms" if work.is_told_apart else "making samples"
    for name, seconds in (
        ("reading", work.storage_s),
        ("decoding", work.decoding_s),
        (making, work.transforms_s),
        ("collating", work.collate_s),
    ):
        if seconds > 0 and loading_s > 0:
            yield Share(f"waiting: {name}", loading_s * work.share(seconds), True)
    step_s = measured.step_s / size
    seen_s = spent(measured.training, "model", "work", "copy") or 1.0
    work_s, copy_s = (spent(measured.training, name) / seen_s * step_s for name in ("work", "copy"))
    for name, seconds in (("copying to the device", copy_s), ("logging and the like", work_s)):
        if seconds > 0:
            yield Share(name, seconds, False)
    yield Share("the model's step", step_s - work_s - copy_s, False)


def _forecast(measured: TrainingMeasurements, rates: Rates) -> tuple[Forecast, ...]:
    """Return the throughput by workers, for the numbers that were tried."""
    found = {measured.num_workers: rates.combined()}
    for trial in measured.trials:
        if trial.kind == "workers":
            found[trial.num_workers] = rates.with_trial(trial).combined()
    return tuple(Forecast(workers, rate) for workers, rate in sorted(found.items()) if math.isfinite(rate))


def _finite(rate: float) -> float:
    return rate if math.isfinite(rate) else 0.0
