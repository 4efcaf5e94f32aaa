"""Tuning of one loader: what is known, the decisions that follow, and which of its epochs measures.

It lives as long as the loader. Epochs report events to it, and follow its decisions.
"""

from __future__ import annotations

import os
import statistics
import weakref
from dataclasses import replace

import torch

from fastload.errors import OptionError
from fastload.loader._arguments import LoaderView, WorkerOptions
from fastload.loader._measurements import (
    DEFAULT_SETTINGS,
    Candidate,
    SingleProcessCost,
    Trial,
    TuningMeasurements,
    TuningSettings,
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

_ORIGIN = "measured in this run"


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
    """Decides the parameters of one loader that its user has left unset.

    Attributes:
        measured: The measurements, from which everything is decided: replaced by each event.
        is_settled: True once nothing is left to be measured.
        is_dataset_checked: True once it is known if workers may load: see `DatasetState`.
        is_off: True if nothing is decided.
    """

    def __init__(self, view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> None:
        self.measured = TuningMeasurements(
            dict(view.explicit), NO_LIMITS_YET, batches=view.batches, settings=settings
        )
        self.is_settled = False
        self.is_dataset_checked = False
        self._origin = _ORIGIN
        # True if a cache of the dataset was filling at the beginning of the epoch.
        self._was_filling = False
        # Batches of the latest complete epoch, used if the sampler has no length.
        self._counted_batches: int | None = None
        # Seconds that workers have lost against loading without them, since they started or the plan settled.
        self._behind_s = 0.0
        # Seconds that the settled plan has saved against loading without workers; less than 0: lost.
        self._saved_s = 0.0
        # The times that starting a worker took.
        self._starts_s: list[float] = []
        self._measuring: weakref.ref[object] | None = None
        self._decision: tuple[TuningMeasurements, Decision] | None = None
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
        """True if the coming epoch is loaded without workers to its end, so nothing has to be watched.

        A short epoch cannot show that the plan no longer fits.
        """
        measured = self.measured
        if not self.is_settled or self.best.num_workers:
            return False
        if measured.why_no_workers:
            return True
        if measured.batches is None:
            return False
        return measured.batches * single_process_s(measured) < measured.settings.watched_s

    @property
    def plan(self) -> Plan:
        return make_plan(self.measured, self.decide(), self.is_settled, self._origin)

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
        if self._decision is None or self._decision[0] is not self.measured:
            self._decision = self.measured, decide(self.measured)
        return self._decision[1]

    @property
    def best(self) -> Candidate:
        return self.decide().best

    @property
    def next(self) -> Candidate | None:
        """The candidate to measure next; None: none, or not yet."""
        return None if self.is_settled else self.decide().next

    @property
    def measuring(self) -> object:
        """The iterator of the epoch that measured last; None if it is no longer in use."""
        return None if self._measuring is None else self._measuring()

    def begin_measuring(self, epoch: object) -> None:
        """Make an epoch the one that measures, instead of any other that is still running."""
        self._measuring = weakref.ref(epoch)

    def is_behind(self, workers: int) -> bool:
        """Return whether workers have lost more time than allowed."""
        measured = self.measured
        allowed_s = tolerated_loss_s(measured, workers) if self.is_settled else budget_s(measured)
        return self._behind_s > allowed_s

    def stuck_s(self) -> float:
        """Return the seconds without a batch after which workers are considered stuck."""
        cost, settings = self.measured.single_process, self.measured.settings
        return settings.stuck_s + (settings.stuck_loads * cost.load_s if cost is not None else 0.0)

    def prepare(self, view: LoaderView, is_filling: bool) -> None:
        """Begin another epoch; `is_filling` if a cache of the dataset is filling.

        Measurements taken while it was filling are discarded once it is full.
        """
        batches = self._counted_batches if view.batches is None else view.batches
        self.measured = replace(self.measured, batches=batches)
        if self._was_filling and not is_filling and not self.measured.why_no_workers:
            self.restart(_ORIGIN)
        self._was_filling = is_filling
        self.settle_if_done()

    def note_single_process(self, view: LoaderView, cost: SingleProcessCost) -> None:
        """Record the cost of a batch without workers, and read the limits on workers if they matter."""
        # This check does not initialise CUDA.
        has_cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        limits, settings = self.measured.limits, self.measured.settings
        if not is_epoch_tiny(self.measured, cost):
            limits = read_limits(view.multiprocessing_context, cost.batch_bytes, settings)
        self.measured = replace(self.measured, single_process=cost, limits=limits, has_cuda=has_cuda)
        self._note_start_s()

    def note_trial(self, trial: Trial) -> None:
        """Record a trial, whose lost time counts; only the latest ones of each candidate are stored."""
        measured = self.measured
        same = measured.trials_of(trial.candidate)
        outdated = same[0] if len(same) >= measured.settings.most_trials else None
        trials = (*(each for each in measured.trials if each is not outdated), trial)
        self.measured = replace(measured, trials=trials, lost_s=measured.lost_s + self._behind_s)
        self._behind_s = 0.0

    def note_start(self, seconds: float, workers: int) -> None:
        """Record how long these workers took from their start to the first batch."""
        cost = self.measured.single_process
        load_s = 0.0 if cost is None else cost.load_s
        self._starts_s.append(max(0.0, seconds - load_s) / workers)
        self._note_start_s()

    def note_batches(self, candidate: Candidate, batches: int, seconds: float) -> None:
        """Record loaded batches; workers are compared with loading without them."""
        if candidate.num_workers and self.is_baseline_known:
            lost_s = seconds - batches * single_process_s(self.measured)
            self._behind_s = max(0.0, self._behind_s + lost_s)
            self._saved_s -= lost_s
        if not self.is_settled:
            self.measured = replace(self.measured, seen_batches=self.measured.seen_batches + batches)

    def note_end(self, batches: int) -> None:
        """Record the number of batches in an epoch that has ended."""
        self._counted_batches = batches

    def forbid_workers(self, reason: str) -> None:
        """Record why workers must not be used, as a sentence, and settle the plan."""
        self.measured = replace(self.measured, why_no_workers=reason)
        self.is_dataset_checked = self.is_settled = True

    def settle_if_done(self) -> None:
        """End the search if nothing is left to try."""
        if self.is_settled or not self.is_baseline_known:
            return
        decision = self.decide()
        if decision.next is None and not decision.is_deferred:
            self.is_settled = True
            self._behind_s = self._saved_s = 0.0

    def restart(self, origin: str) -> None:
        """Begin the search again, because a plan no longer fits; time that it lost or saved still counts."""
        lost_s = self.measured.lost_s + (-self._saved_s if self.is_settled else self._behind_s)
        self.measured = replace(self.measured, single_process=None, trials=(), lost_s=max(0.0, lost_s))
        self.is_settled, self._origin, self._behind_s = False, origin, 0.0

    def _note_start_s(self) -> None:
        if self._starts_s:
            limits = replace(self.measured.limits, start_s=statistics.median(self._starts_s))
            self.measured = replace(self.measured, limits=limits)
