"""Advice to compile a dataset, given once to a training that waits for it."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any

from fastload.errors import SlowTransformWarning
from fastload.loader._resume.drawing import drawn_from, global_state
from fastload.loader._transport.filling import innermost
from fastload.loader.clock import StepClock

# Less than a quarter of the epoch's time is not worth a warning.
_LEAST_SAVED = 0.25

_advised: weakref.WeakSet[Any] = weakref.WeakSet()


def advise_compiling(dataset: Any, clock: StepClock) -> None:
    """Warn once if compiling the dataset would save much of the epoch's time, as measured on some samples."""
    dataset, _ = innermost(dataset)
    share = clock.waiting_s / clock.seconds()
    gain = 1.0
    if share >= _LEAST_SAVED:
        # A dataset that cannot be measured, for whatever reason, gets no advice.
        with contextlib.suppress(Exception), drawn_from(global_state(), {}):
            if dataset not in _advised:
                _advised.add(dataset)
                gain = _measured_gain(dataset)
    if share * (1 - 1 / gain) >= _LEAST_SAVED:
        message = (
            f"{share:.0%} of the time is spent waiting for data. One line makes the samples {gain:.1f} times "
            "as fast, measured on some of them, with the same random crops: DataLoader(…, compile=True), or "
            "dataset = fastload.compile(dataset)"
        )
        # The caller of torch's `__next__`.
        warnings.warn(message, SlowTransformWarning, stacklevel=5)


def _measured_gain(dataset: Any) -> float:
    from fastload.datasets.compiled.gain import measured_gain  # which needs PIL

    return measured_gain(dataset)
