"""Simulated machines: the time of a batch is a function, and epochs are replayed without a clock."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastload.loader.measurements import (
    DEFAULT_SETTINGS,
    SingleProcessCost,
    Trial,
    WorkerLimits,
)
from fastload.loader.tuning.tuning import Tuning

GRID = [(0, 0), *((w, p) for w in range(1, 7) for p in (1, 2, 4, 8))]


def limits(
    cpus: int = 2, most_workers: int = 32, most_batches: int = 1000, start_s: float = 0.025
) -> WorkerLimits:
    """Return the limits of a machine, generous ones by default."""
    return WorkerLimits(cpus, most_workers, most_batches, "the test allows no more", start_s)


def single_process_cost(
    load_s: float, cpu_s: float | None = None, step_s: float = 1e-4, batch_size: int = 64
) -> SingleProcessCost:
    """Return the cost of a batch without workers; all of it is CPU time by default."""
    cpu_s = load_s if cpu_s is None else cpu_s
    return SingleProcessCost(batch_size, 10_000_000, load_s, cpu_s, load_s - cpu_s, step_s)


@dataclass
class Machine:
    """A simulated training.

    Attributes:
        batch_s: Seconds from one batch to the next, for a number of workers and a prefetch_factor.
        cost: The cost of a batch without workers.
        limits: The resources that a loader may take.
        noise: The standard deviation of a measured window, as a share.
        start_s: Seconds that starting a worker takes; None: those of the limits.
        blocked: Share of workers' time in which they wait for something other than a CPU.
        explicit: The parameters that its user has set.
    """

    batch_s: Callable[[int, int], float]
    cost: SingleProcessCost
    limits: WorkerLimits = field(default_factory=limits)
    noise: float = 0.0
    start_s: float | None = None
    blocked: float = 0.0
    explicit: dict[str, Any] = field(default_factory=dict)

    def regret(self, chosen: int, grid: list[tuple[int, int]]) -> float:
        """Return the throughput of a number of workers as a share of the best of a grid."""
        return min(self.batch_s(*each) for each in grid) / self.batch_s(chosen, self.prefetch_of(chosen))

    def prefetch_of(self, workers: int) -> int:
        """Return the prefetch factor that is decided for workers."""
        return Tuning(self.explicit, self.limits).prefetch_of(workers)


@dataclass
class Searched:
    """The outcome of a search: the best number of workers, the measurements, and how many seconds it took."""

    best: int
    measured: Tuning
    lost_s: float


def searched(machine: Machine, seed: int = 0, batches: int | None = 10_000) -> Searched:
    """Run the search until nothing is left to try."""
    noise = random.Random(seed)
    known = dataclasses.replace(machine.limits)
    measured = Tuning(machine.explicit, known, machine.cost, batches)
    measured = dataclasses.replace(measured, trials=(_trial(machine, 0, noise),))
    lost_s = 0.0
    for _ in range(60):
        decision = measured.decide()
        if decision.next is None:
            return Searched(decision.best, measured, lost_s)
        workers = decision.next
        assert workers <= machine.limits.most_workers
        assert not workers or measured.trials_of(workers) or measured.affordable_workers(workers)
        trial = _trial(machine, workers, noise)
        start_s = machine.limits.start_s if machine.start_s is None else machine.start_s
        loss_s = workers * start_s + trial.seconds - trial.batches * machine.batch_s(0, 0)
        lost_s += max(0.0, loss_s)
        known = dataclasses.replace(known, start_s=start_s if workers else known.start_s)
        measured = dataclasses.replace(
            measured,
            limits=known,
            trials=(*measured.trials, trial),
            lost_s=lost_s,
            seen_batches=measured.seen_batches + trial.batches,
        )
    raise AssertionError("the search does not end")


def _trial(machine: Machine, workers: int, noise: random.Random) -> Trial:
    seconds = machine.batch_s(workers, machine.prefetch_of(workers)) * max(
        0.5, 1 + noise.gauss(0, machine.noise)
    )
    count = max(4, 3 * workers, int(DEFAULT_SETTINGS.window_s / seconds))
    waiting = max(0.0, seconds - machine.cost.step_s)
    return Trial(workers, count, count * seconds, count * waiting, machine.blocked if workers else 0.0)
