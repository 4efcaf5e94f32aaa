"""Measurements by which loaders are tuned, the constants of tuning, and the values decided from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

DEFAULT_PREFETCH = 2  # torch's own


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """Thresholds of the decisions, and lengths of measurements.

    Attributes:
        gain: Share by which a candidate must be faster than the best so far: on an idle machine, windows
            differ by up to 5 %. If the training waits for less than this share of the time, there is nothing
            to gain.
        early_gain: A challenger that is slower by this share loses at once. It wins at once if it is faster
            by this share than the best of at least two windows of the other candidate.
        rounds: Otherwise, the medians of this many windows of each candidate decide: one window in ten is off
            by 10 %.
        budget_share, epochs_ahead: Trials may cost this share of a training run, which is assumed at first to
            last this many epochs, later twice as long as it has run.
        start_margin: On a busy machine, starting workers takes this many times as long (measured).
        most_workers: The most workers that are tried on any machine.
        most_workers_per_cpu: The same for each CPU, for batches that wait for a network: more were never
            faster (measured).
        blocked: More workers than the CPUs can serve pay off only if they spend this share of their time
            waiting (disk, network).
        prefetched_batches: Batches to prefetch in total. With fewer, one slow batch keeps the training
            waiting: two workers that prefetch two batches each are up to 28 % slower than with four
            (measured); beyond eight, nothing was gained.
        window_s: The length of one measurement.
        least_windows: The rest of an epoch must be as long as this many measurements and starts of workers.
        least_batches, batches_per_worker: The fewest batches of a measurement, in total and for each worker,
            because workers take turns.
        long_batch_s: Without workers, one batch that takes this long is enough: more would waste time.
        unusual: A longer step (a validation, a checkpoint) counts as this many median steps.
        changed: A settled plan is measured again if the time to make a batch changes by this factor: if it
            grows, without workers; if it shrinks, with them.
        watched_s: Loading without workers counts as slower only in an epoch that takes this long.
        least_watched: The fewest batches of an epoch that show whether a settled plan still fits.
        most_trials: The most trials stored for each candidate.
        stuck_s, stuck_loads: Workers are considered stuck (by a lock that was held at the fork, by a thread
            that the child lacks) if no batch arrives within this time plus this many times the time of a
            batch in the training process.
    """

    gain: float = 0.05
    early_gain: float = 0.2
    rounds: int = 3
    budget_share: float = 0.015
    epochs_ahead: int = 10
    start_margin: int = 2
    most_workers: int = 4096
    most_workers_per_cpu: int = 16
    blocked: float = 0.5
    prefetched_batches: int = 8
    window_s: float = 0.25
    least_windows: float = 2.0
    least_batches: int = 4
    batches_per_worker: int = 3
    long_batch_s: float = 0.4
    unusual: float = 5.0
    changed: float = 2.0
    watched_s: float = 5.0
    least_watched: int = 32
    most_trials: int = 5
    stuck_s: float = 60.0
    stuck_loads: int = 30


DEFAULT_SETTINGS = TuningSettings()


class Decision(NamedTuple):
    """Numbers of workers: the best so far, and the next one to measure.

    Attributes:
        best: The best so far; 0: the training process loads.
        next: The one to measure next; None: none, or not yet.
        is_deferred: True if workers will be tried once the budget allows it.
    """

    best: int
    next: int | None
    is_deferred: bool = False


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """The value of one parameter, and the measurement behind it as a sentence."""

    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Consecutive batches of an epoch, loaded by the same number of workers.

    `seconds` includes the training's steps, `waiting_s` is the part of it spent waiting for batches, and
    `blocked_share` the share of the loading spent waiting for a disk, a network or a lock.
    """

    num_workers: int
    batches: int
    seconds: float
    waiting_s: float
    blocked_share: float = 0.0
    includes_start: bool = False

    @property
    def batch_s(self) -> float:
        """Seconds from one batch to the next."""
        return self.seconds / self.batches

    @property
    def waiting_share(self) -> float:
        """Share of the time spent waiting, from 0 to 1."""
        return self.waiting_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class WatchedEpoch:
    """An epoch that was loaded by a settled plan to its end.

    `seconds` includes the training's steps and the start of the workers; `load_s` is the time to make a
    batch, without waits for a CPU.
    """

    num_workers: int
    batches: int
    seconds: float
    load_s: float


@dataclass(frozen=True, slots=True)
class SingleProcessCost:
    """Time and memory of a batch that is loaded in the training process.

    `load_blocked_s` is the part of `load_s` spent waiting for a disk, a network or a lock.
    """

    batch_size: int
    batch_bytes: int
    load_s: float
    load_cpu_s: float
    load_blocked_s: float
    step_s: float

    @property
    def batch_s(self) -> float:
        """Seconds from one batch to the next."""
        return self.load_s + self.step_s


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Resources that a loader may use.

    `cpus` are those of this process; `reason` explains `most_workers`; a worker takes `start_s` to start.
    """

    cpus: int
    most_workers: int
    most_batches: int
    reason: str
    start_s: float
