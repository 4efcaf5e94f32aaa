"""What can be done where starting workers takes a large part of the time."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.loader.diagnosis.costs import startup_s
from fastload.loader.diagnosis.extent import foreseen_batches, foreseen_s
from fastload.loader.diagnosis.findings import Fix
from fastload.loader.diagnosis.measurements import Measurements

LEAST_STARTING = 0.05
"""Of all time, what starting workers has to take for its falling away to gain something."""

FORKED_S = 5e-3
"""By so much at most a step is longer that follows a fork, as both sides copy the memory that they write, and
share the CPUs with the workers that start (measured: 0.5 to 4 ms beyond the quickest tenth of steps)."""


def starting_fixes(measured: Measurements) -> Iterator[Fix]:
    """Workers that live on, where starting them anew takes a part of all time."""
    total_s, started_s = foreseen_s(measured), startup_s(measured)
    has_lasting = measured.setting.persistent_workers
    if has_lasting or measured.epochs < 2 or started_s <= LEAST_STARTING * total_s:
        return
    once_s = started_s * (1 - 1 / measured.epochs)
    yield Fix(
        "persistent workers",
        "DataLoader(…, persistent_workers=True)",
        total_s / max(1e-9, total_s - once_s),
        f"workers were started {measured.epochs} times, and that took {started_s:.2f} s",
    )


def small_fixes(measured: Measurements) -> Iterator[Fix]:
    """No workers at all, where there is too little for them to do."""
    times = measured.times
    made = sum(process.batches for process in times.loading)
    total_s, batches = foreseen_s(measured), foreseen_batches(measured)
    if times.num_workers == 0 or total_s <= 0 or not made:
        return
    making_s = _settled_making_s(measured, made) * batches
    stepping_s = _settled_stepping_s(measured) * batches
    yield Fix(
        "no workers",
        "DataLoader(…, num_workers=0)",
        total_s / max(1e-9, making_s + stepping_s),
        f"starting and ending workers took {startup_s(measured):.2f} s of {total_s:.2f} s, and making all "
        f"batches {making_s:.2f} s",
    )


def _settled_making_s(measured: Measurements, made: int) -> float:
    """What a batch takes a process that has made many: those that end after a few have hardly warmed up."""
    if measured.quickest_s is not None:
        return measured.quickest_s
    return sum(process.cpu_s + process.blocked_s for process in measured.times.loading) / made


def _settled_stepping_s(measured: Measurements) -> float:
    """What a step takes a process that does not fork."""
    steps_s, stepping_s = measured.times.steps_s, measured.times.stepping_s
    mean_s = stepping_s / max(1, measured.times.batches)
    if not steps_s or sum(steps_s) <= 0:
        return mean_s
    quick_s = sorted(steps_s)[len(steps_s) // 10]
    settled_s = sum(min(step_s, max(quick_s, step_s - FORKED_S)) for step_s in steps_s)
    return mean_s * settled_s / sum(steps_s)
