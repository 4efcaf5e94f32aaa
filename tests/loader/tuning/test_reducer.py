"""Events give another tuning and an action, replayed without an epoch."""

import dataclasses

import pytest

from fastload.loader.clock import LoadTimes
from fastload.loader.dataloader import DataLoader
from fastload.loader.measurements import Decision, Trial, TuningSettings
from fastload.loader.strategies import make_plan
from fastload.loader.tuning.reducer import (
    Action,
    Look,
    Tuner,
    dataset_checked,
    epoch_announced,
    epoch_begun,
    epoch_ended,
    epoch_watched,
    limits_read,
    looked,
    workers_began,
    workers_forbidden,
)
from fastload.loader.tuning.tuning import Tuning
from fastload.loader.tuning.window import Window
from tests.loader.tuning.clocks import epoch_of, hand, started
from tests.loader.tuning.simulation import limits, single_process_cost
from tests.loader.tuning.test_decide import trial_of

SINGLE, TWO = 0, 2

# The cost of a batch without workers has been measured.
KNOWN = Tuning({}, limits(), single_process_cost(0.01), batches=100, is_dataset_checked=True)

SETTLED = dataclasses.replace(KNOWN, is_settled=True)


def test_a_plan_whose_workers_lose_time_is_dropped_after_the_epoch_and_charged():
    tolerated_s = SETTLED.tolerated_loss_s(TWO)
    before_s = 100 * SETTLED.single_process_s
    assert epoch_watched(SETTLED, epoch_of(TWO, before_s + 0.9 * tolerated_s)) == (SETTLED, None)
    lost_s = 1.1 * tolerated_s
    again, _ = epoch_watched(SETTLED, epoch_of(TWO, before_s + lost_s))
    assert again.lost_s == pytest.approx(lost_s)
    assert (again.is_settled, again.single_process) == (False, None)
    assert "took longer than without workers" in make_plan(again, again.decide()).origin


@pytest.mark.parametrize(
    ("workers", "load_s", "fits"),
    [
        (TWO, 0.0051, True),
        (TWO, 0.0049, False),
        (TWO, 1.0, True),
        (SINGLE, 0.019, True),
        (SINGLE, 0.021, False),
        (SINGLE, 0.001, True),
    ],
)
def test_a_plan_is_dropped_if_making_a_batch_takes_twice_as_long_or_workers_half_as_long(
    workers, load_s, fits
):
    epoch = epoch_of(workers, 0.1 if workers else 6.0, load_s=load_s)
    assert epoch_watched(SETTLED, epoch)[0].is_settled == fits


def test_a_short_epoch_drops_no_plan():
    assert epoch_watched(SETTLED, epoch_of(SINGLE, 4.0, load_s=0.1))[0].is_settled
    assert epoch_watched(SETTLED, epoch_of(TWO, 1000.0, batches=20))[0].is_settled
    forbidden = SETTLED.without_workers("a reason")
    assert epoch_watched(forbidden, epoch_of(SINGLE, 6.0, load_s=0.1))[0].is_settled


def test_kernels_delays_that_began_before_a_batch_give_no_negative_time():
    load = LoadTimes(100, 400, busy_s=0.1, cpu_s=0.1, delayed_s=0.3, collate_s=0.0)
    epoch = hand(started(SINGLE, load), [0.06] * 100)
    assert epoch_watched(SETTLED, epoch)[0].is_settled


def test_time_that_a_trial_lost_is_charged_once():
    once = dataclasses.replace(KNOWN, behind_s=9.9).after_trial(trial_of(2, 1.0))
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
        known, _ = workers_began(known, 2 * seconds + known.cost.load_s, workers=2)
    assert known.start_s == pytest.approx(0.2)


