"""What a window shows of workers' beginning: how much later their first batches come than later ones."""

import time

import pytest
import torch

from fastload.loader.clock import StepClock
from fastload.loader.tuning.search import Candidate
from fastload.loader.tuning.window import Beginning, Window


def hand(clock: StepClock, waits_s: list[float]) -> None:
    """Hands out batches after waits of so many seconds each, and steps of nothing."""
    for wait_s in waits_s:
        clock.ask()
        clock._asked -= wait_s
        clock.hand(torch.zeros(2))
        clock._handed = time.perf_counter()


@pytest.mark.parametrize("earlier", [0, 3])
def test_beginning_is_what_the_first_batches_take_longer_than_later_ones(earlier):
    clock = StepClock()
    clock.begin(0, None, None)
    hand(clock, [0.5] * earlier)
    beginning = Beginning(clock)
    window = Window(clock, earlier + 2)
    hand(clock, [4.0, 1.0])
    window.due(2)
    hand(clock, [1.0] * 4)
    trial = window.trial(Candidate(2, 2))
    assert trial.batch_s == pytest.approx(1.0, abs=0.1)
    assert beginning.seconds(window, trial) == pytest.approx(3.0, abs=0.2)
