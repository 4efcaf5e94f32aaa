"""Windows measure only batches of one candidate, without batches in flight before and unusual steps."""

import dataclasses

import pytest

from fastload.loader.clock import StepClock
from fastload.loader.measurements import DEFAULT_SETTINGS
from fastload.loader.tuning.window import Window
from tests.loader.tuning.clocks import hand, started


def is_over(window: Window, clock: StepClock) -> bool:
    return window.at(clock).is_over(clock, DEFAULT_SETTINGS)


def test_batches_in_flight_when_the_candidate_changed_do_not_count():
    clock = started()
    hand(clock, [0.5] * 3)
    window = Window(2, 5).at(clock)
    hand(clock, [4.0, 4.0])
    window = window.at(clock)
    assert not is_over(window, clock)
    assert window.next_look(clock) == 7  # a batch of each worker
    hand(clock, [1.0] * 4)
    trial = window.trial(clock, DEFAULT_SETTINGS)
    assert (trial.batches, trial.batch_s) == (4, pytest.approx(1.0))
    assert window.seconds(clock) == pytest.approx(4.0)


def test_trial_since_the_epochs_first_batch_includes_the_start_of_workers():
    clock = started()
    hand(clock, [3.0, 1.0, 1.0, 1.0])
    trial = Window(2, 2).trial(clock, DEFAULT_SETTINGS, since=0)
    assert (trial.batches, trial.includes_start) == (4, True)
    assert trial.seconds == pytest.approx(6.0)


def test_window_ends_after_a_quarter_of_a_second_and_three_batches_per_worker():
    clock = started()
    hand(clock, [0.0])
    window = Window(2, 1).at(clock)
    hand(clock, [0.2] * 5)
    assert not is_over(window, clock)
    hand(clock, [0.2])
    assert is_over(window, clock)


def test_window_of_short_batches_lasts_as_long_as_the_settings_say():
    clock = started()
    hand(clock, [0.0])
    window = Window(0, 1).at(clock)
    hand(clock, [0.03] * 5)
    assert not is_over(window, clock)
    assert window.next_look(clock) == 7
    assert window.is_over(clock, dataclasses.replace(DEFAULT_SETTINGS, window_s=0.1))
    hand(clock, [0.03] * 4)
    assert is_over(window, clock)


def test_one_long_batch_without_workers_is_enough():
    clock = started()
    hand(clock, [0.3])
    window = Window(0, 1).at(clock)
    assert not is_over(window, clock)
    assert window.next_look(clock) == 2
    hand(clock, [0.5])
    assert is_over(window, clock)


def test_validation_between_two_batches_counts_as_five_steps():
    clock = started()
    hand(clock, [0.0])
    window = Window(0, 1).at(clock)
    hand(clock, [0.01] * 4, step_s=0.1)
    hand(clock, [0.01], step_s=60.0)
    assert window.trial(clock, DEFAULT_SETTINGS).seconds == pytest.approx(0.05 + 0.4 + 0.5)


def test_window_without_batches_shows_the_first_wait():
    clock = started()
    hand(clock, [2.0])
    assert Window(0, 1).trial(clock, DEFAULT_SETTINGS).seconds == pytest.approx(2.0)
