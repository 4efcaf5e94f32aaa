"""Which numbers of workers to try next, and which was best: a pure function of what was measured.

The search begins with as many workers as the CPUs and the loading's own waits suggest, goes on with twice
and half as many while that pays, then looks between, and measures the best ones again until noise is out of
the question. Loading without workers is a candidate too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from fastload.tuning.plan import Alone, Measurements, Trial

# Below this share of time spent waiting there is nothing to gain worth a process: the training is the limit.
_NO_WAIT = 0.02

# A candidate this much slower than the best is out; what is nearer is measured again.
_NEAR = 0.08

# So often each of the best candidates is measured: the median of three is not one window's noise.
_WINDOWS = 3

# After so many trials it is noise that moves the best about.
_MOST_TRIALS = 40

# Of candidates as fast as this, the one with the fewest workers is taken: they cost memory.
_SAME = 0.98

# How much longer a batch took than its CPU time at the most counts: 16 workers a CPU wait for a network.
_MOST_WAITS_PER_CPU = 16

# A worker may load that much faster than the training process, which has other things to do.
_FASTER_IN_A_WORKER = 1.2

# A prefetch_factor has to gain this much over the smaller one.
_PREFETCH_GAIN = 1.02

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
    return _next_prefetch(measured, known)


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
    best = min(known, key=lambda workers: batch_s(known[workers]))
    if batch_s(known[best]) <= alone.step_s * (1 + _NO_WAIT):
        return None
    for workers in _neighbours(best, most_workers(measured)):
        if workers not in known and _may_be_better(workers, known, alone):
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
    if measured.alone is None or not measured.trials or measured.only_alone:
        return alone
    seconds = {Candidate(t.num_workers, t.prefetch_factor): 0.0 for t in measured.trials}
    for candidate in seconds:
        seconds[candidate] = batch_s(_trials(measured, candidate))
    seconds.setdefault(alone, measured.alone.batch_s)
    fastest = min(seconds.values())
    near = [candidate for candidate, value in seconds.items() if value * _SAME <= fastest]
    return min(near)


def batch_s(trials: Iterable[Trial]) -> float:
    """Seconds a batch: the median of some trials."""
    ordered = sorted(trial.batch_s for trial in trials)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


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


def _may_be_better(workers: int, known: dict[int, list[Trial]], alone: Alone) -> bool:
    """Whether that is not ruled out: by what workers can do at all, or by what lies between."""
    best = min(known, key=lambda each: batch_s(known[each]))
    if alone.load_s / workers > batch_s(known[best]) * _FASTER_IN_A_WORKER:
        return False
    between = [each for each in known if min(workers, best) < each < max(workers, best)]
    return all(batch_s(known[each]) < batch_s(known[best]) * (1 + _NEAR) for each in between)


def _to_measure_again(measured: Measurements, known: dict[int, list[Trial]]) -> int | None:
    """The number of workers among the best that has been measured least, if that is not often enough."""
    fastest = min(map(batch_s, known.values()))
    assert measured.alone is not None
    counts = {
        workers: len(trials) for workers, trials in known.items() if batch_s(trials) * (1 - _NEAR) <= fastest
    }
    without = [trial for trial in measured.trials if not trial.num_workers]
    seconds = batch_s(without) if without else measured.alone.batch_s
    if seconds * (1 - 2 * _NEAR) <= fastest:
        counts[0] = len(without)
    if len(counts) == 1:
        return None
    workers = min(counts, key=lambda each: (counts[each], each))
    return workers if counts[workers] < _WINDOWS else None


def _next_prefetch(measured: Measurements, known: dict[int, list[Trial]]) -> Candidate | None:
    """More batches in advance, where waits are left and the last step up has paid."""
    best = best_candidate(measured)
    if not best.num_workers or measured.said.get("prefetch_factor") is not None:
        return None
    if _is_without_waits(_trials(measured, best)):
        return None
    workers = best.num_workers
    before = batch_s(known.get(workers) or _trials(measured, best))
    for prefetch in _PREFETCHES:
        if workers * (prefetch + 1) > measured.limits.most_batches:
            return None
        candidate = Candidate(workers, prefetch)
        trials = _trials(measured, candidate)
        if not trials:
            return candidate
        if batch_s(trials) * _PREFETCH_GAIN > before:
            return None
        if len(trials) < _WINDOWS:
            return candidate
        before = batch_s(trials)
    return None


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
