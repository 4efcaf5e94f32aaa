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

from fastload.loader.tuning.plan import Alone, Measurements, Trial
from fastload.system.units import milliseconds

# Below this share of time spent waiting there is nothing to gain worth a process: the training is the limit.
_NO_WAIT = 0.02

# A candidate this much slower than the best is out; what is nearer is measured again. One or two windows
# may be off by a quarter.
_NEAR = 0.08
_DOUBTFUL = 0.25
_SURE = 3

# So often each of the best candidates is measured: one window alone is off by 5 %, and seldom by 10 %.
_WINDOWS = 5

# After so many trials it is noise that moves the best about.
_MOST_TRIALS = 60

# Of candidates as fast as this, the one with the fewest workers is taken: they cost memory, and what is left
# of noise in the median of five windows is as much (measured: 2 to 4 %).
_SAME = 0.96

# More workers than the CPUs can serve have to be that much faster: most of what they gain is noise.
_SAME_BEYOND = 0.93

# Loading without workers is measured again, late in the epoch, unless workers are that many times as fast:
# what the first batches take is not what later ones do.
_CLEARLY = 1.5

# How much longer a batch took than its CPU time at the most counts: 16 workers a CPU wait for a network.
_MOST_WAITS_PER_CPU = 16

# Twice as many workers as the CPUs can serve are tried; more only while the most gain so much over fewer.
_TWICE = 2
_PAYS = 1.15
_FEWER = 0.75

# A worker may load that much faster than the training process, which has other things to do.
_FASTER_IN_A_WORKER = 1.2

# A prefetch_factor has to gain this much over the smaller one.
_PREFETCH_GAIN = 1.04

# torch's own default.
DEFAULT_PREFETCH = 2

# Numbers of workers are compared with so many batches under way, as far as memory allows: with fewer, what is
# compared is how they hide each other's long batches (two workers with two batches each in advance are
# up to 28 % slower than with four, measured; beyond eight batches nothing was gained).
_UNDER_WAY = 8
_MOST_PREFETCH = 8


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
    again = _to_measure_again(measured, _by_workers(measured))
    if again is not None:
        return _with_prefetch(measured, again)
    return _next_prefetch(measured)


def untried_candidate(measured: Measurements) -> Candidate | None:
    """The next number of workers that has not been tried yet and may be the best; None without one.

    Args:
        measured: What is known; of it `alone` has to be.
    """
    alone = measured.alone
    assert alone is not None
    known = _by_workers(measured)
    if not known:
        return _with_prefetch(measured, first_workers(measured))
    best = min(known, key=lambda workers: _cost_s(measured, known[workers]))
    if batch_s(known[best]) <= alone.step_s * (1 + _NO_WAIT):
        return None
    for workers in _neighbours(best, most_workers(measured)):
        if workers in known or _are_too_many(measured, workers, best, known):
            continue
        if _may_be_better(workers, best, known, alone):
            return _with_prefetch(measured, workers)
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
            f"workers could save at most {milliseconds(max(0.0, saved))} of an epoch, and starting them "
            f"takes {milliseconds(cost)}"
        )
    return ""


def first_workers(measured: Measurements) -> int:
    """How many workers to try first: enough for the training's pace, as many as the CPUs can serve."""
    alone = measured.alone
    assert alone is not None
    needed = math.ceil(alone.load_s / max(alone.step_s, 1e-9)) + 1
    return max(1, min(_useful_workers(measured, alone), needed, most_workers(measured)))


def _useful_workers(measured: Measurements, alone: Alone) -> int:
    """How many workers the CPUs can serve: while a batch waits for a disk or a network, its CPU is free."""
    waits = min(_MOST_WAITS_PER_CPU, 1 + alone.load_blocked_s / max(alone.load_cpu_s, 1e-9))
    return math.ceil(measured.limits.cpus * waits - 0.25)


def most_workers(measured: Measurements) -> int:
    """The most workers that may be tried, with as few batches in advance as there may be."""
    limits, said = measured.limits, measured.said.get("prefetch_factor")
    prefetch = DEFAULT_PREFETCH if said is None else int(said)
    return max(0, min(limits.most_workers, limits.most_batches // (prefetch + 1)))


def prefetch_of(measured: Measurements, workers: int) -> int:
    """The prefetch_factor with which so many workers are compared with others.

    Args:
        measured: What is known.
        workers: How many load; 0: it is 0.
    """
    if not workers:
        return 0
    if (said := measured.said.get("prefetch_factor")) is not None:
        return int(said)
    allowed = measured.limits.most_batches // workers - 1
    return max(DEFAULT_PREFETCH, min(math.ceil(_UNDER_WAY / workers), allowed))


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
    fastest = min(seconds, key=lambda candidate: seconds[candidate])
    is_beyond = fastest.num_workers > _useful_workers(measured, measured.alone)
    same = _SAME_BEYOND if is_beyond else _SAME
    return min(candidate for candidate, value in seconds.items() if value * same <= seconds[fastest])


def _least_prefetch(measured: Measurements, workers: int) -> int:
    """What a search for the prefetch_factor begins with: where workers were said, with torch's default."""
    return DEFAULT_PREFETCH if "num_workers" in measured.said else prefetch_of(measured, workers)


def _best_prefetch(measured: Measurements, workers: int) -> Candidate:
    """The smallest prefetch_factor after which no larger one gained enough, for a number of workers."""
    best = Candidate(workers, DEFAULT_PREFETCH if workers else 0)
    for prefetch in _more(best.prefetch_factor):
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

    Each worker has to be started, to open the dataset, and to get its memory warm, while all share the CPUs.
    """
    beginning_s = trials[0].num_workers * measured.limits.start_s
    return batch_s(trials) + beginning_s / (measured.batches or math.inf)


def _most_saved_s(measured: Measurements, alone: Alone) -> float:
    """What workers could save of one epoch, if they were all that anybody hopes for."""
    useful = first_workers(measured)
    at_best = max(alone.step_s, alone.load_s / useful)
    batches = math.inf if measured.batches is None else measured.batches
    return batches * (alone.batch_s - at_best)


def _with_prefetch(measured: Measurements, workers: int) -> Candidate:
    return Candidate(workers, prefetch_of(measured, workers))


def _more(prefetch: int) -> list[int]:
    """What to try beside a prefetch_factor."""
    doubled = [prefetch * 2, prefetch * 4]
    return [factor for factor in doubled if factor <= _MOST_PREFETCH]


def _by_workers(measured: Measurements) -> dict[int, list[Trial]]:
    """The trials of each number of workers, with what they are compared with in advance."""
    known: dict[int, list[Trial]] = {}
    for trial in measured.trials:
        if trial.num_workers and trial.prefetch_factor == prefetch_of(measured, trial.num_workers):
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


def _are_too_many(measured: Measurements, workers: int, best: int, known: dict[int, list[Trial]]) -> bool:
    """Whether the CPUs cannot serve so many workers, and no trial says that they can."""
    assert measured.alone is not None
    if workers <= max(_TWICE * _useful_workers(measured, measured.alone), best):
        return False
    fewer = [batch_s(trials) for number, trials in known.items() if number <= _FEWER * best]
    return not fewer or min(fewer) < batch_s(known[best]) * _PAYS


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
    counts = {}
    for workers, cost in costs.items():
        count = len(known[workers])
        if cost * (1 - (_NEAR if count >= _SURE else _DOUBTFUL)) <= fastest:
            counts[workers] = count
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
    least = _least_prefetch(measured, workers)
    for prefetch in (least, *_more(least)):
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
