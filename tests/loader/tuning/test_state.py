"""Events change the state of tuning, and nothing else does: pure functions, replayed without a loader."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fastload.loader._measurements import Candidate, TuningMeasurements
from fastload.loader._tuning.decide import Decision, single_process_s
from fastload.loader._tuning.state import TunerState
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE, TWO = Candidate(0, 0), Candidate(2, 4)


def state(**changes: Any) -> TunerState:
    """Return the state after the cost of a batch without workers has been measured."""
    known = TunerState(TuningMeasurements({}, limits(), batches=100))
    known = known.cost_measured(single_process_cost(0.01), limits(), has_cuda=False)
    return dataclasses.replace(known, **changes)


@pytest.mark.parametrize(("saved_s", "lost_s"), [(0.0, 3.0), (2.0, 1.0), (60.0, 0.0)])
def test_a_dropped_plan_is_charged_with_what_it_lost_less_what_it_had_saved(saved_s, lost_s):
    settled = state(is_settled=True)
    without_s = single_process_s(settled.measured)
    later = settled.batches_loaded(TWO, 10, 10 * without_s - saved_s)
    later = later.batches_loaded(TWO, 10, 10 * without_s + 3.0)
    again = later.restarted("a test")
    assert again.measured.lost_s == pytest.approx(lost_s)
    assert (again.is_settled, again.is_baseline_known, again.origin) == (False, False, "a test")
    assert settled == state(is_settled=True)


def test_time_that_a_trial_lost_is_charged_once():
    first = state().batches_loaded(TWO, 10, 10.0).trial_ended(trial_of(2, 1.0))
    second = first.trial_ended(trial_of(2, 1.0))
    assert first.measured.lost_s > 9.0
    assert second.measured.lost_s == first.measured.lost_s


def test_only_the_latest_trials_of_a_candidate_are_kept():
    known = state()
    for number in range(7):
        known = known.trial_ended(trial_of(0, 1.0 + number))
    assert [trial.batch_s for trial in known.measured.trials] == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_starting_a_worker_takes_the_median_of_its_times():
    known = state()
    for seconds in (0.1, 9.0, 0.2):
        known = known.worker_started(seconds)
    assert known.measured.limits.start_s == 0.2


@pytest.mark.parametrize(
    ("decision", "is_settled"),
    [
        (Decision(SINGLE, None), True),
        (Decision(SINGLE, TWO), False),
        (Decision(SINGLE, None, is_deferred=True), False),
    ],
)
def test_a_search_ends_once_nothing_is_left_to_try(decision, is_settled):
    assert state().decided(decision).is_settled == is_settled
    unknown = TunerState(TuningMeasurements({}, limits()))
    assert not unknown.decided(decision).is_settled


def test_measurements_of_a_filling_cache_are_discarded_once_it_is_full():
    filling = state().epoch_begun(100, is_filling=True)
    assert filling.is_baseline_known
    assert not filling.epoch_begun(100, is_filling=False).is_baseline_known
    forbidden = filling.workers_forbidden("a reason")
    assert forbidden.epoch_begun(100, is_filling=False).is_baseline_known


def test_batches_are_counted_where_the_sampler_has_no_length():
    assert state().epoch_ended(70).epoch_begun(None, is_filling=False).measured.batches == 70
