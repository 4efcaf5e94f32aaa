"""Measurements by which loaders are tuned, the limits of the machine, and the constants of tuning."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import multiprocessing
import sys
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from types import FrameType
from typing import Generic, NamedTuple, TypeVar

from torch.utils.data import get_worker_info

from fastload.system.cpus import local_ranks, usable_cpus
from fastload.system.memory import available_memory_bytes
from fastload.system.proc import free_descriptors

_T_co = TypeVar("_T_co", covariant=True)

DEFAULT_PREFETCH = 2  # torch's own

# A worker's own memory, forked or spawned (measured: 30 to 60 MB, and 250 MB with torch and OpenCV), rounded
# up for the data that it will write.
_FORKED_BYTES = 100 << 20
_SPAWNED_BYTES = 400 << 20

# Memory left to the training and the page cache: this much, or this share of what is available, if more.
_MARGIN_BYTES = 1 << 30
_MARGIN_SHARE = 0.25

# Pipes, semaphores and a sentinel; measured: 5 with torch 2.13.
_DESCRIPTORS_PER_WORKER = 8
_DESCRIPTORS_LEFT = 64

# Seconds until a worker begins (measured): a fork of this process, or a new interpreter that imports torch.
_FORK_S = 0.025
_SPAWN_S = 2.5


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """Thresholds of the decisions, and lengths of measurements.

    Attributes:
        gain: Share by which a candidate must be faster than the best so far: on an idle machine, windows
            differ by up to 5 %. If the training waits for less than this share of the time, there is nothing
            to gain.
        early_gain: A candidate that is slower than the best so far by this share is dropped at once. One that
            is faster by this share than the fastest of at least two windows of the best so far replaces it
            at once.
        rounds: Otherwise, the medians of this many windows of both are compared: one window in ten is off by
            10 %.
        budget_share, epochs_ahead: Trials may cost this share of a training run, which is assumed at first to
            last this many epochs, later twice as long as it has run.
        worth_trial: Whatever that share, the first workers are tried if they could save this many times what
            the trial costs: epochs of 0.2 s take up to 5 % longer over ten of them, or a third less.
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
    worth_trial: float = 3.0
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
class PlannedValue(Generic[_T_co]):
    """The value of one parameter, and the measurement behind it as a sentence."""

    value: _T_co
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


NO_LIMITS_YET = WorkerLimits(cpus=1, most_workers=0, most_batches=0, reason="", start_s=_FORK_S)


def read_limits(
    multiprocessing_context: BaseContext | None, batch_bytes: int, settings: TuningSettings = DEFAULT_SETTINGS
) -> WorkerLimits:
    """Read the current limits for a loader with this context and batches of this size."""
    ranks = local_ranks()
    forks = _start_method(multiprocessing_context) == "fork"
    limits = limits_within(
        cpus=max(1, usable_cpus() // ranks),
        available_bytes=available_memory_bytes() // ranks,
        descriptors=free_descriptors(),
        forks=forks,
        batch_bytes=batch_bytes,
        settings=settings,
    )
    why_none = _why_no_processes(forks)
    return dataclasses.replace(limits, most_workers=0, reason=why_none) if why_none else limits


def limits_within(
    cpus: int,
    available_bytes: int,
    descriptors: int | None,
    forks: bool,
    batch_bytes: int,
    settings: TuningSettings = DEFAULT_SETTINGS,
) -> WorkerLimits:
    """Return the limits set by CPUs, available memory and free descriptors (None: no known limit).

    `forks` is True if workers are forked, False if they are spawned.
    """
    workers = cpus * settings.most_workers_per_cpu
    reason = f"{cpus} CPUs allow at most {workers} workers"
    left = max(0, available_bytes - max(_MARGIN_BYTES, int(available_bytes * _MARGIN_SHARE)))
    each = (_FORKED_BYTES if forks else _SPAWNED_BYTES) + batch_bytes
    # Half for the workers, half for prefetched batches.
    batches = left // 2 // max(1, batch_bytes)
    if left // 2 // each < workers:
        workers = left // 2 // each
        reason = f"{available_bytes / 2**30:.1f} GiB of memory are available"
    if descriptors is not None:
        by_files = max(0, descriptors - _DESCRIPTORS_LEFT) // _DESCRIPTORS_PER_WORKER
        if by_files < workers:
            workers, reason = by_files, f"{descriptors} more files can be opened (ulimit -n)"
    return WorkerLimits(cpus, workers, batches, reason, _FORK_S if forks else _SPAWN_S)


def _start_method(context: BaseContext | None) -> str:
    if context is not None:
        return str(context.get_start_method())
    # allow_none, because asking must not fix the method: the user may still set another.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _why_no_processes(forks: bool) -> str:
    """Return why this process should start no workers, as a clause; "" if it may."""
    if multiprocessing.current_process().daemon:
        return "this is a daemonic process, which may have no children"
    if get_worker_info() is not None:
        return "this is itself a worker"
    if not forks and not may_import_main():
        return (
            "new processes would run your script again, because it is not protected by "
            "'if __name__ == \"__main__\":'"
        )
    return ""


def may_import_main() -> bool:
    """Return whether a new process could import the main module without running the script again."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    # multiprocessing does not import a package's `__main__.py`, but imports `package.train` of `python -m`.
    if file is None or (spec is not None and spec.name.endswith(".__main__")):
        return True
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return _is_guarded("".join(linecache.getlines(file)), frame.f_lineno)
        frame = frame.f_back
    return True


def _is_guarded(source: str, line: int) -> bool:
    """Return whether a line of a script is inside `if __name__ == "__main__":`."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    around = [s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
    return any(isinstance(s, ast.If) and "__name__" in ast.dump(s.test) for s in around)
