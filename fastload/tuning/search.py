"""Which numbers of workers to try next, and which was best: a pure function of what was measured.

The search begins with as many workers as the CPUs and the loading's own waits suggest, goes on with twice
and half as many while that pays, then looks between, and measures the best ones again until noise is out of
the question. Loading without workers is a candidate too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from fastload.tuning.plan import Alone, Measurements, Trial

# Below this share of time spent waiting there is nothing to gain worth a process: the training is the limit.
_NO_WAIT = 0.02

# A candidate this much slower than the best is out; what is nearer is measured again.
_NEAR = 0.08

# So often each of the best candidates is measured: one window alone is off by 5 %, and seldom by 10 %.
_WINDOWS = 5

# After so many trials it is noise that moves the best about.
_MOST_TRIALS = 60

# Of candidates as fast as this, the one with the fewest workers is taken: they cost memory, and what is left
# of noise in the median of five windows is as much (measured: 2 to 4 %).
_SAME = 0.96

# Loading without workers is measured again, late in the epoch, unless workers are that many times as fast:
# what the first batches take is not what later ones do.
_CLEARLY = 1.5

# How much longer a batch took than its CPU time at the most counts: 16 workers a CPU wait for a network.
_MOST_WAITS_PER_CPU = 16

# A worker may load that much faster than the training process, which has other things to do.
_FASTER_IN_A_WORKER = 1.2

# A prefetch_factor has to gain this much over the smaller one.
_PREFETCH_GAIN = 1.04

# torch's own default.
DEFAULT_PREFETCH = 2
_PREFETCHES = (4, 8)


class Candidate(NamedTuple):
    """A way of loading to try."""

    num_workers: int
    prefetch_factor: int


def next_candidate(measured: Measurements) -> Candidate | None:
    """What to try next; None once everything is settled, or while nothing has been measured.

    Args:
        measured: What is known.
    """
    if measured.alone is None or why_alone(measured) or len(measured.trials) >= _MOST_TRIALS:
        return None
    untried = untried_candidate(measured)
    if untried is not None:
        return untried
    prefetch = _prefetch(measured)
    known = _by_workers(measured, prefetch)
    again = _to_measure_again(measured, known)
    if again is not None:
        return Candidate(again, prefetch if again else 0)
    return _next_prefetch(measured)


def untried_candidate(measured: Measurements) -> Candidate | None:
    """The next number of workers that has not been tried yet and may be the best; None without one.

    Args:
        measured: What is known; of it `alone` has to be.
    """
    alone, prefetch = measured.alone, _prefetch(measured)
    assert alone is not None
    known = _by_workers(measured, prefetch)
    if not known:
        return Candidate(first_workers(measured), prefetch)
    best = min(known, key=lambda workers: _cost_s(measured, known[workers]))
    if batch_s(known[best]) <= alone.step_s * (1 + _NO_WAIT):
        return None
    for workers in _neighbours(best, most_workers(measured)):
        if workers not in known and _may_be_better(workers, best, known, alone):
            return Candidate(workers, prefetch)
    return None


def why_alone(measured: Measurements) -> str:
    """Why not to try workers at all, as a sentence; "" where they are worth a trial."""
    alone, limits = measured.alone, measured.limits
    assert alone is not None
    if measured.only_alone:
        return measured.only_alone
    if most_workers(measured) < 1:
        return f"no workers can be started: {limits.reason}"
    if alone.load_s < _NO_WAIT * alone.batch_s:
        share = alone.load_s / alone.batch_s
        return f"loading takes {share:.1%} of the time: there is nothing to gain"
    saved = _most_saved_s(measured, alone)
    cost = first_workers(measured) * limits.start_s + alone.load_s
    if saved <= cost:
        return (
            f"workers could save at most {_seconds(max(0.0, saved))} of an epoch, and starting them takes "
            f"{_seconds(cost)}"
        )
    return ""


def first_workers(measured: Measurements) -> int:
    """How many workers to try first: enough for the training's pace, as many as the CPUs can serve."""
    alone = measured.alone
    assert alone is not None
    # While a batch waits for a disk or a network, its CPU is free for another worker.
    waits = min(_MOST_WAITS_PER_CPU, 1 + alone.load_blocked_s / max(alone.load_cpu_s, 1e-9))
    useful = math.ceil(measured.limits.cpus * waits - 0.25)
    needed = math.ceil(alone.load_s / max(alone.step_s, 1e-9)) + 1
    return max(1, min(useful, needed, most_workers(measured)))


