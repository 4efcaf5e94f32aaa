"""Rules by which a training's time is judged, shared by a loader's report and the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Cause = TypeVar("_Cause", bound=str)

LEAST_S = 0.25
"""A training run, or an epoch, that takes less than this in all has nothing to gain."""

LEAST_BUSY = 0.6
"""Workers that are busy for less than this share of the time are idle: moving the batches is the cause."""


def slower_cause(
    step: Mapping[_Cause, float],
    loading: Mapping[_Cause, float],
    is_step_slower: bool,
    busy_share: float,
    transport: _Cause,
) -> _Cause:
    """Return the cause on which the slower side spends most.

    `step` and `loading` are the seconds of each cause; `busy_share` is the share of the time in which workers
    make batches, 1 if unknown or without workers; `transport` is the cause if they are idle.
    """
    if is_step_slower:
        return max(step, key=lambda cause: step[cause])
    if busy_share < LEAST_BUSY:
        return transport
    return max(loading, key=lambda cause: loading[cause])
