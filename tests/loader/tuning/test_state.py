"""Events change what a tuner knows, replayed without an epoch."""

from __future__ import annotations

import dataclasses

import pytest

from fastload.loader._arguments import LoaderView
from fastload.loader._measurements import Candidate
from fastload.loader._tuning.decide import Decision, single_process_s
from fastload.loader._tuning.tuner import Tuner
from fastload.loader.dataloader import DataLoader
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE, TWO = Candidate(0, 0), Candidate(2, 4)


def view(batches: int | None = 100) -> LoaderView:
    return dataclasses.replace(DataLoader(range(100))._view(), batches=batches)


def tuner() -> Tuner:
    """Return a tuner after the cost of a batch without workers has been measured."""
    known = Tuner(view())
    known.measured = dataclasses.replace(
        known.measured, limits=limits(), single_process=single_process_cost(0.01)
    )
    return known


@pytest.mark.parametrize(("saved_s", "lost_s"), [(0.0, 3.0), (2.0, 1.0), (60.0, 0.0)])
def test_a_dropped_plan_is_charged_with_what_it_lost_less_what_it_had_saved(saved_s, lost_s):
    settled = tuner()
    settled.is_settled = True
    without_s = single_process_s(settled.measured)
    settled.note_batches(TWO, 10, 10 * without_s - saved_s)
    settled.note_batches(TWO, 10, 10 * without_s + 3.0)
    settled.restart("a test")
    assert settled.measured.lost_s == pytest.approx(lost_s)
    assert (settled.is_settled, settled.is_baseline_known) == (False, False)
    assert settled.plan.origin == "a test"


def test_time_that_a_trial_lost_is_charged_once():
    known = tuner()
    known.note_batches(TWO, 10, 10.0)
    known.note_trial(trial_of(2, 1.0))
    lost_s = known.measured.lost_s
    known.note_trial(trial_of(2, 1.0))
    assert lost_s > 9.0
    assert known.measured.lost_s == lost_s


def test_only_the_latest_trials_of_a_candidate_are_kept():
    known = tuner()
    for number in range(7):
        known.note_trial(trial_of(0, 1.0 + number))
    assert [trial.batch_s for trial in known.measured.trials] == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_starting_a_worker_takes_the_median_of_its_times():
    known = tuner()
    for seconds in (0.1, 9.0, 0.2):
        known.note_start(2 * seconds + known.measured.cost.load_s, workers=2)
    assert known.measured.limits.start_s == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("decision", "is_settled"),
    [
        (Decision(SINGLE, None), True),
        (Decision(SINGLE, TWO), False),
        (Decision(SINGLE, None, is_deferred=True), False),
    ],
)
def test_a_search_ends_once_nothing_is_left_to_try(decision, is_settled):
    for each, expected in ((tuner(), is_settled), (Tuner(view()), False)):
        each.decide = lambda: decision  # type: ignore[method-assign]
        each.settle_if_done()
        assert each.is_settled == expected


def test_measurements_of_a_filling_cache_are_discarded_once_it_is_full():
    for is_forbidden in (False, True):
        filling = tuner()
        filling.prepare(view(), is_filling=True)
        assert filling.is_baseline_known
        if is_forbidden:
            filling.forbid_workers("a reason")
        filling.prepare(view(), is_filling=False)
        assert filling.is_baseline_known == is_forbidden


def test_batches_are_counted_where_the_sampler_has_no_length():
    known = tuner()
    known.note_end(70)
    known.prepare(view(batches=None), is_filling=False)
    assert known.measured.batches == 70
