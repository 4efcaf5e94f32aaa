"""From measurements to a plan: pure, so that any situation can be replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastload.loader.tuning.plan import Choice, Limits, Measurements, Plan
from fastload.loader.tuning.search import (
    DEFAULT_PREFETCH,
    Candidate,
    batch_s,
    best_candidate,
    most_workers,
    next_candidate,
    prefetch_of,
    why_alone,
)
from fastload.system.units import milliseconds, times

_SAID = "as you said"

# Starting workers is worth a word where it takes such a share of an epoch.
_WORTH_SAYING = 0.05

# Page-locking a batch is another copy of it, which faster transfers have to make up for.
_WORTH_PINNING = 1.2


def decide(measured: Measurements, origin: str = "measured in this run") -> Plan:
    """Decides how to load.

    Args:
        measured: What is known.
        origin: Where it comes from, as a sentence.
    """
    best = best_candidate(measured)
    workers = _num_workers(measured, best)
    is_measuring = measured.alone is None and "num_workers" not in measured.said
    return Plan(
        num_workers=workers,
        prefetch_factor=_prefetch_factor(measured, best, int(workers.value)),
        pin_memory=_pin_memory(measured),
        persistent_workers=_persistent_workers(measured, best, int(workers.value)),
        cache=_cache(measured),
        measured=measured,
        is_settled=not is_measuring and ("num_workers" in measured.said or next_candidate(measured) is None),
        origin=origin,
    )


def explicit_plan(explicit: Mapping[str, Any], why_single_process: str = "") -> Plan:
    """Return the plan of a loader of which nothing is measured."""
    limits = Limits(cpus=1, most_workers=0, most_batches=0, reason="", start_s=0.0)
    plan = decide(Measurements(dict(explicit), limits, only_alone=why_single_process))
    return dataclasses.replace(plan, is_settled=True)


def _num_workers(measured: Measurements, best: Candidate) -> Choice:
    if "num_workers" in measured.said:
        return Choice(measured.said["num_workers"], _SAID)
    if measured.only_alone:
        return Choice(0, measured.only_alone)
    alone = measured.alone
    if alone is None:
        return Choice(0, "nothing has been measured yet: iterate the loader")
    if not measured.trials:
        return Choice(0, why_alone(measured) or "workers are about to be tried")
    rate = f"{alone.batch_size / _seconds(measured, best):,.0f} samples/s"
    if not best.num_workers:
        others = [t for t in measured.trials if t.num_workers]
        fastest = min((trial.batch_s for trial in others), default=0.0)
        if not fastest:
            return Choice(0, f"{rate} without workers")
        return Choice(0, f"{rate}; with workers {alone.batch_size / fastest:,.0f} at the most")
    gain = alone.batch_s / _seconds(measured, best)
    reason = f"{rate}, {times(gain)} what the training process loads alone"
    at_limit = best.num_workers == most_workers(measured)
    return Choice(best.num_workers, f"{reason}; {measured.limits.reason}" if at_limit else reason)


def _prefetch_factor(measured: Measurements, best: Candidate, workers: int) -> Choice:
    said = measured.said.get("prefetch_factor")
    if said is not None:
        return Choice(said, _SAID)
    if not workers:
        return Choice(None, "there are no workers")
    if best.prefetch_factor == DEFAULT_PREFETCH:
        reason = "torch's default: more batches in advance were not faster, or not needed"
    elif "num_workers" not in measured.said and best.prefetch_factor == prefetch_of(measured, workers):
        reason = f"{workers * best.prefetch_factor} batches under way hide that some take longer than others"
    else:
        reason = "measured: fewer batches in advance leave the training waiting"
    return Choice(best.prefetch_factor, reason)


def _pin_memory(measured: Measurements) -> Choice:
    if "pin_memory" in measured.said:
        return Choice(measured.said["pin_memory"], _SAID)
    if measured.said.get("device") is not None:
        return Choice(False, "batches go to the device from the memory that workers wrote, locked once")
    if not measured.has_cuda:
        return Choice(False, "this process uses no CUDA device")
    gain = measured.pinning_gain
    if gain is None:
        return Choice(False, "copies to the device have not been measured yet")
    reason = f"copies of a batch to the device are {times(gain)} as fast from page-locked memory"
    return Choice(gain >= _WORTH_PINNING, reason)


def _persistent_workers(measured: Measurements, best: Candidate, workers: int) -> Choice:
    if "persistent_workers" in measured.said:
        return Choice(measured.said["persistent_workers"], _SAID)
    if not workers:
        return Choice(False, "there are no workers")
    starting = workers * measured.limits.start_s
    reason = (
        f"starting {workers} workers takes {milliseconds(starting)} an epoch, "
        "and shows them your latest dataset"
    )
    if measured.alone is None or measured.batches is None:
        return Choice(False, reason)
    share = starting / (starting + measured.batches * _seconds(measured, best))
    if share < _WORTH_SAYING:
        return Choice(False, reason)
    advice = "where that never changes between epochs, persistent_workers=True saves it"
    return Choice(False, f"{reason}: {share:.0%} of its time; {advice}")


def _cache(measured: Measurements) -> Choice:
    return measured.cache or Choice(None, "none was asked for")


def _seconds(measured: Measurements, candidate: Candidate) -> float:
    trials = [t for t in measured.trials if (t.num_workers, t.prefetch_factor) == candidate]
    if trials:
        return batch_s(trials)
    assert measured.alone is not None
    return measured.alone.batch_s
