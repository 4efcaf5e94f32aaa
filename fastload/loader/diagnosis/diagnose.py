"""From measurements to a diagnosis."""

from __future__ import annotations

from fastload.loader.diagnosis.costs import Costs, costs_of, receive_s, spent
from fastload.loader.diagnosis.evidence import evidence_of, headline_of
from fastload.loader.diagnosis.extent import made_samples
from fastload.loader.diagnosis.findings import Diagnosis, Forecast, Share
from fastload.loader.diagnosis.fixes import fixes_of
from fastload.loader.diagnosis.limits import limits_of
from fastload.loader.diagnosis.measurements import Measurements, Setting
from fastload.loader.diagnosis.stepping import with_bounded_copies
from fastload.loader.diagnosis.verdicts import Work, verdict_of, work_of
from fastload.loader.times import EpochTimes

_FORECAST = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def of_epoch(times: EpochTimes, setting: Setting) -> Diagnosis:
    """What the steps of an epoch say: all that is known without looking into the work on a sample.

    Decoding and transforms are not told apart; `fastload doctor train.py` does.

    Args:
        times: The epoch's steps.
        setting: How its loader was set.
    """
    return diagnose(Measurements(times, setting))


def diagnose(measured: Measurements) -> Diagnosis:
    """What holds a training back, why, and what to do about it."""
    measured = with_bounded_copies(measured)
    costs = costs_of(measured)
    work = work_of(measured, costs.blocked_s * made_samples(measured))
    verdict = verdict_of(measured, work)
    fixes = fixes_of(measured, costs, work, verdict)
    return Diagnosis(
        verdict=verdict,
        headline=headline_of(measured, work, verdict),
        evidence=tuple(evidence_of(measured, costs, work)),
        fixes=fixes,
        limits=tuple(limits_of(measured)),
        samples_per_s=measured.times.samples_per_s,
        shares=tuple(_shares(measured, work)),
        forecast=tuple(_forecast(measured, costs)),
    )


def _shares(measured: Measurements, work: Work) -> list[Share]:
    """Where the time from one batch to the next goes: waits by what they wait for, steps by what they do."""
    times = measured.times
    samples = max(1, times.samples)
    received_s = receive_s(measured)
    loading_s = max(0.0, times.waiting_s - received_s)
    parts = [("waiting for the copy to the device", times.copying_s)]
    parts.append(("waiting: taking batches in", received_s - min(received_s, times.copying_s)))
    names = ("reading", "decoding", "transforms", "making batches")
    if not work.is_told_apart:
        names = ("reading", "", "making samples", "making batches")
    seconds = (work.storage_s, work.decoding_s, work.transforms_s, work.collate_s)
    for name, part_s in zip(names, seconds, strict=True):
        if part_s > 0 and work.total_s > 0:
            parts.append((f"waiting: {name}", loading_s * part_s / work.total_s))
    shares = [Share(name, part_s / samples, True) for name, part_s in parts if part_s > 0]
    work_s, copy_s = spent(measured.training, "work"), spent(measured.training, "copy")
    seen_s = max(1e-12, spent(measured.training, "model", "work", "copy"))
    for name, part_s in (("copying to the device", copy_s), ("logging and the like", work_s)):
        if part_s > 0:
            shares.append(Share(name, times.stepping_s * part_s / seen_s / samples, False))
    rest = max(0.0, times.stepping_s * (1 - (work_s + copy_s) / seen_s))
    shares.append(Share("the model's step", rest / samples, False))
    return shares


def _forecast(measured: Measurements, costs: Costs) -> list[Forecast]:
    """The throughput by workers, held to the one that was measured."""
    times = measured.times
    modelled = costs.throughput(times.num_workers)
    if times.samples_per_s <= 0 or modelled in (0.0, float("inf")):
        return []
    scale = times.samples_per_s / modelled
    best = costs.best_workers()
    most = max(4, 2 * measured.setting.cpus, best, times.num_workers)
    numbers = sorted({*(n for n in _FORECAST if n <= most), times.num_workers, best})
    return [Forecast(workers, scale * costs.throughput(workers)) for workers in numbers]
