"""Events change what a tuner knows, replayed without an epoch."""

from __future__ import annotations

import dataclasses

import pytest

from fastload.loader.dataloader import DataLoader
from fastload.loader.measurements import Decision, Trial
from fastload.loader.strategies import make_plan
from fastload.loader.tuning.tuning import Tuning
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE, TWO = 0, 2

# The cost of a batch without workers has been measured.
KNOWN = Tuning({}, limits(), single_process_cost(0.01), batches=100)


SETTLED = dataclasses.replace(KNOWN, is_settled=True)


def test_a_plan_whose_workers_lose_time_is_dropped_after_the_epoch_and_charged():
    tolerated_s = SETTLED.tolerated_loss_s(TWO)
    before_s = 100 * SETTLED.single_process_s
    assert SETTLED.after_epoch(Trial(TWO, 100, before_s + 0.9 * tolerated_s, 0.0), 0.01) is SETTLED
    lost_s = 1.1 * tolerated_s
    again = SETTLED.after_epoch(Trial(TWO, 100, before_s + lost_s, 0.0), 0.01)
    assert again.lost_s == pytest.approx(lost_s)
    assert (again.is_settled, again.single_process) == (False, None)
    assert "took longer than without workers" in make_plan(again, again.decide()).origin


@pytest.mark.parametrize(
    ("workers", "load_s", "fits"),
    [
        (TWO, 0.0051, True),
        (TWO, 0.0049, False),
        (TWO, 1.0, True),
        (0, 0.019, True),
        (0, 0.021, False),
        (0, 0.001, True),
    ],
)
def test_a_plan_is_dropped_if_making_a_batch_takes_twice_as_long_or_workers_half_as_long(
    workers, load_s, fits
):
    seconds = 0.1 if workers else 6.0
    assert SETTLED.after_epoch(Trial(workers, 100, seconds, 0.0), load_s).is_settled == fits


def test_a_short_epoch_drops_no_plan():
    assert SETTLED.after_epoch(Trial(0, 100, 4.0, 0.0), 0.1).is_settled
    assert SETTLED.after_epoch(Trial(TWO, 20, 1000.0, 0.0), 0.1).is_settled
    assert SETTLED.without_workers("a reason").after_epoch(Trial(0, 100, 6.0, 0.0), 0.1).is_settled


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