def most_workers(measured: Measurements) -> int:
    """The most workers that may be tried with the prefetch_factor in force."""
    limits = measured.limits
    return max(0, min(limits.most_workers, limits.most_batches // (_prefetch(measured) + 1)))


def best_candidate(measured: Measurements) -> Candidate:
    """The best of what was tried, loading without workers included.

    Args:
        measured: What is known.
    """
    alone = Candidate(0, 0)
    if "num_workers" in measured.said:
        return _best_prefetch(measured, int(measured.said["num_workers"]))
    if measured.alone is None or not measured.trials or measured.only_alone:
        return alone
    seconds = {Candidate(t.num_workers, t.prefetch_factor): 0.0 for t in measured.trials}
    for candidate in seconds:
        seconds[candidate] = _cost_s(measured, _trials(measured, candidate))
    seconds.setdefault(alone, measured.alone.batch_s)
    fastest = min(seconds.values())
    near = [candidate for candidate, value in seconds.items() if value * _SAME <= fastest]
    return min(near)


def _best_prefetch(measured: Measurements, workers: int) -> Candidate:
    """The smallest prefetch_factor after which no larger one gained enough, for a number of workers."""
    best = Candidate(workers, DEFAULT_PREFETCH if workers else 0)
    for prefetch in _PREFETCHES:
        candidate = Candidate(workers, prefetch)
        if not _trials(measured, candidate) or not _trials(measured, best):
            break
        if batch_s(_trials(measured, candidate)) * _PREFETCH_GAIN <= batch_s(_trials(measured, best)):
            best = candidate
    return best


def batch_s(trials: Iterable[Trial]) -> float:
    """Seconds a batch: the median of some trials."""
    return statistics.median(trial.batch_s for trial in trials)


def _cost_s(measured: Measurements, trials: list[Trial]) -> float:
    """Seconds a batch, with its share of what beginning an epoch takes.

    That is starting the workers, then the wait for the first batch: all of them make one at once, and share
    the CPUs.
    """
    alone, workers = measured.alone, trials[0].num_workers
    if not workers or alone is None:
        return batch_s(trials)
    filling = max(alone.load_s, workers * alone.load_cpu_s / measured.limits.cpus)
    beginning = workers * measured.limits.start_s + filling
    return batch_s(trials) + beginning / (measured.batches or math.inf)


def _most_saved_s(measured: Measurements, alone: Alone) -> float:
    """What workers could save of one epoch, if they were all that anybody hopes for."""
    useful = first_workers(measured)
    at_best = max(alone.step_s, alone.load_s / useful)
    batches = math.inf if measured.batches is None else measured.batches
    return batches * (alone.batch_s - at_best)


def _prefetch(measured: Measurements) -> int:
    """The prefetch_factor with which numbers of workers are compared."""
    said = measured.said.get("prefetch_factor")
    return DEFAULT_PREFETCH if said is None else int(said)


def _by_workers(measured: Measurements, prefetch: int) -> dict[int, list[Trial]]:
    """The trials of each number of workers."""
    known: dict[int, list[Trial]] = {}
    for trial in measured.trials:
        if trial.num_workers and trial.prefetch_factor == prefetch:
            known.setdefault(trial.num_workers, []).append(trial)
    return known


def _trials(measured: Measurements, candidate: Candidate) -> list[Trial]:
    return [t for t in measured.trials if (t.num_workers, t.prefetch_factor) == candidate]


def _is_without_waits(trials: list[Trial]) -> bool:
    return sorted(trial.waiting_share for trial in trials)[len(trials) // 2] < _NO_WAIT


def _neighbours(best: int, most: int) -> list[int]:
    """Twice, half, then what lies half-way to these."""
    numbers = [2 * best, best // 2, round(best * 1.4), round(best / 1.4)]
    if best <= 3:
        numbers += [best + 1, best - 1]
    inside = [min(number, most) for number in numbers if number >= 1 <= most]
    return [number for number in dict.fromkeys(inside) if number != best]


def _may_be_better(workers: int, best: int, known: dict[int, list[Trial]], alone: Alone) -> bool:
    """Whether that is not ruled out: by what workers can do at all, or by what lies between."""
    if alone.load_s / workers > batch_s(known[best]) * _FASTER_IN_A_WORKER:
        return False
    between = [each for each in known if min(workers, best) < each < max(workers, best)]
    return all(batch_s(known[each]) < batch_s(known[best]) * (1 + _NEAR) for each in between)


def _to_measure_again(measured: Measurements, known: dict[int, list[Trial]]) -> int | None:
    """The number of workers among the best that has been measured least, if that is not often enough."""
    costs = {workers: _cost_s(measured, trials) for workers, trials in known.items()}
    fastest = min(costs.values())
    assert measured.alone is not None
    counts = {
        workers: len(known[workers]) for workers, cost in costs.items() if cost * (1 - _NEAR) <= fastest
    }
    without = [trial for trial in measured.trials if not trial.num_workers]
    seconds = batch_s(without) if without else measured.alone.batch_s
    if seconds <= fastest * (1 + 2 * _NEAR if without else _CLEARLY):
        counts[0] = len(without)
    if len(counts) == 1:
        return None
    workers = min(counts, key=lambda each: (counts[each], each))
    return workers if counts[workers] < _WINDOWS else None


def next_prefetch(measured: Measurements, workers: int) -> Candidate | None:
    """The prefetch_factor to try next with a number of workers; None if the best is known.

    Args:
        measured: What is known.
        workers: How many load.
    """
    before: list[Trial] = []
    for prefetch in (DEFAULT_PREFETCH, *_PREFETCHES):
        candidate = Candidate(workers, prefetch)
        trials = _trials(measured, candidate)
        if before and workers * (prefetch + 1) > measured.limits.most_batches:
            return None
        if len(trials) < min(_WINDOWS, len(before) or 1):
            return candidate
        if before and len(before) < _WINDOWS:
            # In turns, so that whatever drifts meets both alike.
            return Candidate(workers, before[0].prefetch_factor)
        if _is_without_waits(trials) or (before and batch_s(trials) * _PREFETCH_GAIN > batch_s(before)):
            return None
        before = trials
    return None


def _next_prefetch(measured: Measurements) -> Candidate | None:
    """The same for the best number of workers, unless the user has said it."""
    best = best_candidate(measured)
    if not best.num_workers or measured.said.get("prefetch_factor") is not None:
        return None
    return next_prefetch(measured, best.num_workers)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
