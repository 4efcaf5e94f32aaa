"""Machines that exist as numbers alone: what a batch takes there, and a search that is told so."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from fastload.loader.tuning.plan import Alone, Limits, Measurements, Trial
from fastload.loader.tuning.search import Candidate, best_candidate, next_candidate


class Machine(NamedTuple):
    """A simulated training.

    Attributes:
        batch_s: Seconds from one batch to the next, for a number of workers and a prefetch_factor.
        alone: What a batch takes without workers.
        limits: What a loader may take.
        noise: The standard deviation of what is measured, as a share.
        said: What its user has said.
    """

    batch_s: Callable[[int, int], float]
    alone: Alone
    limits: Limits
    noise: float = 0.0
    said: dict = {}  # noqa: RUF012

    def regret(self, chosen: Candidate, grid: list[Candidate]) -> float:
        """The throughput of what was chosen, as a share of the best of a grid."""
        return min(self.batch_s(*each) for each in grid) / self.batch_s(*chosen)


class Searched(NamedTuple):
    """What a search came to."""

    best: Candidate
    measured: Measurements


GRID = [Candidate(0, 0), *(Candidate(w, p) for w in range(1, 7) for p in (1, 2, 4, 8))]


def searched(machine: Machine, seed: int = 0, batches: int = 10_000) -> Searched:
    """Lets the search run until it has nothing left to try."""
    noise = random.Random(seed)
    measured = Measurements(machine.said, machine.limits, machine.alone, batches)
    while True:
        candidate = next_candidate(measured)
        if candidate is None:
            return Searched(best_candidate(measured), measured)
        assert len(measured.trials) < 80, "the search does not end"
        assert candidate.num_workers <= machine.limits.most_workers
        seconds = machine.batch_s(*candidate) * max(0.5, 1 + noise.gauss(0, machine.noise))
        count = max(4, 2 * candidate.num_workers)
        waiting = max(0.0, seconds - machine.alone.step_s)
        trial = Trial(*candidate, count, count * seconds, count * waiting)
        measured = Measurements(
            machine.said, machine.limits, machine.alone, batches, (*measured.trials, trial)
        )


def limits(cpus: int = 2, most_workers: int = 32, most_batches: int = 1000, start_s: float = 0.02) -> Limits:
    """Limits of a machine, generous ones unless said otherwise."""
    return Limits(cpus, most_workers, most_batches, "so says the test", start_s)


def alone(load_s: float, cpu_s: float | None = None, step_s: float = 1e-4, batch_size: int = 64) -> Alone:
    """What a batch takes without workers; all of it CPU time unless said otherwise."""
    cpu_s = load_s if cpu_s is None else cpu_s
    return Alone(batch_size, 10_000_000, load_s, cpu_s, load_s - cpu_s, step_s)
