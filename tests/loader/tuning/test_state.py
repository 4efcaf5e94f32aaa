"""Events change what a tuner knows, replayed without an epoch."""

from __future__ import annotations

import dataclasses

import pytest

from fastload.loader.dataloader import DataLoader
from fastload.loader.measurements import Decision
from fastload.loader.tuning.plan import make_plan
from fastload.loader.tuning.tuning import Tuning
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE, TWO = 0, 2

# The cost of a batch without workers has been measured.
KNOWN = Tuning({}, limits(), single_process_cost(0.01), batches=100)


@pytest.mark.parametrize(("saved_s", "lost_s"), [(0.0, 3.0), (2.0, 1.0), (60.0, 0.0)])
def test_a_dropped_plan_is_charged_with_what_it_lost_less_what_it_had_saved(saved_s, lost_s):
    settled = dataclasses.replace(KNOWN, is_settled=True)
    without_s = settled.single_process_s
    settled = settled.after_batches(TWO, 10, 10 * without_s - saved_s)
    settled = settled.after_batches(TWO, 10, 10 * without_s + 3.0)
    again = settled.restarted("a test")
    assert again.lost_s == pytest.approx(lost_s)
    assert (again.is_settled, again.single_process) == (False, None)
    assert make_plan(again, again.decide()).origin == "a test"


def test_time_that_a_trial_lost_is_charged_once():
    once = KNOWN.after_batches(TWO, 10, 10.0).after_trial(trial_of(2, 1.0))
    assert once.lost_s > 9.0
    assert once.after_trial(trial_of(2, 1.0)).lost_s == once.lost_s


def test_only_the_latest_trials_of_a_candidate_are_kept():
    known = KNOWN
    for number in range(7):
        known = known.after_trial(trial_of(0, 1.0 + number))
    assert [trial.batch_s for trial in known.trials] == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_starting_a_worker_takes_the_median_of_its_times():
    known = KNOWN
    for seconds in (0.1, 9.0, 0.2):
        known = known.after_start(2 * seconds + known.cost.load_s, workers=2)
    assert known.start_s == pytest.approx(0.2)


def test_an_event_leaves_the_earlier_state_as_it_was():
    before = dataclasses.asdict(KNOWN)
    KNOWN.after_batches(TWO, 10, 10.0).after_trial(trial_of(2, 1.0)).without_workers("a reason")
    assert dataclasses.asdict(KNOWN) == before


@dataclasses.dataclass(frozen=True)
class Decided(Tuning):
    """Its decision is given."""

    decision: Decision | None = None

    def decide(self) -> Decision:
        assert self.decision is not None
        return self.decision


@pytest.mark.parametrize(
    ("decision", "is_settled"),
    [
        (Decision(SINGLE, None), True),
        (Decision(SINGLE, TWO), False),
        (Decision(SINGLE, None, is_deferred=True), False),
    ],
)
def test_a_search_ends_once_nothing_is_left_to_try(decision, is_settled):
    for cost, expected in ((single_process_cost(0.01), is_settled), (None, False)):
        known = Decided({}, limits(), cost, batches=100, decision=decision)
        assert known.settled_if_done().is_settled == expected


def test_batches_are_counted_where_the_sampler_has_no_length():
    loader = DataLoader(batch_sampler=Unsized(), dataset=range(100))
    assert len(list(loader)) == 7
    assert loader.plan.measured.batches == 7


class Unsized:
    """A batch sampler without a length."""

    def __iter__(self):
        return iter([[each] for each in range(7)])
