"""How many batches to ask of workers in advance, where the user has said how many workers there are.

Which worker makes which batch, and so what each of them draws, is what it is in torch: only how early they
are asked changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fastload.loader.clock import StepClock
from fastload.loader.strategy import LoaderView
from fastload.loader.tuning.limits import limits_of
from fastload.loader.tuning.plan import Plan
from fastload.loader.tuning.search import Candidate, next_prefetch
from fastload.loader.tuning.tuner import Tuner
from fastload.loader.tuning.window import Window


class PrefetchTuner:
    """Decides the prefetch_factor of one loader.

    Args:
        view: The loader.
    """

    def __init__(self, view: LoaderView) -> None:
        self._tuner = Tuner(view)
        self._is_settled = False
        self._measuring: weakref.ref[Any] | None = None
        self._window: Window | None = None

    @property
    def plan(self) -> Plan:
        """The plan with what was decided so far."""
        return self._tuner.plan

    @property
    def prefetch_factor(self) -> int:
        """The number decided on so far."""
        return int(self._tuner.plan.prefetch_factor.value)

    def watch(self, view: LoaderView, clock: StepClock) -> Callable[[Any], int] | None:
        """What an epoch's iterator is to call; None if there is nothing left to find out.

        Args:
            view: The loader.
            clock: The epoch's.
        """
        is_measuring = self._measuring is not None and self._measuring() is not None
        if self._is_settled or self._tuner.is_off or is_measuring:
            return None
        self._measuring = weakref.ref(clock)
        self._window = None
        return lambda workers: self._watch(view, workers)

    def _watch(self, view: LoaderView, workers: Any) -> int:
        """Takes note of what a window shows, and tries what comes next; returns when to be called again."""
        clock: StepClock = workers.clock
        number = clock.num_workers
        if self._window is None or self._window.clock is not clock:
            self._tuner.note_limits(limits_of(view, clock.batch_bytes))
            self._window = Window(clock, clock.batches + 2 * number)
        elif self._window.is_over(number):
            self._tuner.note_trial(self._window.trial(Candidate(number, clock.prefetch_factor or 0)))
            candidate = next_prefetch(self._tuner.plan.measured, number)
            if candidate is None:
                self._is_settled, self._measuring = True, None
                workers.ask_ahead(self.prefetch_factor)
                return int(1e18)
            if candidate.prefetch_factor != clock.prefetch_factor:
                workers.ask_ahead(candidate.prefetch_factor)
            self._window = Window(clock, clock.batches + number * candidate.prefetch_factor)
        return self._window.due(number)