def test_an_event_leaves_the_earlier_state_as_it_was():
    before = dataclasses.asdict(KNOWN)
    look = Look(epoch_of(SINGLE, 1.0), 100)
    for tuning, _ in (
        looked(KNOWN, Window(), look),
        epoch_ended(KNOWN, Window(), look),
        workers_forbidden(KNOWN, "a reason"),
        epoch_announced(KNOWN, 50),
    ):
        assert tuning != KNOWN
    assert dataclasses.asdict(KNOWN) == before


def test_a_new_tuning_measures_without_workers_then_tries_two_after_a_check_of_the_dataset():
    tuner = Tuner(dataclasses.replace(KNOWN, single_process=None, batches=1000, is_dataset_checked=False))
    clock = started(SINGLE, LoadTimes(30, 1920, 0.3, 0.3, 0.0, 0.0))
    assert tuner.note(epoch_begun, Look(clock)) == Action(Window(0, 1), due=1)
    tuner.note(limits_read, limits(), False)
    action = tuner.note(looked, Window(0, 1), Look(hand(clock, [0.01]), 1))
    assert (action.window.begun_s, action.due) == (pytest.approx(0.01), 2)
    look = Look(hand(clock, [0.01] * 29), 30)
    action = tuner.note(looked, action.window, look)
    assert tuner.tuning.cost.load_s == pytest.approx(0.01)
    assert (action.window.workers, action.due, action.checks_dataset) == (0, 31, True)
    action = tuner.note(dataset_checked, action.window, look)
    # The first batch of each worker is not measured.
    assert (action.window.workers, action.window.first, action.due) == (2, 32, 31)


def test_batches_in_flight_are_not_measured_for_other_workers():
    clock = epoch_of(SINGLE, 1.0)
    long = dataclasses.replace(KNOWN, batches=10_000, trials=(trial_of(0, 0.01),))
    _, action = looked(long, Window(0, 1, 0, 0, 0.0), Look(clock, 100, requested=5))
    assert (action.window.workers, action.window.first, action.window.since) == (2, 107, 100)


@pytest.mark.parametrize(
    ("position", "is_drawn", "workers"), [(100, False, 2), (9_990, False, 0), (100, True, 0)]
)
def test_workers_are_started_only_if_the_rest_of_the_epoch_measures_them(position, is_drawn, workers):
    long = dataclasses.replace(KNOWN, batches=10_000, trials=(trial_of(0, 0.01),))
    look = Look(epoch_of(SINGLE, 1.0), position, is_drawn=is_drawn)
    tuning, action = looked(long, Window(0, 1, 0, 0, 0.0), look)
    assert action.window.workers == workers
    assert epoch_begun(tuning, Look(started()))[1].window.workers == 2  # the next epoch begins with them


def test_workers_that_fall_behind_are_given_up_before_their_window_is_over():
    tried = dataclasses.replace(KNOWN, trials=(trial_of(0, 0.01),), batches=1000)
    settings = TuningSettings(window_s=1000.0)
    tried = dataclasses.replace(tried, settings=settings)
    tuning, action = looked(tried, Window(TWO, 2), Look(epoch_of(TWO, 100.0, 10), 10, started=2))
    assert tuning.is_settled
    assert (tuning.best, action.window.workers, action.ends_workers) == (0, 0, True)


def test_workers_that_fail_end_the_search():
    tuning, action = workers_forbidden(KNOWN, "they died")
    assert (tuning.why_no_workers, tuning.is_settled, tuning.best) == ("they died", True, 0)
    assert (action.window.workers, action.due, action.ends_workers) == (0, None, True)


def test_an_epoch_without_a_window_is_a_trial_that_includes_the_workers_start():
    tried = dataclasses.replace(KNOWN, trials=(trial_of(0, 0.01),))
    tuning, _ = epoch_ended(tried, Window(TWO, 2), Look(epoch_of(TWO, 1.0, 3), 3))
    assert tuning.batches == 3
    assert tuning.trials[1:] == (Trial(TWO, 3, pytest.approx(1.0), pytest.approx(1.0), 1.0, True),)


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
