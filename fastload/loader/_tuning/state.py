"""State of one loader's tuning: a value that never changes; each event gives the next one."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any

from fastload.loader._measurements import (
    Candidate,
    SingleProcessCost,
    Trial,
    TuningMeasurements,
    WorkerLimits,
)
from fastload.loader._tuning.decide import Decision, budget_s, single_process_s, tolerated_loss_s

_ORIGIN = "measured in this run"


@dataclass(frozen=True, slots=True)
class TunerState:
    """All that is known for tuning a loader, with a method for each event.

    Attributes:
        measured: The measurements, from which everything is decided.
        origin: The source of the measurements, as a sentence.
        is_settled: True once nothing is left to be measured.
        is_dataset_checked: True once it is known if workers may load: see `DatasetState`.
        was_filling: True if a cache of the dataset was filling at the beginning of the epoch.
        counted_batches: Batches of the latest complete epoch, used if the sampler has no length.
        behind_s: Seconds that workers have lost against loading without them, since they started or the plan
            settled.
        saved_s: Seconds that the settled plan has saved against loading without workers; less than 0: lost.
        starts_s: The times that starting a worker took.
    """

    measured: TuningMeasurements
    origin: str = _ORIGIN
    is_settled: bool = False
    is_dataset_checked: bool = False
    was_filling: bool = False
    counted_batches: int | None = None
    behind_s: float = 0.0
    saved_s: float = 0.0
    starts_s: tuple[float, ...] = ()

    @property
    def is_baseline_known(self) -> bool:
        return self.measured.single_process is not None

    @property
    def is_watched(self) -> bool:
        """True if an epoch without workers may show that the plan no longer fits: a short one does not."""
        measured = self.measured
        if measured.why_no_workers:
            return False
        if measured.batches is None:
            return True
        return measured.batches * single_process_s(measured) >= measured.settings.watched_s

    def is_behind(self, workers: int) -> bool:
        """Return whether workers have lost more time than allowed."""
        if self.is_settled:
            return self.behind_s > tolerated_loss_s(self.measured, workers)
        return self.behind_s > budget_s(self.measured)

    def stuck_s(self) -> float:
        """Return the seconds without a batch after which workers are considered stuck."""
        cost, settings = self.measured.single_process, self.measured.settings
        return settings.stuck_s + (settings.stuck_loads * cost.load_s if cost is not None else 0.0)

    def epoch_begun(self, batches: int | None, is_filling: bool) -> TunerState:
        """Measurements taken while a cache of the dataset was filling are discarded once it is full."""
        state = self._measured(batches=self.counted_batches if batches is None else batches)
        if self.was_filling and not is_filling and not self.measured.why_no_workers:
            state = state.restarted(_ORIGIN)
        return replace(state, was_filling=is_filling)

    def cost_measured(
        self, cost: SingleProcessCost, limits: WorkerLimits | None, has_cuda: bool
    ) -> TunerState:
        """The cost of a batch without workers, and the limits on workers; None: they do not matter."""
        state = self if limits is None else self._limited(limits)
        return state._measured(single_process=cost, has_cuda=has_cuda)

    def trial_ended(self, trial: Trial) -> TunerState:
        """Its lost time counts; only the latest trials of each candidate are stored."""
        measured = self.measured
        same = measured.trials_of(trial.candidate)
        outdated = same[0] if len(same) >= measured.settings.most_trials else None
        trials = (*(each for each in measured.trials if each is not outdated), trial)
        state = self._measured(trials=trials, lost_s=measured.lost_s + self.behind_s)
        return replace(state, behind_s=0.0)

    def worker_started(self, seconds: float) -> TunerState:
        return replace(self, starts_s=(*self.starts_s, seconds))._limited(self.measured.limits)

    def batches_loaded(self, candidate: Candidate, batches: int, seconds: float) -> TunerState:
        """Workers are compared with loading without them."""
        seen = self.measured.seen_batches + (0 if self.is_settled else batches)
        state = self._measured(seen_batches=seen)
        if not (candidate.num_workers and self.is_baseline_known):
            return state
        lost_s = seconds - batches * single_process_s(self.measured)
        return replace(state, behind_s=max(0.0, self.behind_s + lost_s), saved_s=self.saved_s - lost_s)

    def epoch_ended(self, batches: int) -> TunerState:
        return replace(self, counted_batches=batches)

    def dataset_checked(self) -> TunerState:
        return replace(self, is_dataset_checked=True)

    def workers_forbidden(self, reason: str) -> TunerState:
        """Workers must not be used, for a reason that is a sentence: the plan is settled."""
        return replace(self._measured(why_no_workers=reason), is_dataset_checked=True, is_settled=True)

    def decided(self, decision: Decision) -> TunerState:
        """The search ends if nothing is left to try."""
        if self.is_settled or not self.is_baseline_known:
            return self
        if decision.next is not None or decision.is_deferred:
            return self
        return replace(self, is_settled=True, behind_s=0.0, saved_s=0.0)

    def restarted(self, origin: str) -> TunerState:
        """The search begins again, because a plan no longer fits; time that it lost or saved still counts."""
        lost_s = self.measured.lost_s + (-self.saved_s if self.is_settled else self.behind_s)
        state = self._measured(single_process=None, trials=(), lost_s=max(0.0, lost_s))
        return replace(state, is_settled=False, origin=origin, behind_s=0.0)

    def _limited(self, limits: WorkerLimits) -> TunerState:
        if self.starts_s:
            limits = replace(limits, start_s=statistics.median(self.starts_s))
        return self._measured(limits=limits)

    def _measured(self, **values: Any) -> TunerState:
        return replace(self, measured=replace(self.measured, **values))
