"""Batches asked of workers in advance, where the user has set the number of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastload.loader._arguments import LoaderView
from fastload.loader._measurements import TuningMeasurements
from fastload.loader._tuning.decide import DEFAULT_PREFETCH, prefetch_of
from fastload.loader._tuning.limits import read_limits
from fastload.loader._tuning.tuner import is_switched_off

_NEVER = 1 << 62


class PrefetchRule:
    """Has eight batches under way in all as soon as the first batch shows that memory allows it.

    Which worker makes which batch, and so what each of them draws, is what it is in torch.
    """

    reason = "eight batches under way hide that some take longer than others, if memory allows"

    def __init__(self, explicit: Mapping[str, Any]) -> None:
        self._explicit = dict(explicit)
        self._is_known = is_switched_off()
        self.prefetch_factor = DEFAULT_PREFETCH

    def watch(self, view: LoaderView) -> Callable[[Any], int] | None:
        """Return a function to call with an epoch's iterator after its first batch; None once it is known."""
        return None if self._is_known else lambda workers: self._apply(view, workers)

    def _apply(self, view: LoaderView, workers: Any) -> int:
        limits = read_limits(view.multiprocessing_context, workers.clock.batch_bytes)
        measured = TuningMeasurements(self._explicit, limits)
        self.prefetch_factor = prefetch_of(measured, workers.clock.num_workers)
        self._is_known = True
        workers.ask_ahead(self.prefetch_factor)
        return _NEVER
