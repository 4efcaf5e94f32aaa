"""Advice to compile a dataset, given once if the training waits for it."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from typing import Any

from fastload.errors import SlowTransformWarning
from fastload.loader._transport.filling import innermost
from fastload.loader.clock import StepClock, total_of
from fastload.system.random_states import preserved_random_states
from fastload.system.units import format_duration

# Saving less than a quarter of the epoch's time is not worth a warning.
_LEAST_SAVED = 0.25

_advised: weakref.WeakSet[Any] = weakref.WeakSet()


def advise_compiling(dataset: Any, clock: StepClock) -> None:
    """Warn once if compiling the dataset would save much of the epoch's time, as measured on some samples."""
    dataset, _ = innermost(dataset)
    waiting_share = clock.waiting_s / clock.seconds()
    most_saved = waiting_share * _computing_share(clock)
    found = None
    if most_saved >= _LEAST_SAVED and _is_new(dataset):
        found = seconds_saved(dataset)
    if found is not None and most_saved * (1 - found[1] / found[0]) >= _LEAST_SAVED:
        before, after = map(format_duration, found)
        message = (
            f"{waiting_share:.0%} of the time is spent waiting for data. One line reduces the CPU time of a "
            f"sample from {before} to {after}, measured on some of yours, with the same random crops: "
            "DataLoader(…, compile=True), or dataset = fastload.compile(dataset)"
        )
        # The caller of torch's `__next__`.
        warnings.warn(message, SlowTransformWarning, stacklevel=5)


def _computing_share(clock: StepClock) -> float:
    """Return the share of loading that is not spent on waiting for a disk, a lock or a sleep."""
    load = total_of(clock.loading())
    return load.cpu_s / (load.cpu_s + load.blocked_s) if load.cpu_s else 1.0


def _is_new(dataset: Any) -> bool:
    """Return True the first time that a dataset is passed; never for one that is not hashable."""
    with contextlib.suppress(Exception):  # its own `__hash__` may raise anything
        if dataset not in _advised:
            _advised.add(dataset)
            return True
    return False


def seconds_saved(dataset: Any) -> tuple[float, float] | None:
    """Return the CPU seconds for a sample of a dataset, uncompiled and compiled; None if unknown.

    The global random states do not change.
    """
    # A dataset that can be compiled has imported PIL. Importing it here, while another thread forks a worker,
    # could leave the worker with a locked dynamic loader.
    if "PIL.Image" not in sys.modules:
        return None
    # There is no advice for a dataset that cannot be measured, for any reason.
    with contextlib.suppress(Exception), preserved_random_states():
        from fastload.datasets.compiled.gain import compiling_saves  # which needs PIL

        return compiling_saves(dataset)
    return None
