"""Each threshold of the decisions is needed: changing it by half changes a decision."""

from __future__ import annotations

import dataclasses

import pytest

from fastload.loader.measurements import (
    DEFAULT_SETTINGS,
    Trial,
    TuningSettings,
)
from fastload.loader.tuning.reducer import epoch_watched
from fastload.loader.tuning.tuning import Tuning
from tests.loader.tuning.clocks import epoch_of
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE = 0


def compared(
    without_s: list[float], with_s: list[float], settings: TuningSettings = DEFAULT_SETTINGS
) -> tuple[int, int | None]:
    """Return the decision between no workers and two, after windows of both."""
    trials = [trial_of(0, each, each) for each in without_s]
    trials += [trial_of(2, each, each) for each in with_s]
    cost = single_process_cost(0.01, step_s=0.0)
    known = Tuning({}, limits(), cost, 10_000, tuple(trials), settings=settings)
    return known.decide()[:2]


def tried_next(blocked: float, settings: TuningSettings = DEFAULT_SETTINGS) -> object:
    """Return what is tried after two workers have won."""
    won = Trial(2, 10, 0.4, 0.4, blocked)
    trials = (*[trial_of(0, 0.1)] * 3, *[won] * 3)
    cost = single_process_cost(0.1, step_s=0.0)
    return Tuning({}, limits(), cost, 10_000, trials, settings=settings).decide().next


def measured(**options) -> Tuning:
    known = Tuning({}, limits(), single_process_cost(0.01), batches=100)
    return dataclasses.replace(known, **options)


def affordable(batches: int, settings: TuningSettings = DEFAULT_SETTINGS) -> int:
    """Return how many of two workers may be tried in an epoch of this many batches."""
    return measured(trials=(trial_of(0, 0.01),), batches=batches, settings=settings).affordable_workers(2)


def is_behind(seconds: float, settings: TuningSettings = DEFAULT_SETTINGS) -> bool:
    """Return whether workers that lost this time in ten epochs of 10.1 s are given up."""
    return measured(batches=1000, behind_s=seconds, settings=settings).is_behind()


def fits(batches_left: int, settings: TuningSettings) -> bool:
    known = measured(trials=(trial_of(0, 0.01),), settings=settings)
    return known.fits_into_epoch(2, batches_left)


def waiting_for_a_network(settings: TuningSettings, batches: int | None = None) -> Tuning:
    cost = single_process_cost(0.1, cpu_s=0.001)
    return Tuning({}, limits(most_workers=100), cost, batches, settings=settings)


def still_fits(
    settings: TuningSettings,
    workers: int = SINGLE,
    batches: int = 100,
    seconds: float = 10.0,
    load_s: float = 0.05,
) -> bool:
    if workers:
        seconds = 0.1
    settled = dataclasses.replace(measured(settings=settings), is_settled=True)
    return epoch_watched(settled, epoch_of(workers, seconds, batches, load_s))[0].is_settled


# For each setting, the decisions on either side of its threshold.
SITUATIONS = {
    "gain": [
        lambda s: compared([0.01] * 3, [0.0094] * 3, s)[0],
        lambda s: compared([0.01] * 3, [0.0096] * 3, s)[0],
    ],
    "early_gain": [
        lambda s: compared([0.01] * 2, [0.0078], s),
        lambda s: compared([0.01] * 2, [0.0085], s),
    ],
    "rounds": [
        lambda s: compared([0.01] * 2, [0.009] * 2, s)[1],
        lambda s: compared([0.01] * 3, [0.009] * 3, s)[1],
    ],
    "budget_share": [lambda s: is_behind(1.6, s), lambda s: is_behind(1.4, s)],
    "epochs_ahead": [lambda s: is_behind(1.6, s), lambda s: is_behind(1.4, s)],
    "worth_trial": [lambda s: affordable(18, s), lambda s: affordable(15, s)],
    "start_margin": [lambda s: waiting_for_a_network(s, batches=80).first_workers],
    "most_workers_per_cpu": [lambda s: waiting_for_a_network(s).first_workers],
    "blocked": [lambda s: tried_next(0.55, s), lambda s: tried_next(0.45, s)],
    "prefetched_batches": [lambda s: measured(settings=s).prefetch_of(1)],
    "window_s": [lambda s: fits(65, s), lambda s: fits(55, s)],
    "least_windows": [lambda s: fits(65, s), lambda s: fits(55, s)],
    "changed": [
        lambda s: still_fits(s, load_s=0.021),
        lambda s: still_fits(s, load_s=0.019),
        lambda s: still_fits(s, 2, load_s=0.0049),
        lambda s: still_fits(s, 2, load_s=0.0051),
    ],
    "watched_s": [lambda s: still_fits(s, seconds=5.1), lambda s: still_fits(s, seconds=4.9)],
    "least_watched": [lambda s: still_fits(s, batches=32), lambda s: still_fits(s, batches=31)],
}

# Those of windows and of watching a plan; most_workers bounds what tests start.
OTHERS = {
    *("least_batches", "batches_per_worker", "long_batch_s", "unusual"),
    *("most_trials", "stuck_s", "stuck_loads", "most_workers"),
}


@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("name", SITUATIONS)
def test_threshold_changed_by_half_changes_a_decision(name, factor):
    value = getattr(DEFAULT_SETTINGS, name)
    changed = dataclasses.replace(DEFAULT_SETTINGS, **{name: type(value)(value * factor)})
    before, after = ([of(settings) for of in SITUATIONS[name]] for settings in (DEFAULT_SETTINGS, changed))
    assert before != after


def test_every_threshold_has_a_situation():
    assert {*SITUATIONS, *OTHERS} == {field.name for field in dataclasses.fields(TuningSettings)}


def test_decisions_on_either_side_of_the_thresholds():
    assert compared([0.01] * 3, [0.0094] * 3)[0] == 2
    assert compared([0.01] * 3, [0.0096] * 3)[0] == SINGLE
    assert compared([0.01] * 2, [0.0078])[0] == 2
    assert compared([0.01] * 2, [0.0085]) == (SINGLE, 2)
    assert tried_next(blocked=0.55) == 4
    assert tried_next(blocked=0.45) is None
    assert is_behind(1.6)
    assert not is_behind(1.4)
    assert affordable(18)
    assert not affordable(15)
    assert measured().prefetch_of(100) == 2
