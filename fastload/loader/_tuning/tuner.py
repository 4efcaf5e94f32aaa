"""State of one loader's tuning: its measurements, and the decisions that follow from them.

It lives as long as the loader. Epochs report their measurements to it, and follow its decisions.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import weakref
from typing import Any

import torch

from fastload.errors import OptionError
from fastload.loader._arguments import LoaderView, WorkerOptions
from fastload.loader._measurements import (
    Candidate,
    SingleProcessCost,
    Trial,
    TuningMeasurements,
    WorkerLimits,
)
from fastload.loader._tuning.decide import (
    Decision,
    budget_s,
    decide,
    is_epoch_tiny,
    single_process_s,
    tolerated_loss_s,
)
from fastload.loader._tuning.limits import NO_LIMITS_YET, read_limits
from fastload.loader._tuning.plan import Plan, make_plan
from fastload.loader._tuning_settings import DEFAULT_SETTINGS, TuningSettings


def is_switched_off() -> bool:
    """Return whether FASTLOAD_PLAN=off is set, so that nothing is decided.

    Raises:
        OptionError: It has another value.
    """
    value = os.environ.get("FASTLOAD_PLAN", "")
    if value not in ("", "off"):
        raise OptionError(f'FASTLOAD_PLAN must be "off", or not set, got {value!r}')
    return value == "off"


class Tuner:
    """Decides the parameters of one loader that its user has left unset."""

    def __init__(self, view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> None:
        self._origin = "measured in this run"
        self.measured = TuningMeasurements(
            dict(view.explicit), NO_LIMITS_YET, batches=view.batches, settings=settings
        )
        self._plan: Plan | None = None
        self._decision: Decision | None = None
        self._was_filling = False
        # Batches of the latest complete epoch, used if the sampler has no length.
        self._counted_batches: int | None = None
        # Seconds that workers have lost against loading without them, since they started or the plan settled.
        self._behind_s = 0.0
        # Seconds that the settled plan has saved against loading without workers; less than 0: lost.
        self._saved_s = 0.0
        self._starts_s: list[float] = []
        self._measuring: weakref.ref[Any] | None = None
        #: True once nothing is left to be measured.
        self.is_settled = False
        #: True once it is known if workers may load: see `DatasetState`.
        self.is_dataset_checked = False
        self.is_off = is_switched_off()
        if view.is_iterable:
            self.forbid_workers(
                "each worker would get all samples of an iterable dataset, unless it splits them"
            )
        elif self.is_off:
            self.forbid_workers("FASTLOAD_PLAN=off: nothing is tried")

    @property
    def is_baseline_known(self) -> bool:
        return self.measured.single_process is not None

    @property
    def is_final(self) -> bool:
        """True if the coming epoch is loaded without workers to its end, so nothing has to be watched."""
        if not self.is_settled or self.best.num_workers:
            return False
        measured = self.measured
        if measured.why_no_workers:
            return True
        if measured.batches is None:
            return False
        return measured.batches * single_process_s(measured) < measured.settings.watched_s

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            self._plan = make_plan(self.measured, self.decide(), self.is_settled, self._origin)
        return self._plan

    @property
    def options(self) -> WorkerOptions:
        """The decided values; without workers while their number is not settled."""
        plan = self.plan
        return WorkerOptions(
            plan.num_workers.value if self.is_settled else 0,
            plan.prefetch_factor.value if self.is_settled else None,
            bool(plan.pin_memory.value),
            bool(plan.persistent_workers.value),
        )

    def decide(self) -> Decision:
        if self._decision is None:
            self._decision = decide(self.measured)
        return self._decision

    @property
    def best(self) -> Candidate:
        return self.decide().best

    @property
    def next(self) -> Candidate | None:
        """The candidate to measure next; None: none, or not yet."""
        return None if self.is_settled else self.decide().next

    def prepare(self, view: LoaderView, is_filling: bool) -> None:
        """Begin another epoch.

        Measurements taken while a cache of the dataset was filling are discarded once it is full.
        """
        batches = self._counted_batches if view.batches is None else view.batches
        if batches != self.measured.batches:
            self._update(batches=batches)
        if self._was_filling and not is_filling and not self.measured.why_no_workers:
            self.restart("measured in this run")
        self._was_filling = is_filling
        self.settle_if_done()

    @property
    def measuring(self) -> Any:
        """The iterator of the epoch that measured last; None if it is no longer in use."""
        return None if self._measuring is None else self._measuring()

    def begin_measuring(self, epoch: object) -> None:
        """Make an epoch the one that measures, instead of any other that is still running."""
        self._measuring = weakref.ref(epoch)

    def note_single_process(self, view: LoaderView, cost: SingleProcessCost) -> None:
        """Record the cost of a batch without workers, and read the limits on workers."""
        if not is_epoch_tiny(self.measured, cost):
            context, settings = view.multiprocessing_context, self.measured.settings
            self._note_limits(read_limits(context, cost.batch_bytes, settings))
        # This check does not initialise CUDA.
        has_cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        self._update(single_process=cost, has_cuda=has_cuda)

    def note_trial(self, trial: Trial) -> None:
        """Record a trial and the time it lost; only the latest trials of each candidate are stored."""
        lost_s, self._behind_s = self.measured.lost_s + self._behind_s, 0.0
        same = self.measured.trials_of(trial.candidate)
        outdated = same[0] if len(same) >= self.measured.settings.most_trials else None
        trials = [each for each in self.measured.trials if each is not outdated]
        self._update(trials=(*trials, trial), lost_s=lost_s)

    def note_start(self, seconds: float) -> None:
        self._starts_s.append(seconds)
        self._note_limits(self.measured.limits)

    def note_batches(self, candidate: Candidate, batches: int, seconds: float) -> None:
        """Record how long batches took, to compare workers with loading without them."""
        if not self.is_settled:
            self._update(seen_batches=self.measured.seen_batches + batches)
        if candidate.num_workers and self.is_baseline_known:
            lost_s = seconds - batches * single_process_s(self.measured)
            self._behind_s = max(0.0, self._behind_s + lost_s)
            self._saved_s -= lost_s

    def note_epoch(self, batches: int) -> None:
        self._counted_batches = batches

    def is_behind(self, workers: int) -> bool:
        """Return whether workers have lost more time than allowed."""
        if self.is_settled:
            return self._behind_s > tolerated_loss_s(self.measured, workers)
        return self._behind_s > budget_s(self.measured)

    def forbid_workers(self, reason: str) -> None:
        """Record why workers must not be used, and settle the plan."""
        self.is_dataset_checked = True
        self._update(why_no_workers=reason)
        self.is_settled = True

    def settle_if_done(self) -> None:
        """End the search if nothing is left to try."""
        if self.is_settled or not self.is_baseline_known:
            return
        decision = self.decide()
        if decision.next is None and not decision.is_deferred:
            self.is_settled, self._plan, self._behind_s, self._saved_s = True, None, 0.0, 0.0

    def restart(self, origin: str) -> None:
        """Restart the search because a plan no longer fits; time that it lost or saved still counts."""
        lost_s = max(0.0, self.measured.lost_s + (-self._saved_s if self.is_settled else self._behind_s))
        self.is_settled, self._origin, self._behind_s = False, origin, 0.0
        self._update(single_process=None, trials=(), lost_s=lost_s)

    def stuck_s(self) -> float:
        """Return the seconds without a batch after which workers are considered stuck."""
        cost, settings = self.measured.single_process, self.measured.settings
        return settings.stuck_s + (settings.stuck_loads * cost.load_s if cost is not None else 0.0)

    def _note_limits(self, limits: WorkerLimits) -> None:
        if self._starts_s:
            limits = dataclasses.replace(limits, start_s=statistics.median(self._starts_s))
        self._update(limits=limits)

    def _update(self, **values: Any) -> None:
        self.measured = dataclasses.replace(self.measured, **values)
        self._plan = self._decision = None
