"""Tuning of one loader: what is known, and the decisions that follow.

All of it is one immutable value, so any situation can be replayed: the events in reducer.py give another
value, and the number of workers to try next is a function of it (`decide`). There are few candidates: no
workers, then as many as the CPUs can serve, then twice as many if workers were seen waiting. A challenger and
the best so far are measured in turns, and the challenger has to win clearly. The cost of trials is bounded
(`budget_s`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastload.loader.measurements import (
    DEFAULT_PREFETCH,
    DEFAULT_SETTINGS,
    NO_LIMITS_YET,
    Decision,
    SingleProcessCost,
    Trial,
    TuningSettings,
    WorkerLimits,
)
from fastload.system.units import format_duration


@dataclass(frozen=True, slots=True)
class Tuning:
    """Everything from which a plan is decided.

    Attributes:
        explicit: The parameters that the user has set, by name.
        limits: Resources that the loader may use.
        single_process: Cost of a batch without workers; None while that has not been measured.
        batches: Batches in an epoch; None if unknown.
        trials: The trials in order, including those without workers.
        why_no_workers: The reason that forbids workers, as a sentence; "" if there is none.
        seen_batches: Batches handed out until the plan was settled, in all epochs.
        lost_s: Seconds lost to trials and failed plans, compared with loading without workers.
        behind_s: Seconds that workers have lost since their latest trial.
        starts_s: The times that starting a worker took.
        has_cuda: True if this process uses a CUDA device.
        is_settled: True once nothing is left to be measured.
        is_dataset_checked: True once it is known if workers may load: see `DatasetState`.
        origin: The source of the measurements, as a sentence.
        settings: The constants by which it is decided.
    """

    explicit: Mapping[str, Any]
    limits: WorkerLimits
    single_process: SingleProcessCost | None = None
    batches: int | None = None
    trials: tuple[Trial, ...] = ()
    why_no_workers: str = ""
    seen_batches: int = 0
    lost_s: float = 0.0
    behind_s: float = 0.0
    starts_s: tuple[float, ...] = ()
    has_cuda: bool = False
    is_settled: bool = False
    is_dataset_checked: bool = False
    origin: str = "measured in this run"
    settings: TuningSettings = DEFAULT_SETTINGS

    def after_trial(self, trial: Trial) -> Tuning:
        """Record a trial, whose lost time counts; of each number of workers, only the latest are stored."""
        same = self.trials_of(trial.num_workers)
        outdated = same[0] if len(same) >= self.settings.most_trials else None
        trials = (*(each for each in self.trials if each is not outdated), trial)
        return replace(self, trials=trials, lost_s=self.lost_s + self.behind_s, behind_s=0.0)

    def to_be_measured_again(self, reason: str, lost_s: float) -> Tuning:
        """Begin the search again, for a reason that is a clause, after a loss of some seconds."""
        origin = f"measured again in this run, because {reason}"
        again = replace(self, single_process=None, limits=NO_LIMITS_YET, trials=(), is_settled=False)
        return replace(again, lost_s=self.lost_s + lost_s, origin=origin)

    def without_workers(self, reason: str) -> Tuning:
        """Record why workers must not be used, as a sentence, and settle the plan."""
        return replace(self, why_no_workers=reason, is_dataset_checked=True, is_settled=True)

    def settled_if_done(self) -> Tuning:
        """End the search if nothing is left to try."""
        if self.is_settled or self.single_process is None:
            return self
        decision = self.decide()
        if decision.next is not None or decision.is_deferred:
            return self
        return replace(self, is_settled=True, behind_s=0.0)

    @property
    def best(self) -> int:
        """The number of workers of the best decision."""
        return self.decide().best

    @property
    def following(self) -> int:
        """The number of workers to load with next: the one to measure or, if there is none, the best."""
        decision = self.decide()
        return decision.best if self.is_settled or decision.next is None else decision.next

    @property
    def cost(self) -> SingleProcessCost:
        """The cost of a batch without workers, once it has been measured."""
        assert self.single_process is not None
        return self.single_process

    @property
    def start_s(self) -> float:
        """Seconds that starting a worker takes."""
        return statistics.median(self.starts_s) if self.starts_s else self.limits.start_s

    def trials_of(self, workers: int) -> list[Trial]:
        """Return the trials with this number of workers."""
        return [trial for trial in self.trials if trial.num_workers == workers]

    def is_behind(self) -> bool:
        """Return whether workers that are tried have lost more time than allowed."""
        return self.behind_s > self.budget_s

    @property
    def stuck_s(self) -> float:
        """Seconds without a batch after which workers are considered stuck."""
        load_s = 0.0 if self.single_process is None else self.single_process.load_s
        return self.settings.stuck_s + self.settings.stuck_loads * load_s

    def decide(self) -> Decision:
        """Return the best number of workers so far, and the one to measure next."""
        best = 0
        tried = [trial.num_workers for trial in self.trials if trial.num_workers]
        if self.single_process is None or self.why_no_workers or (not tried and self.why_single_process):
            return Decision(best, None)
        # Once workers have been tried, their times decide, even if starting them took longer than expected.
        workers = tried[0] if tried else self.affordable_workers(self.first_workers)
        if not workers:
            return Decision(best, None, is_deferred=True)
        while workers:
            if not self.trials_of(workers) and not self.affordable_workers(workers):
                break
            has_won = self._has_won(workers, best)
            if has_won is None:
                counts = [len(self.trials_of(each)) for each in (workers, best)]
                return Decision(best, workers if counts[0] < counts[1] else best)
            if not has_won:
                break
            best, workers = workers, self._more_workers(workers)
        return Decision(best, None)

    def _has_won(self, challenger: int, best: int) -> bool | None:
        """Return whether a challenger is clearly better than the best; None: more trials are needed."""
        challenger_s = [self._trial_s(trial) for trial in self.trials_of(challenger)]
        best_s = [self._trial_s(trial) for trial in self.trials_of(best)]
        if not challenger_s:
            return None
        settings = self.settings
        ratio = statistics.median(challenger_s) / max(statistics.median(best_s), 1e-12)
        is_affordable_again = ratio < 1 or self.affordable_workers(challenger)
        if ratio >= 1 + settings.early_gain or not is_affordable_again:
            return False
        if len(best_s) > 1 and statistics.median(challenger_s) <= min(best_s) * (1 - settings.early_gain):
            return True
        if min(len(challenger_s), len(best_s)) < settings.rounds:
            return None
        return ratio <= 1 - settings.gain

    def _more_workers(self, best: int) -> int:
        """Return twice as many workers if they may be better; else 0."""
        trials = self.trials_of(best)
        waiting = statistics.median(trial.waiting_share for trial in trials)
        blocked = statistics.median(trial.blocked_share for trial in trials)
        twice = min(2 * best, self.most_workers)
        may_be_better = twice <= self._useful_workers or blocked >= self.settings.blocked
        return twice if twice > best and waiting > self.settings.gain and may_be_better else 0

    @property
    def why_single_process(self) -> str:
        """The reason why no workers will ever be tried, as a sentence; "" if they are worth a trial."""
        cost = self.cost
        if self.most_workers < 1:
            return f"no workers can be started: {self.limits.reason}"
        if cost.load_s < self.settings.gain * cost.batch_s:
            share = cost.load_s / cost.batch_s
            return f"loading takes {share:.1%} of the time: there is nothing to gain"
        if self.batches is None:
            return ""
        saved_s, start_s = self._saved_and_start_s(self.batches)
        if saved_s - start_s < self.settings.gain * self.batches * cost.batch_s:
            return (
                f"workers could save at most {format_duration(saved_s)} of an epoch, and starting them takes "
                f"{format_duration(start_s)}"
            )
        return ""

    def _saved_and_start_s(self, batches: int) -> tuple[float, float]:
        """Return the most seconds that the first workers save in an epoch, and those that starting takes."""
        cost, workers = self.cost, self.first_workers
        saved_s = batches * (cost.batch_s - max(cost.step_s, cost.load_s / workers))
        return saved_s, workers * self.start_s

    @property
    def first_workers(self) -> int:
        """The number of workers to try first: as many as the training needs and the CPUs can serve.

        With w workers, an epoch takes load / w + w * start, which is least for w = sqrt(load / start).
        """
        cost = self.cost
        needed = math.ceil(cost.load_s / max(cost.step_s, 1e-9)) + 1
        workers = min(self._useful_workers, needed, self.most_workers)
        start_s = self.settings.start_margin * self.start_s
        if self.batches is not None and start_s:
            workers = min(workers, math.ceil(math.sqrt(self.batches * cost.load_s / start_s)))
        return max(1, workers)

    @property
    def _useful_workers(self) -> int:
        """The number of workers that the CPUs can serve: one that waits for a disk leaves its CPU free."""
        cost, most = self.cost, self.settings.most_workers_per_cpu
        waits = min(most, 1 + cost.load_blocked_s / max(cost.load_cpu_s, 1e-9))
        # Another worker is not worth it if less than a quarter of its time would be used.
        return math.ceil(self.limits.cpus * waits - 0.25)

    @property
    def most_workers(self) -> int:
        """The most workers that may be tried, each with the fewest batches to prefetch."""
        prefetch = int(self.explicit.get("prefetch_factor", DEFAULT_PREFETCH))
        by_batches = self.limits.most_batches // (prefetch + 1)
        return max(0, min(self.limits.most_workers, self.settings.most_workers, by_batches))

    def prefetch_of(self, workers: int) -> int:
        """Return the prefetch factor for which eight batches are prefetched in total, if memory allows."""
        if not workers:
            return 0
        if "prefetch_factor" in self.explicit:
            return int(self.explicit["prefetch_factor"])
        allowed = self.limits.most_batches // workers - 1
        return max(DEFAULT_PREFETCH, min(math.ceil(self.settings.prefetched_batches / workers), allowed))

    @property
    def budget_s(self) -> float:
        """The seconds that further trials may cost."""
        settings, batches = self.settings, self.batches or 0
        ahead = max(2 * self.seen_batches, settings.epochs_ahead * batches)
        budget_s = settings.budget_share * ahead * self.single_process_s
        if batches:
            saved_s, start_s = self._saved_and_start_s(batches)
            trial_s = settings.start_margin * start_s + self.cost.load_s
            if (saved_s - start_s) * ahead / batches >= settings.worth_trial * trial_s:
                budget_s = max(budget_s, trial_s)
        return budget_s - self.lost_s

    def affordable_workers(self, workers: int) -> int:
        """Return how many of these workers can be started within the budget; 0 if these are too few.

        One worker shows little about what several can do.
        """
        start_s = self.settings.start_margin * self.start_s
        affordable = min(workers, math.floor((self.budget_s - self.cost.load_s) / max(start_s, 1e-9)))
        return affordable if affordable >= min(workers, 2) else 0

    def fits_into_epoch(self, workers: int, batches_left: int | None) -> bool:
        """Return whether the rest of an epoch is long enough to start these workers and measure them."""
        one_s = workers * self.start_s + self.settings.window_s
        return (
            batches_left is None
            or batches_left * self.single_process_s >= self.settings.least_windows * one_s
        )

    @property
    def single_process_s(self) -> float:
        """Seconds from one batch to the next without workers."""
        return self.batch_s(0)

    def batch_s(self, workers: int) -> float:
        """Return the seconds from one batch to the next with these workers, their start included."""
        trials = self.trials_of(workers)
        return statistics.median(map(self._trial_s, trials)) if trials else self.cost.batch_s

    def tolerated_loss_s(self, workers: int) -> float:
        """Return how many seconds workers of a settled plan may lose against loading without them.

        In each epoch, they first lose the time that starting them takes.
        """
        batches = self.seen_batches if self.batches is None else self.batches
        return 2 * workers * self.start_s + self.settings.gain * batches * self.single_process_s

    def _trial_s(self, trial: Trial) -> float:
        """Return the seconds from one batch to the next, with the batch's share of starting the workers."""
        start_s = 0.0 if trial.includes_start else trial.num_workers * self.start_s
        return trial.batch_s + start_s / (self.batches or math.inf)
