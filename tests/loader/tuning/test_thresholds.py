"""Each threshold of the decisions is needed: changing it by half changes a decision."""

from __future__ import annotations

import dataclasses

import pytest

from fastload.loader._measurements import Candidate, Trial, TuningMeasurements
from fastload.loader._tuning import decide as rules
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE = Candidate(0, 0)


def compared(without_s: list[float], with_s: list[float]) -> tuple[Candidate, Candidate | None]:
    """Return the decision between no workers and two, after windows of both."""
    trials = [trial_of(0, each, each) for each in without_s]
    trials += [trial_of(2, each, each) for each in with_s]
    cost = single_process_cost(0.01, step_s=0.0)
    return rules.decide(TuningMeasurements({}, limits(), cost, 10_000, tuple(trials)))[:2]


def tried_next(blocked: float) -> object:
    """Return what is tried after two workers have won."""
    won = Trial(2, 4, 10, 0.4, 0.4, blocked)
    trials = (*[trial_of(0, 0.1)] * 3, *[won] * 3)
    cost = single_process_cost(0.1, step_s=0.0)
    return rules.decide(TuningMeasurements({}, limits(), cost, 10_000, trials)).next


def measured(**options) -> TuningMeasurements:
    known = TuningMeasurements({}, limits(), single_process_cost(0.01), batches=100)
    return dataclasses.replace(known, **options)


def affordable(batches: int) -> int:
    """Return how many of two workers may be tried in an epoch of this many batches."""
    return rules.affordable_workers(measured(trials=(trial_of(0, 0.01),), batches=batches), 2)


def waiting_for_a_network() -> TuningMeasurements:
    return TuningMeasurements({}, limits(most_workers=100), single_process_cost(0.1, cpu_s=0.001))


# For each constant, the decisions on either side of its threshold.
SITUATIONS = {
    "_GAIN": [
        lambda: compared([0.01] * 3, [0.0094] * 3)[0],
        lambda: compared([0.01] * 3, [0.0096] * 3)[0],
    ],
    "_EARLY_GAIN": [
        lambda: compared([0.01] * 2, [0.0078]),
        lambda: compared([0.01] * 2, [0.0085]),
    ],
    "_ROUNDS": [
        lambda: compared([0.01] * 2, [0.009] * 2)[1],
        lambda: compared([0.01] * 3, [0.009] * 3)[1],
    ],
    "_BUDGET_SHARE": [
        lambda: affordable(90),
        lambda: affordable(60),
    ],
    "_EPOCHS_AHEAD": [
        lambda: affordable(90),
        lambda: affordable(60),
    ],
    "_START_MARGIN": [lambda: rules.first_workers(dataclasses.replace(waiting_for_a_network(), batches=80))],
    "MOST_WORKERS_PER_CPU": [lambda: rules.first_workers(waiting_for_a_network())],
    "_BLOCKED": [lambda: tried_next(blocked=0.55), lambda: tried_next(blocked=0.45)],
    "_PREFETCHED_BATCHES": [lambda: rules.prefetch_of(measured(), 1)],
    "DEFAULT_PREFETCH": [lambda: rules.prefetch_of(measured(), 100)],
    "WINDOW_S": [
        lambda: rules.fits_into_epoch(measured(trials=(trial_of(0, 0.01),)), 2, 65),
        lambda: rules.fits_into_epoch(measured(trials=(trial_of(0, 0.01),)), 2, 55),
    ],
    "_CHANGED": [
        lambda: rules.has_changed(measured(), SINGLE, 0.021),
        lambda: rules.has_changed(measured(), SINGLE, 0.019),
        lambda: rules.has_changed(measured(), Candidate(2, 4), 0.0049),
        lambda: rules.has_changed(measured(), Candidate(2, 4), 0.0051),
    ],
}


@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("name", SITUATIONS)
def test_threshold_changed_by_half_changes_a_decision(name, factor, monkeypatch):
    expected = [situation() for situation in SITUATIONS[name]]
    changed = getattr(rules, name) * factor
    monkeypatch.setattr(rules, name, int(changed) if type(getattr(rules, name)) is int else changed)
    assert [situation() for situation in SITUATIONS[name]] != expected


def test_every_threshold_has_a_situation():
    constants = {
        name for name, value in vars(rules).items() if name.isupper() and isinstance(value, (int, float))
    }
    assert constants == set(SITUATIONS)


def test_decisions_on_either_side_of_the_thresholds():
    assert compared([0.01] * 3, [0.0094] * 3)[0].num_workers == 2
    assert compared([0.01] * 3, [0.0096] * 3)[0] == SINGLE
    assert compared([0.01] * 2, [0.0078])[0].num_workers == 2
    assert compared([0.01] * 2, [0.0085]) == (SINGLE, Candidate(2, 4))
    assert tried_next(blocked=0.55) == Candidate(4, 2)
    assert tried_next(blocked=0.45) is None
    assert affordable(90)
    assert not affordable(60)
