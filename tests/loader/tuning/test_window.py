"""Windows measure only batches of one candidate, without batches in flight before and unusual steps."""

import pytest

from fastload.loader.clock import LoadTimes, StepClock
from fastload.loader.measurements import DEFAULT_SETTINGS
from fastload.loader.tuning.epoch import Window, watched


def started() -> StepClock:
    clock = StepClock()
    clock.begin(0, None, None)
    return clock


def hand(clock: StepClock, waits_s: list[float], step_s: float = 0.0) -> None:
    """Hand out a batch after each wait, in seconds, followed by a step."""
    for wait_s in waits_s:
        if clock.batches:
            clock.waits_s.append(wait_s)
            clock.waiting_s += wait_s
        else:
            clock.first_wait_s = wait_s
        clock.batches += 1
        clock.steps_s.append(step_s)
        clock._stepping_s += step_s


def test_batches_in_flight_when_the_candidate_changed_do_not_count():
    clock = started()
    hand(clock, [0.5] * 3)
    window = Window(clock, 2, 5)
    hand(clock, [4.0, 4.0])
    assert not window.is_over()
    assert window.next_check() == 7  # a batch of each worker
    hand(clock, [1.0] * 4)
    assert window.trial().batch_s == pytest.approx(1.0)
    assert window.trial().batches == 4
    assert window.seconds() == pytest.approx(4.0)


def test_trial_since_the_epochs_first_batch_includes_the_start_of_workers():
    clock = started()
    window = Window(clock, 2, 2)
    hand(clock, [3.0, 1.0, 1.0, 1.0])
    trial = window.trial(since=0)
    assert (trial.batches, trial.includes_start) == (4, True)
    assert trial.seconds == pytest.approx(6.0)


def test_window_ends_after_a_quarter_of_a_second_and_three_batches_per_worker():
    clock = started()
    hand(clock, [0.0])
    window = Window(clock, 2, 1)
    hand(clock, [0.2] * 5)
    assert not window.is_over()
    hand(clock, [0.2])
    assert window.is_over()


def test_window_of_short_batches_lasts_a_quarter_of_a_second():
    clock = started()
    hand(clock, [0.0])
    window = Window(clock, 0, 1)
    hand(clock, [0.03] * 5)
    assert not window.is_over()
    assert window.next_check() == 7
    hand(clock, [0.03] * 4)
    assert window.is_over()


def test_one_long_batch_without_workers_is_enough():
    clock = started()
    window = Window(clock, 0, 1)
    hand(clock, [0.3])
    assert not window.is_over()
    assert window.next_check() == 2
    hand(clock, [0.5])
    assert window.is_over()


def test_validation_between_two_batches_counts_as_five_steps():
    clock = started()
    hand(clock, [0.0])
    window = Window(clock, 0, 1)
    hand(clock, [0.01] * 4, step_s=0.1)
    hand(clock, [0.01], step_s=60.0)
    assert window.trial().seconds == pytest.approx(0.05 + 0.4 + 0.5)


def test_window_without_batches_shows_the_first_wait():
    clock = started()
    window = Window(clock, 0, 1)
    hand(clock, [2.0])
    assert window.trial().seconds == pytest.approx(2.0)


def test_kernels_delays_that_began_before_a_batch_give_no_negative_time():
    clock = StepClock()
    clock.begin(0, None, lambda: (LoadTimes(1, 4, busy_s=0.01, cpu_s=0.001, delayed_s=0.03, collate_s=0.0),))
    assert watched(clock, DEFAULT_SETTINGS)[1] == 0.0
