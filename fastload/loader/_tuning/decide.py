"""Decisions on how to load, from measurements: pure functions, so that any situation can be replayed.

There are few candidates: no workers, then as many workers as the CPUs can serve, then twice as many if
workers were seen waiting. A challenger and the best so far are measured in turns, and the challenger has to
win clearly. The cost of trials is bounded (`budget_s`).
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from fastload.loader._measurements import (
    DEFAULT_PREFETCH,
    Candidate,
    SingleProcessCost,
    Trial,
    TuningMeasurements,
)
from fastload.system.units import format_duration

SINGLE_PROCESS = Candidate(0, 0)


class Decision(NamedTuple):
    """Best candidate so far, and the next one to measure.

    Attributes:
        best: The best way of loading so far.
        next: The candidate to measure next; None: none, or not yet.
        is_deferred: True if workers will be tried once the budget allows it.
    """

    best: Candidate
    next: Candidate | None
    is_deferred: bool = False


def decide(measured: TuningMeasurements) -> Decision:
    """Return the best candidate so far, and the one to measure next."""
    best = SINGLE_PROCESS
    tried = [trial.num_workers for trial in measured.trials if trial.num_workers]
    if measured.single_process is None or measured.why_no_workers:
        return Decision(best, None)
    if not tried and why_single_process(measured):
        return Decision(best, None)
    # Once workers have been tried, their times decide, even if starting them took longer than expected.
    workers = tried[0] if tried else affordable_workers(measured, first_workers(measured))
    if not workers:
        return Decision(best, None, is_deferred=True)
    while workers:
        challenger = Candidate(workers, prefetch_of(measured, workers))
        if not measured.trials_of(challenger) and not affordable_workers(measured, workers):
            break
        has_won = _has_won(measured, challenger, best)
        if has_won is None:
            counts = [len(measured.trials_of(each)) for each in (challenger, best)]
            return Decision(best, challenger if counts[0] < counts[1] else best)
        if not has_won:
            break
        best = challenger
        workers = _more_workers(measured, best)
    return Decision(best, None)


def _has_won(measured: TuningMeasurements, challenger: Candidate, best: Candidate) -> bool | None:
    """Return whether a challenger is clearly better than the best so far; None if more trials are needed."""
    challenger_s = [_trial_s(measured, trial) for trial in measured.trials_of(challenger)]
    best_s = [_trial_s(measured, trial) for trial in measured.trials_of(best)]
    if not challenger_s:
        return None
    settings = measured.settings
    ratio = statistics.median(challenger_s) / max(statistics.median(best_s), 1e-12)
    is_affordable_again = ratio < 1 or affordable_workers(measured, challenger.num_workers)
    if ratio >= 1 + settings.early_gain or not is_affordable_again:
        return False
    if len(best_s) > 1 and statistics.median(challenger_s) <= min(best_s) * (1 - settings.early_gain):
        return True
    if min(len(challenger_s), len(best_s)) < settings.rounds:
        return None
    return ratio <= 1 - settings.gain


def _more_workers(measured: TuningMeasurements, best: Candidate) -> int:
    """Return twice as many workers if they may be better; else 0."""
    trials, settings = measured.trials_of(best), measured.settings
    waiting = statistics.median(trial.waiting_share for trial in trials)
    blocked = statistics.median(trial.blocked_share for trial in trials)
    twice = min(2 * best.num_workers, most_workers(measured))
    may_be_better = twice <= _useful_workers(measured) or blocked >= settings.blocked
    return twice if twice > best.num_workers and waiting > settings.gain and may_be_better else 0


def why_single_process(measured: TuningMeasurements) -> str:
    """Return why no workers will ever be tried, as a sentence; "" if they are worth a trial."""
    cost, limits = measured.cost, measured.limits
    if is_epoch_tiny(measured, cost):
        epoch_s = (measured.batches or 0) * cost.load_s
        return f"loading an epoch takes {format_duration(epoch_s)}, less than starting a worker"
    if most_workers(measured) < 1:
        return f"no workers can be started: {limits.reason}"
    if cost.load_s < measured.settings.gain * cost.batch_s:
        share = cost.load_s / cost.batch_s
        return f"loading takes {share:.1%} of the time: there is nothing to gain"
    if measured.batches is None:
        return ""
    workers = first_workers(measured)
    saved_s = measured.batches * (cost.batch_s - max(cost.step_s, cost.load_s / workers))
    start_s = workers * limits.start_s
    if saved_s - start_s < measured.settings.gain * measured.batches * cost.batch_s:
        return (
            f"workers could save at most {format_duration(saved_s)} of an epoch, and starting them takes "
            f"{format_duration(start_s)}"
        )
    return ""


def is_epoch_tiny(measured: TuningMeasurements, cost: SingleProcessCost) -> bool:
    """Return whether loading an epoch takes less than starting a worker, so that limits do not matter."""
    return measured.batches is not None and measured.batches * cost.load_s < measured.limits.start_s


def first_workers(measured: TuningMeasurements) -> int:
    """Return how many workers to try first: as many as the training needs and the CPUs can serve.

    With w workers, an epoch takes at least load / w + w * start, which is least for w = sqrt(load / start).
    """
    cost = measured.cost
    needed = math.ceil(cost.load_s / max(cost.step_s, 1e-9)) + 1
    workers = min(_useful_workers(measured), needed, most_workers(measured))
    start_s = measured.settings.start_margin * measured.limits.start_s
    if measured.batches is not None and start_s:
        workers = min(workers, math.ceil(math.sqrt(measured.batches * cost.load_s / start_s)))
    return max(1, workers)


def _useful_workers(measured: TuningMeasurements) -> int:
    """Return how many workers the CPUs can serve: one that waits for a disk leaves its CPU free."""
    cost, most = measured.cost, measured.settings.most_workers_per_cpu
    waits = min(most, 1 + cost.load_blocked_s / max(cost.load_cpu_s, 1e-9))
    # Another worker is not worth it if less than a quarter of its time would be used.
    return math.ceil(measured.limits.cpus * waits - 0.25)


def most_workers(measured: TuningMeasurements) -> int:
    """Return the most workers that may be tried, each with the fewest batches to prefetch."""
    prefetch = measured.explicit.get("prefetch_factor", DEFAULT_PREFETCH)
    limits = measured.limits
    by_batches = limits.most_batches // (int(prefetch) + 1)
    return max(0, min(limits.most_workers, measured.settings.most_workers, by_batches))


def prefetch_of(measured: TuningMeasurements, workers: int) -> int:
    """Return the prefetch factor for which eight batches are prefetched in total, if memory allows."""
    if not workers:
        return 0
    explicit = measured.explicit.get("prefetch_factor")
    if explicit is not None:
        return int(explicit)
    allowed = measured.limits.most_batches // workers - 1
    return max(DEFAULT_PREFETCH, min(math.ceil(measured.settings.prefetched_batches / workers), allowed))


def budget_s(measured: TuningMeasurements) -> float:
    """Return how many more seconds trials may cost."""
    settings, ahead = measured.settings, 2 * measured.seen_batches
    if measured.batches is not None:
        ahead = max(ahead, settings.epochs_ahead * measured.batches)
    return settings.budget_share * ahead * single_process_s(measured) - measured.lost_s


def affordable_workers(measured: TuningMeasurements, workers: int) -> int:
    """Return how many of these workers can be started within the budget; 0 if these are too few.

    One worker shows little about what several can do.
    """
    start_s = measured.settings.start_margin * measured.limits.start_s
    affordable = min(workers, math.floor((budget_s(measured) - measured.cost.load_s) / max(start_s, 1e-9)))
    return affordable if affordable >= min(workers, 2) else 0


def fits_into_epoch(measured: TuningMeasurements, workers: int, batches_left: int | None) -> bool:
    """Return whether the rest of an epoch is long enough to start these workers and measure them."""
    if batches_left is None:
        return True
    settings = measured.settings
    one_s = workers * measured.limits.start_s + settings.window_s
    return batches_left * single_process_s(measured) >= settings.least_windows * one_s


def single_process_s(measured: TuningMeasurements) -> float:
    """Return the seconds from one batch to the next without workers."""
    return batch_s(measured, SINGLE_PROCESS)


def batch_s(measured: TuningMeasurements, candidate: Candidate) -> float:
    """Return the seconds from one batch to the next for a candidate, the start of workers included."""
    trials = measured.trials_of(candidate)
    if trials:
        return statistics.median(_trial_s(measured, trial) for trial in trials)
    return measured.cost.batch_s


def tolerated_loss_s(measured: TuningMeasurements, workers: int) -> float:
    """Return how many seconds workers of a settled plan may lose against loading without them.

    In each epoch, they first lose the time that starting them takes.
    """
    batches = measured.seen_batches if measured.batches is None else measured.batches
    little_s = measured.settings.gain * batches * single_process_s(measured)
    return 2 * workers * measured.limits.start_s + little_s


def has_changed(measured: TuningMeasurements, candidate: Candidate, load_s: float) -> bool:
    """Return whether the time to make a batch has changed so much that a plan may no longer fit."""
    if measured.why_no_workers:
        return False
    factor, before_s = measured.settings.changed, measured.cost.load_s
    return factor * load_s < before_s if candidate.num_workers else load_s > factor * before_s


def _trial_s(measured: TuningMeasurements, trial: Trial) -> float:
    """Return the seconds from one batch to the next, with the batch's share of starting the workers."""
    start_s = 0.0 if trial.includes_start else trial.num_workers * measured.limits.start_s
    return trial.batch_s + start_s / (measured.batches or math.inf)
