"""Tuning of one loader: the state of it, the decisions that follow, and which of its epochs measures.

It lives as long as the loader. Epochs report events to its state, and follow its decisions.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch

from fastload.errors import OptionError
from fastload.loader._arguments import LoaderView, WorkerOptions
from fastload.loader._measurements import Candidate, SingleProcessCost, TuningMeasurements
from fastload.loader._tuning.decide import Decision, decide, is_epoch_tiny
from fastload.loader._tuning.limits import NO_LIMITS_YET, read_limits
from fastload.loader._tuning.plan import Plan, make_plan
from fastload.loader._tuning.state import TunerState
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
    """Decides the parameters of one loader that its user has left unset.

    Attributes:
        state: The current state, replaced at each event.
        is_off: True if nothing is decided.
    """

    def __init__(self, view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> None:
        measured = TuningMeasurements(
            dict(view.explicit), NO_LIMITS_YET, batches=view.batches, settings=settings
        )
        self.state = TunerState(measured)
        self._measuring: weakref.ref[Any] | None = None
        self._plan: tuple[TunerState, Plan] | None = None
        self._decision: tuple[TuningMeasurements, Decision] | None = None
        self.is_off = is_switched_off()
        if view.is_iterable:
            self.forbid_workers(
                "each worker would get all samples of an iterable dataset, unless it splits them"
            )
        elif self.is_off:
            self.forbid_workers("FASTLOAD_PLAN=off: nothing is tried")

    @property
    def measured(self) -> TuningMeasurements:
        return self.state.measured

    @property
    def is_settled(self) -> bool:
        return self.state.is_settled

    @property
    def is_final(self) -> bool:
        """True if the coming epoch is loaded without workers to its end, so nothing has to be watched."""
        return self.is_settled and not self.best.num_workers and not self.state.is_watched

    @property
    def plan(self) -> Plan:
        state = self.state
        if self._plan is None or self._plan[0] is not state:
            self._plan = state, make_plan(state.measured, self.decide(), state.is_settled, state.origin)
        return self._plan[1]

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

    def prepare(self, view: LoaderView, is_filling: bool) -> None:
        """Begin another epoch; `is_filling` if a cache of the dataset is filling."""
        self.state = self.state.epoch_begun(view.batches, is_filling)
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
        limits = None
        if not is_epoch_tiny(self.measured, cost):
            context, settings = view.multiprocessing_context, self.measured.settings
            limits = read_limits(context, cost.batch_bytes, settings)
        # This check does not initialise CUDA.
        has_cuda = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        self.state = self.state.cost_measured(cost, limits, has_cuda)

    def is_behind(self, workers: int) -> bool:
        """Return whether workers have lost more time than allowed."""
        return self.state.is_behind(workers)

    def forbid_workers(self, reason: str) -> None:
        """Record why workers must not be used, and settle the plan."""
        self.state = self.state.workers_forbidden(reason)

    def settle_if_done(self) -> None:
        """End the search if nothing is left to try."""
        self.state = self.state.decided(self.decide())
